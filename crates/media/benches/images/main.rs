//! Figures of picture variants and of pictures of a video, each against a yardstick in the same run.
//!
//! ```text
//! cargo bench -p telecine-media --bench images
//! ```
//! Prints a table and puts the figures into `bench/results.json`, where entries of the same name are replaced.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark that cannot go on has failed"
)]

mod figure;
mod film;
mod ground;
mod variants;

#[tokio::main]
async fn main() {
    let ground = ground::Ground::prepare();
    let mut figures = variants::figures(&ground).await;
    figures.extend(film::figures(&ground).await);
    figure::print_table(&figures);
    figure::write_json(&figures);
}
