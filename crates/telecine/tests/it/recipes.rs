//! `telecine recipes`.

use crate::telecine::{Ended, Place};

/// A place whose folder of recipes has one that is valid, one that replaces a built-in one, and one that is broken.
fn with_recipes() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("ours")).expect("a folder can be made");
    place.write("telecine.toml", "recipes = \"ours\"\n");
    place.write(
        "ours/clips.toml",
        "description = \"Short ones\"\n[steps.clip]\nkind = \"mp4\"\nwith.crf = 30\n",
    );
    place.write("ours/mp4.toml", "description = \"Ours\"\n[steps.file]\nkind = \"mp4\"\n");
    place.write("ours/broken.toml", "[steps.film]\nkind = \"hsl\"\npriority = 200\n");
    place
}

#[test]
fn recipes_are_listed_with_their_origin_and_a_broken_one_by_name() {
    let place = with_recipes();

    let shown = place.run(&["recipes", "ls"]);
    let json = place.json(&["recipes", "ls"]);

    assert_eq!(shown.code, Some(0), "{shown:?}");
    let line = |name: &str| shown.stdout.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
    assert!(line("web-video").contains("hls, pictures, (mp4)") && line("web-video").contains("built-in"));
    assert!(line("clips").contains("ours/clips.toml") && line("clips").contains("Short ones"), "{shown:?}");
    assert!(line("mp4").contains("ours/mp4.toml") && line("mp4").contains("Ours"), "{shown:?}");
    assert!(line("broken").contains("invalid") && line("broken").contains("2 errors"), "{shown:?}");
    let listed = json["data"].as_array().expect("a list");
    let broken = listed.iter().find(|recipe| recipe["name"] == "broken").expect("broken");
    assert_eq!(broken["errors"][0]["line"], 2, "{json}");
    assert_eq!(listed.iter().filter(|recipe| recipe["origin"] == "built_in").count(), 6, "{json}");
}

#[test]
fn a_recipe_is_shown_with_its_values_as_a_recipe() {
    let place = with_recipes();

    let shown = place.run(&["recipes", "show", "web-video", "--set", "hls.crf=30"]);
    let json = place.json(&["recipes", "show", "clips"]);
    place.write("saved.toml", &shown.stdout);
    let checked = place.run(&["recipes", "check", "saved.toml"]);

    assert_eq!(shown.code, Some(0), "{shown:?}");
    for words in ["# web-video (built-in)", "not enabled (--set mp4.enabled=true), after hls", "crf = 30"] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("saved.toml: valid, steps hls, pictures, mp4"), "{checked:?}");
    assert_eq!((&json["steps"][0]["with"]["crf"], &json["steps"][0]["required"]), (&30.into(), &true.into()));
}

#[test]
fn every_mistake_is_told_and_the_answer_is_no() {
    let place = with_recipes();

    let of_file = place.run(&["recipes", "check", "ours/broken.toml", "ours/clips.toml"]);
    let of_folder = place.run(&["recipes", "check"]);
    let json: Ended = place.run(&["recipes", "check", "ours/broken.toml", "--json"]);
    let missing = place.run(&["recipes", "check", "ours/none.toml"]);

    for ended in [&of_file, &of_folder] {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.stdout.contains("ours/broken.toml:2:8: unknown kind `hsl`; did you mean `hls`?"),
            "{ended:?}"
        );
        assert!(ended.stdout.contains("  2 | kind = \"hsl\"\n    |        ^^^^^\n"), "{ended:?}");
        assert!(
            ended.stdout.contains("ours/broken.toml:3:12: `priority` is a whole number of 0 to 100"),
            "{ended:?}"
        );
        assert!(ended.stdout.contains("ours/clips.toml: valid, steps clip"), "{ended:?}");
    }
    let document: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(
        (json.code, document["data"][0]["errors"].as_array().map(Vec::len)),
        (Some(1), Some(2)),
        "{json:?}"
    );
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stdout.contains("it cannot be read"), "{missing:?}");
}

#[test]
fn a_broken_recipe_is_not_replaced_by_a_built_in_one() {
    let place = with_recipes();
    place.write("ours/audio.toml", "[steps.audio]\nkind = \"audio\"\nwith.formats = []\n");

    let refused = place.run(&["recipes", "show", "audio"]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("ours/audio.toml:3:16"), "{refused:?}");
}

#[test]
fn a_folder_of_recipes_that_is_not_there_is_told_with_its_origin() {
    let place = Place::new();

    let mut command = place.command(&["recipes", "ls"]);
    let refused: Ended = command.env("TELECINE_RECIPES", "/nonexistent").output().expect("it starts").into();

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("/nonexistent (TELECINE_RECIPES)"), "{refused:?}");
}
