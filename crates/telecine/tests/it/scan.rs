//! A virus scanner as an operator configures it.

use crate::clamd_server::{ClamdServer, STREAM_MB, eicar};
use crate::clips;
use crate::telecine::Place;

fn check(found: &serde_json::Value) -> &serde_json::Value {
    let checks = found["checks"].as_array().expect("checks are listed");
    checks.iter().find(|check| check["name"] == "clamd").unwrap_or_else(|| panic!("{found}"))
}

fn configured(place: &Place, server: &ClamdServer, more: &str) {
    place.write("telecine.toml", &format!("clamd = \"{}\"\n{more}", server.by_unix().address));
}

#[test]
fn the_doctor_asks_the_scanner_and_says_what_it_takes() {
    let (place, mut server) = (Place::new(), ClamdServer::start());
    configured(&place, &server, &format!("clamd_max_mb = {STREAM_MB}"));
    let well = place.json(&["doctor"]);
    configured(&place, &server, &format!("clamd_max_mb = {}", STREAM_MB + 1));
    let less = place.json(&["doctor"]);
    server.stop();
    let away = place.json_of(&["doctor"], 1);

    let (well, less, away) = (check(&well), check(&less), check(&away));
    assert_eq!(well["state"], "ok", "{well}");
    assert!(well["detail"].as_str().is_some_and(|detail| detail.contains("ClamAV 1.")), "{well}");
    assert_eq!(less["state"], "warn", "{less}");
    assert!(less["next"].as_str().is_some_and(|next| next.contains("StreamMaxLength")), "{less}");
    assert_eq!(away["state"], "fail", "{away}");
}

#[test]
fn an_infected_file_is_refused_by_a_command_without_a_server() {
    let (place, server) = (Place::new(), ClamdServer::start());
    configured(&place, &server, "");
    let film = place.path("film.mp4");
    clips::film(1, &film);
    let mut bytes = std::fs::read(&film).expect("the film is there");
    bytes.extend(eicar());
    std::fs::write(&film, bytes).expect("a file can be written");

    let ended = place.run(&["run", "film.mp4", "--recipe", "thumbnail", "--out", "out", "--quiet"]);

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(format!("{}{}", ended.stdout, ended.stderr).contains("infected"), "{ended:?}");
}

#[test]
fn a_recipe_that_requires_a_scan_is_not_submitted_without_a_scanner() {
    let place = Place::new();
    place.write("strict.toml", "scan = \"required\"\n[steps.image]\nkind = \"image\"\n");
    place.write("a.png", "");
    place.write("telecine.toml", &format!("input_folders = [{:?}]", place.path("")));

    let ended = place.run(&["submit", "a.png", "--recipe", "./strict.toml"]);

    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("scan_unavailable") && ended.stderr.contains("clamd"), "{ended:?}");
}
