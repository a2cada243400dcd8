//! What `make demo` shows has to be true.

use crate::telecine::Place;

#[test]
fn the_demo_loses_nothing_when_a_worker_is_killed() {
    let place = Place::new();

    let demo = place.run(&["demo"]);

    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert!(demo.stdout.contains("10 of 10 completed in"), "{demo:?}");
    assert!(demo.stdout.contains("nothing lost: 10 of 10 completed"), "{demo:?}");
    assert!(demo.stdout.contains("lost on worker"), "{demo:?}");
}
