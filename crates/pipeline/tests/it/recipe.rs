//! Recipes: what is right in one, and how what is wrong is told.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_media::{Ladder, Packaging};
use telecine_pipeline::{Does, Recipe, RecipeErrors, Recipes, parse_params};

pub(crate) fn trials() -> Vec<Trial> {
    let promises: [(&str, fn()); 13] = [
        ("a_recipe_says_what_each_step_does", a_recipe_says_what_each_step_does),
        ("steps_stand_behind_what_they_need", steps_stand_behind_what_they_need),
        ("each_mistake_is_told_with_its_place", each_mistake_is_told_with_its_place),
        ("the_line_is_shown_and_pointed_at", the_line_is_shown_and_pointed_at),
        ("all_mistakes_are_told_at_once", all_mistakes_are_told_at_once),
        ("a_recipe_written_out_reads_the_same", a_recipe_written_out_reads_the_same),
        ("a_recipe_survives_being_stored", a_recipe_survives_being_stored),
        ("params_change_values_of_steps", params_change_values_of_steps),
        ("settings_are_params", settings_are_params),
        ("settings_that_mean_nothing_are_refused", settings_that_mean_nothing_are_refused),
        ("wrong_params_are_told_with_the_nearest_name", wrong_params_are_told_with_the_nearest_name),
        ("params_gain_nothing_that_only_the_author_has", params_gain_nothing_that_only_the_author_has),
        ("what_a_run_enables_has_what_it_needs", what_a_run_enables_has_what_it_needs),
    ];
    let trial = |(name, promise): (&str, fn())| {
        Trial::test(format!("recipe::{name}"), move || {
            promise();
            Ok(())
        })
    };
    promises.into_iter().map(trial).collect()
}

fn parse(text: &str) -> Result<Recipe, RecipeErrors> {
    Recipe::parse("mine", "mine.toml", text)
}

fn valid(text: &str) -> Recipe {
    parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// `line:column: message` of each.
fn mistakes(text: &str) -> Vec<String> {
    let Err(errors) = parse(text) else { panic!("this is valid: {text}") };
    errors.0.iter().map(|error| format!("{}:{}: {}", error.line, error.column, error.message)).collect()
}

const WHOLE: &str = r#"
description = "Everything"

[steps.film]
kind = "hls"
with = { ladder = { heights = [720, 360] }, packaging = ["dash"] }
lane = "gpu"
priority = 90
attempts = 2

[steps.file]
kind = "mp4"
needs = ["film"]
enabled = false

[steps.stills]
kind = "pictures"
with.poster = { long_side = 640 }

[steps.captions]
kind = "exec"
needs = ["film"]
required = false
[steps.captions.with]
command = ["/usr/bin/captions", "--quiet"]
network = true
reads = ["/srv/models"]
timeout_ms = 5000
params = { language = "de" }
"#;

fn a_recipe_says_what_each_step_does() {
    let recipe = valid(WHOLE);

    assert_eq!((recipe.name.as_str(), recipe.description.as_str()), ("mine", "Everything"));
    let film = recipe.step("film").unwrap();
    let Does::Hls(spec) = &film.does else { panic!("{film:?}") };
    assert_eq!(
        (&spec.ladder, &spec.packaging[..]),
        (&Ladder::Heights(vec![720, 360]), &[Packaging::Dash][..])
    );
    assert_eq!((film.lane.as_deref(), film.priority, film.attempts), (Some("gpu"), Some(90), Some(2)));
    assert!(film.required && film.enabled);
    let file = recipe.step("file").unwrap();
    assert!(file.required && !file.enabled);
    assert_eq!(recipe.segments_for(file).map(|film| film.name.as_str()), Some("film"));
    assert!(
        !recipe.step("stills").unwrap().required,
        "pictures are optional unless the recipe says otherwise"
    );
    let Does::Exec(exec) = &recipe.step("captions").unwrap().does else { panic!("{recipe:?}") };
    assert_eq!((exec.timeout_ms, exec.network, &exec.params["language"]), (5000, true, &json!("de")));
    let enabled: Vec<&str> = recipe.enabled_steps().map(|step| step.name.as_str()).collect();
    assert_eq!(enabled, ["film", "stills", "captions"]);
}

fn steps_stand_behind_what_they_need() {
    let recipe = valid(
        "steps.z = { kind = \"mp4\", needs = [\"c\"] }\nsteps.b = { kind = \"image\" }\n\
         steps.c = { kind = \"hls\", needs = [\"a\"] }\nsteps.a = { kind = \"audio\" }\n",
    );

    let order: Vec<&str> = recipe.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(order, ["b", "a", "c", "z"]);
}

fn each_mistake_is_told_with_its_place() {
    let long_name = format!("steps.{} = {{ kind = \"hls\" }}", "a".repeat(41));
    for (text, told) in [
        ("", "1:1: a recipe has at least one step"),
        (
            "descripton = \"x\"\nsteps.a.kind = \"hls\"",
            "1:1: unknown key `descripton`; did you mean `description`?",
        ),
        ("description = 3\nsteps.a.kind = \"hls\"", "1:15: `description` is a text"),
        ("steps = 3", "1:9: `steps` is a table of steps"),
        ("steps.a = 3", "1:11: a step is a table"),
        ("[steps.a]", "1:8: `kind` is missing; known are hls, mp4"),
        ("[steps.a]\nkind = 3", "2:8: `kind` is one of hls, mp4"),
        ("[steps.a]\nkind = \"hsl\"", "2:8: unknown kind `hsl`; did you mean `hls`?"),
        (
            "[steps.a]\nkind = \"hls\"\nrequires = true",
            "3:1: unknown key `requires`; did you mean `required`?",
        ),
        ("[steps.a]\nkind = \"hls\"\nrequired = \"yes\"", "3:12: `required` is true or false"),
        ("[steps.a]\nkind = \"hls\"\nenabled = 1", "3:11: `enabled` is true or false"),
        ("[steps.a]\nkind = \"hls\"\nenabled = false", "3:11: no step of this recipe is enabled"),
        ("[steps.a]\nkind = \"hls\"\nfor = 3", "3:7: `for` is image, video or audio, or a list of them"),
        ("[steps.a]\nkind = \"hls\"\nfor = []", "3:7: `for` is image, video or audio, or a list of them"),
        (
            "[steps.a]\nkind = \"hls\"\nfor = \"vidoe\"",
            "3:7: an input is image, video or audio, not `vidoe`; did you mean `video`?",
        ),
        ("[steps.a]\nkind = \"hls\"\nfor = [\"audio\", \"audio\"]", "3:17: `audio` is there twice"),
        (
            "[steps.a]\nkind = \"hls\"\nfor = \"video\"\n[steps.b]\nkind = \"mp4\"\nneeds = [\"a\"]",
            "6:10: `b` needs `a`, which is done with video only: say `for = [\"video\"]` here too",
        ),
        ("[steps.a]\nkind = \"hls\"\nlane = \"CPU\"", "3:8: `lane` is a short lower-case word"),
        ("[steps.a]\nkind = \"hls\"\npriority = 101", "3:12: `priority` is a whole number of 0 to 100"),
        ("[steps.a]\nkind = \"hls\"\nattempts = 0", "3:12: `attempts` is a whole number of 1 to 100"),
        ("[steps.a]\nkind = \"hls\"\nneeds = \"b\"", "3:9: `needs` is a list of steps"),
        ("[steps.a]\nkind = \"hls\"\nneeds = [1]", "3:10: a need is the name of a step"),
        (
            "[steps.film]\nkind = \"hls\"\n[steps.b]\nkind = \"audio\"\nneeds = [\"flim\"]",
            "5:10: no step is called `flim`; did you mean `film`?",
        ),
        (
            "[steps.film]\nkind = \"hls\"\n[steps.b]\nkind = \"audio\"\nneeds = [\"film\", \"film\"]",
            "5:18: `film` is needed twice",
        ),
        (
            "[steps.a]\nkind = \"hls\"\nneeds = [\"a\"]",
            "3:10: steps that need each other never start: a needs a",
        ),
        (
            "[steps.a]\nkind = \"hls\"\nneeds = [\"b\"]\n[steps.b]\nkind = \"audio\"\nneeds = [\"c\"]\n\
             [steps.c]\nkind = \"audio\"\nneeds = [\"b\"]",
            "6:10: steps that need each other never start: b needs c needs b",
        ),
        ("[steps.Film]\nkind = \"hls\"", "1:8: the name `Film` is not made of 1 to 40 of a-z, 0-9 and -"),
        (&long_name, "1:7: the name `aaaa"),
        ("[steps.source]\nkind = \"hls\"", "1:8: the name `source` is reserved"),
        ("[steps.publish]\nkind = \"hls\"", "1:8: the name `publish` is reserved"),
        ("[steps.a]\nkind = \"hls\"\n[steps.a]\nlane = \"io\"", "3:8: `a` is there twice"),
        ("[steps.a]\nkind = = \"hls\"", "2:8: not TOML: "),
        ("[steps.a]\nkind = \"hls\"\nwith = 3", "3:8: `with` is a table of what the kind `hls` takes"),
        (
            "[steps.a]\nkind = \"hls\"\nwith = { segment_secnods = 4 }",
            "3:10: unknown key `segment_secnods`; did you mean `segment_seconds`?",
        ),
        (
            "[steps.a]\nkind = \"hls\"\n[steps.a.with]\nsegment_seconds = \"4\"",
            "4:19: this is the wrong type: string \"4\", expected a whole number of 0 or more",
        ),
        (
            "[steps.a]\nkind = \"hls\"\nwith.codec = \"h246\"",
            "3:14: unknown value `h246`; did you mean `h264`?",
        ),
        ("[steps.a]\nkind = \"hls\"\nwith.segment_seconds = 60", "3:24: `segment_seconds`: 1 to 20"),
        ("[steps.a]\nkind = \"hls\"\nwith.packaging = []", "3:18: `packaging`: name `hls`, `dash` or both"),
        (
            "[steps.a]\nkind = \"hls\"\nwith.mp4 = true",
            "3:6: `mp4` does not belong here: an MP4 is a step of its own",
        ),
        (
            "[steps.a]\nkind = \"mp4\"\nwith.packaging = [\"hls\"]",
            "3:6: `packaging` does not belong here: this step makes one file",
        ),
        (
            "[steps.a]\nkind = \"audio\"\nwith.formats = [{ codec = \"aac\" }, { codec = \"mp3\", kbits = 9 }]",
            "3:61: `formats.kbits`: 16 to 512",
        ),
        (
            "[steps.a]\nkind = \"image\"\n[[steps.a.with.variants]]\nformats = [\"jpeg\"]\n\
             [[steps.a.with.variants]]\nformats = [\"jpeg\"]\nquality = 0",
            "7:11: `variants.quality`: 1 to 100",
        ),
        ("[steps.a]\nkind = \"exec\"", "1:8: `command` is missing"),
        ("[steps.a]\nkind = \"exec\"\nwith.command = []", "3:16: `command`: name the program"),
        (
            "[steps.a]\nkind = \"exec\"\nwith = { command = [\"x\"], reads = [\"models\"] }",
            "3:36: `reads`: absolute paths only",
        ),
        (
            "[steps.a]\nkind = \"hls\"\n[steps.b]\nkind = \"mp4\"\nneeds = [\"a\"]\nwith = { crf = 20 }",
            "6:1: an mp4 step takes nothing here when it joins the segments",
        ),
        (
            "[steps.a]\nkind = \"hls\"\n[steps.b]\nkind = \"hls\"\n[steps.c]\nkind = \"mp4\"\nneeds = [\"a\", \"b\"]",
            "7:15: `c` takes its film from one step of kind `hls`, not from two",
        ),
        (
            "[steps.a]\nkind = \"hls\"\nenabled = false\n[steps.b]\nkind = \"mp4\"\nneeds = [\"a\"]",
            "6:10: `b` is enabled and needs `a`, which is not",
        ),
        (
            "[steps.a]\nkind = \"pictures\"\n[steps.b]\nkind = \"exec\"\nneeds = [\"a\"]\nwith.command = [\"x\"]",
            "5:10: `b` is required and needs `a`, which is optional",
        ),
    ] {
        let found = mistakes(text);
        assert_eq!(found.len(), 1, "{text}\n{found:#?}");
        assert!(found[0].starts_with(told), "{text}\nexpected {told}\nfound    {}", found[0]);
    }
}

fn the_line_is_shown_and_pointed_at() {
    let text = "# é\n[steps.a]\n\tkind = \"hsl\" # sic\n";

    let told = parse(text).unwrap_err().to_string();

    let expected = "mine.toml:3:9: unknown kind `hsl`; did you mean `hls`?\n\
                    \x20 3 |  kind = \"hsl\" # sic\n\
                    \x20   |         ^^^^^";
    assert_eq!(told, expected);
}

fn all_mistakes_are_told_at_once() {
    let text = "descripton = \"x\"\n\
                [steps.Film]\nkind = \"hsl\"\nneeds = [\"audoi\"]\n\
                [steps.audio]\nkind = \"audio\"\npriority = 200\n\
                with = { formats = [{ codec = \"flac\" }], loudnes = \"keep\", waveform_points_per_second = 0 }\n\
                [steps.x]\nkind = \"image\"\nneeds = [\"y\"]\n[steps.y]\nkind = \"image\"\nneeds = [\"x\"]\n";

    let found = mistakes(text);

    let places: Vec<&str> = found.iter().map(|it| it.split(": ").next().unwrap()).collect();
    let expected = ["1:1", "2:8", "3:8", "4:10", "7:12", "8:31", "8:42", "8:89", "11:10"];
    assert_eq!(places, expected, "{found:#?}");
}

fn a_recipe_written_out_reads_the_same() {
    let built_in = Recipes::built_in();
    let recipes = built_in.listed().map(|listed| listed.recipe.clone().unwrap()).chain([valid(WHOLE)]);

    for recipe in recipes {
        let text = recipe.to_toml();
        let read = Recipe::parse(&recipe.name, "written.toml", &text);
        assert_eq!(read.unwrap_or_else(|errors| panic!("{errors}\n{text}")), recipe, "{text}");
    }
}

fn a_recipe_survives_being_stored() {
    let recipe = valid(WHOLE);

    let stored = serde_json::to_string(&recipe).unwrap();

    assert_eq!(serde_json::from_str::<Recipe>(&stored).unwrap(), recipe, "{stored}");
}

fn params(json: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(json).unwrap()
}

fn web_video() -> Recipe {
    Recipes::built_in().get("web-video").unwrap().clone()
}

fn params_change_values_of_steps() {
    let changes = json!({
        "hls": {"ladder": {"heights": [720]}, "crf": 30},
        "pictures": {"poster": {"long_side": 320}, "preview": null},
        "mp4": {"enabled": true},
    });

    let changed = web_video().with_params(&params(changes)).unwrap();

    let Does::Hls(spec) = &changed.step("hls").unwrap().does else { panic!("{changed:?}") };
    assert_eq!((&spec.ladder, spec.crf), (&Ladder::Heights(vec![720]), Some(30)));
    assert_eq!(spec.packaging.len(), 2, "what was not named stays");
    let Does::Pictures(spec) = &changed.step("pictures").unwrap().does else { panic!("{changed:?}") };
    assert_eq!(spec.poster.as_ref().map(|poster| poster.long_side), Some(320));
    assert!(spec.preview.is_none() && spec.storyboard.is_some());
    assert!(changed.step("mp4").unwrap().enabled);
    assert_eq!(web_video().with_params(&BTreeMap::new()).unwrap(), web_video());
}

fn settings_are_params() {
    let settings = [
        "hls.ladder.heights=[720]",
        "hls.crf = 30",
        "hls.codec=h265",
        "pictures.preview=null",
        "pictures.poster={ long_side = 320 }",
        "pictures.poster.at_ms=1_000",
        "mp4.enabled=true",
    ];

    let read = parse_params(&settings).unwrap();

    let expected = json!({
        "hls": {"ladder": {"heights": [720]}, "crf": 30, "codec": "h265"},
        "pictures": {"preview": null, "poster": {"long_side": 320, "at_ms": 1000}},
        "mp4": {"enabled": true},
    });
    assert_eq!(read, params(expected));
    assert!(web_video().with_params(&read).is_ok());
}

fn settings_that_mean_nothing_are_refused() {
    let errors =
        parse_params(&["hls", "crf=3", "hls..crf=3", "hls.ladder=[7", "hls.crf=", "hls.crf=3"]).unwrap_err();

    let told: Vec<String> =
        errors.0.iter().map(|error| format!("{}: {}", error.path, error.message)).collect();
    assert_eq!(told.len(), 5, "{told:#?}");
    assert!(told[0].starts_with("hls: a setting is STEP.KEY=VALUE"), "{told:#?}");
    assert!(told[1].starts_with("crf: a setting names a step and a key"), "{told:#?}");
    assert!(told[3].starts_with("hls.ladder: `[7` is neither a word nor a TOML value"), "{told:#?}");
}

fn wrong_params_are_told_with_the_nearest_name() {
    let wrong = json!({
        "hsl": {"crf": 30},
        "hls": {"laddr": "auto", "crf": "low", "segment_seconds": 100, "ladder": {"heights": [720, "x"]}},
        "pictures": {"poster": {"long_sied": 3}, "enabled": "no"},
        "mp4": 3,
    });

    let errors = web_video().with_params(&params(wrong)).unwrap_err();

    let told = errors.to_string();
    for line in [
        "hsl: the recipe `web-video` has no such step; did you mean `hls`?",
        "hls.laddr: unknown key `laddr`; did you mean `ladder`?",
        "hls.crf: this is the wrong type: string \"low\", expected a whole number of 0 to 255",
        "hls.segment_seconds: 1 to 20",
        "hls.ladder.heights[1]: this is the wrong type: string \"x\", expected a whole number of 0 or more",
        "pictures.poster.long_sied: unknown key `long_sied`; did you mean `long_side`?",
        "pictures.enabled: this is true or false",
        "mp4: a step's values are an object",
    ] {
        assert!(told.lines().any(|told| told.starts_with(line)), "{line} is not in\n{told}");
    }
    assert_eq!(errors.0.len(), 8, "{told}");
}

fn params_gain_nothing_that_only_the_author_has() {
    let recipe = valid(
        "[steps.hls]\nkind = \"hls\"\nwith.watermark = { image = \"/srv/logo.png\" }\n\
         [steps.mp4]\nkind = \"mp4\"\nneeds = [\"hls\"]\n\
         [steps.check]\nkind = \"exec\"\nwith = { command = [\"/usr/bin/check\"], params = { level = 1 } }\n",
    );
    let refused = |json: Value| recipe.with_params(&params(json)).unwrap_err().to_string();

    for key in [
        json!({"command": ["/bin/sh"]}),
        json!({"network": true}),
        json!({"reads": ["/"]}),
        json!({"timeout_ms": 1}),
    ] {
        let told = refused(json!({ "check": key }));
        assert!(told.contains("only `params` can be set"), "{told}");
    }
    let told = refused(json!({"hls": {"watermark": {"image": "/etc/passwd"}}}));
    assert_eq!(told, "hls.watermark.image: only the recipe can name a file of this machine");
    let told = refused(json!({"check": {"enabled": false}}));
    assert!(told.contains("the recipe requires this step"), "{told}");
    let told = refused(json!({"mp4": {"crf": 20}}));
    assert!(told.contains("set hls.crf"), "{told}");
    let told = refused(json!({"hls": {"mp4": true}}));
    assert!(told.contains("an MP4 is a step of its own"), "{told}");

    let allowed = json!({"check": {"params": {"level": 2}}, "hls": {"watermark": {"corner": "top_left"}}});
    let changed = recipe.with_params(&params(allowed)).unwrap();
    let Does::Exec(exec) = &changed.step("check").unwrap().does else { panic!("{changed:?}") };
    assert_eq!(exec.params["level"], 2);
}

fn what_a_run_enables_has_what_it_needs() {
    let recipe = valid(
        "[steps.hls]\nkind = \"hls\"\n[steps.extra]\nkind = \"pictures\"\nenabled = false\n\
         [steps.more]\nkind = \"exec\"\nneeds = [\"extra\"]\nrequired = false\nenabled = false\nwith.command = [\"x\"]\n",
    );

    let refused = recipe.with_params(&params(json!({"more": {"enabled": true}}))).unwrap_err().to_string();
    let accepted =
        recipe.with_params(&params(json!({"more": {"enabled": true}, "extra": {"enabled": true}})));

    assert_eq!(refused, "more.enabled: it needs `extra`, which is not enabled: set extra.enabled too");
    assert_eq!(accepted.unwrap().enabled_steps().count(), 3);
}
