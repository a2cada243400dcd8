//! Figures of picture variants and of pictures of a video, each against a yardstick in the same run.
//!
//! ```text
//! cargo bench -p telecine-media --bench images [-- variants | film]
//! ```
//! Prints a table and puts the figures into `bench/results.json`, where entries of the same name are replaced.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark that cannot go on has failed"
)]

#[path = "../ladder/figure.rs"]
#[allow(dead_code, reason = "the ladder asks for more")]
mod figure;
mod film;
mod ground;
mod variants;

#[tokio::main]
async fn main() {
    let ground = ground::Ground::prepare();
    let sections: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| sections.is_empty() || sections.iter().any(|section| section == name);
    let mut figures = Vec::new();
    if is_wanted("variants") {
        figures.extend(variants::figures(&ground).await);
    }
    if is_wanted("film") {
        figures.extend(film::figures(&ground).await);
    }
    figure::print_table(&figures);
    figure::write_json(&figures);
}
