//! Connections: how long they are waited for, how many there may be, and how they end.

use libtest_mimic::Trial;

use crate::support::{Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("connections::a_server_answers_and_stops", a_server_answers_and_stops)]
}

async fn a_server_answers_and_stops() {
    let served = Served::start().await;

    let live = served.get("/health/live").send().await.unwrap();
    let recipes = served.get("/v1/recipes").send().await.unwrap();
    let nothing = served.get("/v1/nothing").send().await.unwrap();

    assert_eq!(live.status(), 200);
    assert_eq!(live.headers()["x-content-type-options"], "nosniff");
    assert_eq!(recipes.status(), 200);
    assert_eq!(problem(nothing).await["code"], "not_found");
    served.stop().await;
}
