//! deploy/ agrees with the program. Whether its files are valid is for scripts/check-deploy to say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::telecine::Place;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn texts() -> Vec<(PathBuf, String)> {
    let mut folders = vec![root().join("deploy")];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => texts.push((path.clone(), std::fs::read_to_string(path).unwrap())),
            }
        }
    }
    texts
}

#[test]
fn every_setting_in_deploy_is_one_of_ours() {
    let place = Place::new();
    let shown = place.json(&["config", "show"]);
    let known: BTreeSet<String> = shown["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|setting| format!("TELECINE_{}", setting["key"].as_str().unwrap().to_uppercase()))
        .chain(["TELECINE_CONFIG".to_owned()])
        .collect();

    let mut seen = 0;
    for (path, text) in texts() {
        for word in text.split(|c: char| !(c.is_ascii_uppercase() || c == '_')) {
            if word.starts_with("TELECINE_") {
                assert!(known.contains(word), "{}: {word}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_configuration_in_deploy_holds_together() {
    let place = Place::new();
    let file = root().join("deploy/telecine.toml");

    let shown = place.run(&["config", "show", "--config", file.to_str().unwrap()]);

    assert_eq!(shown.code, Some(0), "{shown:?}");
}

/// Whatever .dockerignore lets through is a workspace that can be built.
#[test]
fn the_build_of_an_image_has_all_it_reads() {
    let text = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let let_through: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(text.lines().any(|line| line == "*"), "all else is left out");
    let context = tempfile::tempdir().unwrap();
    for name in &let_through {
        let copied =
            Command::new("cp").arg("-r").arg(root().join(name)).arg(context.path()).status().unwrap();
        assert!(copied.success(), "{name}");
    }

    let read = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(context.path())
        .output()
        .unwrap();

    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    for (_, path) in included(&context.path().join("crates")) {
        assert!(path.starts_with(context.path()) && path.exists(), "{}", path.display());
    }
}

/// Files that sources of the program name with `include_str!`.
fn included(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // No tests are built into an image.
            if path.file_name().is_none_or(|name| name != "tests") {
                found.extend(included(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("include_str!(\"..").skip(1) {
                let name = format!("..{}", part.split('"').next().unwrap());
                let file = path.parent().unwrap().join(name);
                found.push((path.clone(), file.canonicalize().unwrap_or(file)));
            }
        }
    }
    found
}
