//! docs/runbook.md names commands, flags and figures that there are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::telecine::Place;

fn docs(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(file).unwrap()
}

/// What is written as code: in a line between backticks, and in blocks line by line.
fn code(text: &str) -> Vec<String> {
    let mut code = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        match number % 2 {
            1 => code
                .extend(part.lines().skip(1).map(|line| line.split(" #").next().unwrap_or(line).to_owned())),
            _ => code.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "))),
        }
    }
    code
}

#[test]
fn every_command_of_the_runbook_is_understood() {
    let place = Place::new();
    let mut seen = BTreeSet::new();
    for line in code(&docs("runbook.md")) {
        for part in line.split('|').map(str::trim) {
            let Some((_, arguments)) =
                part.split_once("telecine ").filter(|(before, _)| !before.contains('/'))
            else {
                continue;
            };
            let words: Vec<&str> = arguments.split_whitespace().collect();
            let is_word = |word: &&&str| {
                word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
            };
            let command: Vec<&str> = words.iter().take_while(is_word).take(2).copied().collect();

            let help = place.run(&[&command[..], &["--help"]].concat());

            assert_eq!(help.code, Some(0), "{part}: {help:?}");
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.stdout.contains(flag), "{part}: there is no {flag}");
            }
            seen.insert(command.join(" "));
        }
    }
    for expected in ["reconcile", "backup", "migrate", "runs retry", "limits ls", "workers ls", "doctor"] {
        assert!(seen.contains(expected), "{expected}: {seen:?}");
    }
}

#[test]
fn every_figure_of_the_runbook_is_explained() {
    let figures = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        words.filter(|word| word.starts_with("telecine_")).map(str::to_owned).collect()
    };
    let explained = figures(&docs("observability.md"));

    let unexplained: Vec<String> = figures(&docs("runbook.md")).difference(&explained).cloned().collect();

    assert_eq!(unexplained, Vec::<String>::new(), "docs/observability.md does not have them");
}

/// One heading for each of what operators meet, with all that they need.
#[test]
fn every_symptom_has_a_cause_a_figure_and_a_command() {
    let text = docs("runbook.md");
    let symptoms = text.split("\n## ").find(|part| part.starts_with("Symptoms")).unwrap();

    let symptoms: Vec<&str> = symptoms.split("\n### ").skip(1).collect();
    assert!(symptoms.len() >= 13, "{}", symptoms.len());
    for symptom in symptoms {
        let title = symptom.lines().next().unwrap();
        for part in ["- **Likely**", "- **Look at**", "- **Type**", "- **Do**"] {
            assert!(symptom.contains(part), "{title}: {part}");
        }
        assert!(symptom.contains("`telecine_") && symptom.contains("`telecine "), "{title}");
    }
}
