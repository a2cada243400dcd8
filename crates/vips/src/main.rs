//! Turns one picture into its variants with libvips, in a process of its own.
//!
//! ```text
//! telecine-vips JOB      a telecine_media::VipsJob as JSON; output files go to the working directory
//! ```
//! It answers with a `VipsAnswer` as JSON on stdout and exits with 0, also when the input is refused. Any other exit
//! code means that it failed for a reason that is not the input's.
//!
//! The header is looked at first, and the limits are checked on it. Then the picture is decoded once, as small as the
//! largest variant allows, and the variants are made from it, largest first.

#![deny(unsafe_code)]

mod failure;
mod frames;
mod load;
mod make;
mod save;
mod thumbhash;
mod webp;

use std::process::ExitCode;

use rs_vips::Vips;
use telecine_media::{VipsAnswer, VipsJob};

use failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let text = std::env::args().nth(1).ok_or("usage: telecine-vips JOB")?;
    let job: VipsJob = serde_json::from_str(&text).map_err(|error| format!("the job: {error}"))?;
    Vips::init("telecine-vips").map_err(|error| error.to_string())?;
    // Nothing is asked for twice, so a cache of results would only keep memory.
    Vips::cache_set_max(0);
    Vips::concurrency_set(i32::try_from(job.threads).unwrap_or(1).clamp(1, 8));
    let answer = match make::all(&job) {
        Ok(set) => VipsAnswer::Made(set),
        Err(Failure::Input { why, detail }) => VipsAnswer::Refused { why, detail },
        Err(Failure::Ours(what)) => return Err(what),
    };
    serde_json::to_string(&answer).map_err(|error| error.to_string())
}
