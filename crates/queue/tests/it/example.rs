//! The example on the crate's front page does what it says.

use std::process::Command;

use libtest_mimic::Trial;

use crate::ground::{Database, Ground};
use crate::postgres_server::PostgresServer;

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let on = |database: Database| {
        let server = server.clone();
        Trial::test(format!("{}::the_example_runs", database.name()), move || {
            the_example_runs(&Ground::new(database, &server));
            Ok(())
        })
    };
    Database::ALL.map(on).into()
}

fn the_example_runs(ground: &Ground) {
    // `cargo test` builds examples beside the tests: target/<profile>/examples and target/<profile>/deps.
    let tests = std::env::current_exe().expect("our own path");
    let example = tests.ancestors().nth(2).expect("target/<profile>").join("examples/thumbnails");

    let ran = Command::new(&example).env("DATABASE_URL", &ground.url).output().unwrap_or_else(|error| {
        panic!("{} (build it with `cargo build --examples`): {error}", example.display())
    });

    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "10 completed\n");
}
