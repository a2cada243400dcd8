//! `exec`: a program of the user's own, confined; JSON and files in, JSON and files out.
//!
//! ```text
//!   work/            where the program begins, and the only place it may write to
//!     input.json     what there is to do; the same is on its stdin
//!     out/           for the files that it makes
//!   needs/STEP/…     files of the steps that it needs, where the store is a bucket; in a folder they stay where they are
//! ```
//! The recipe, and so the command, is the server's own; what the program reads is a stranger's. So whatever it leaves is
//! looked at as if it came from one.

mod answer;
mod given;
mod made;
mod program;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use telecine_media::{Finished, Input, InputProblem, MediaError, Output, ToolLimits, UserProgram};

use super::{Attempt, StepPayload, Work};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::recipe::{Does, ExecSpec};

use answer::Answer;
use given::Given;

pub use program::NoProgram;
pub(crate) use program::find_program;

/// What a program may say on stdout: as much as a record can hold.
const ANSWER_BYTES: usize = 256 << 10;
/// EX_TEMPFAIL of sysexits.h.
const TRY_AGAIN: i32 = 75;
const IN: &str = "input.json";
const OUT: &str = "out";

pub(super) struct Exec;

#[async_trait]
impl Work for Exec {
    /// Longer than any recipe can ask for: the program has a limit of its own.
    fn timeout(&self) -> Duration {
        Duration::from_hours(25)
    }

    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let meta = attempt.meta().await?;
        let step = meta.recipe.step(&step).ok_or_else(|| Failed::unexpected("the step is gone"))?;
        let Does::Exec(spec) = &step.does else {
            return Err(Failed::unexpected("the step runs no program"));
        };
        let work = attempt.subfolder("work")?;
        let given = Given::gather(attempt, step, spec).await?;
        let finished = run(attempt, spec, &given, &work).await?;
        let answer = judged(finished)?;
        made::publish(attempt, &step.name, &work.join(OUT), answer).await
    }
}

async fn run(attempt: &Attempt<'_>, spec: &ExecSpec, given: &Given, work: &Path) -> Attempted<Finished> {
    let program = find_program(&spec.command)?;
    let stdin = prepared(work, given).map_err(|error| scratch_failed("the program has no folder", &error))?;
    let shop = attempt.shop;
    let own = program::own_folder(&program);
    let may =
        UserProgram { network: spec.network, executable: own.iter().chain(&spec.reads).cloned().collect() };
    let limits = ToolLimits {
        wall: Duration::from_millis(spec.timeout_ms),
        file_size_bytes: Some(shop.limits.file_bytes),
        ..ToolLimits::default()
    };
    let tool = attempt
        .toolbox
        .user_program(&program, may, "exec")
        .args(&spec.command[1..])
        .env("PATH", program::search_path(own.as_deref()))
        .scratch(work)
        .stdin(Input::From(stdin.into()))
        .stdout(Output::Capture { max_bytes: ANSWER_BYTES })
        .limits(limits);
    let readable = given.readable().iter().cloned().chain(program::named_files(&spec.command));
    let tool = readable.fold(tool, |tool, path| tool.readable(path));
    let on_progress = |progress: telecine_media::Progress| {
        if let Some(fraction) = progress.fraction {
            attempt.context.progress(fraction.into());
        }
    };
    let running = tool.start(&attempt.cancel)?;
    running.finish_watched(&on_progress).await.map_err(of_program)
}

/// The folder as the program finds it.
fn prepared(work: &Path, given: &Given) -> std::io::Result<File> {
    std::fs::create_dir(work.join(OUT))?;
    std::fs::write(work.join(IN), given.document())?;
    File::open(work.join(IN))
}

/// What the end of a program means that did not end by itself.
fn of_program(error: MediaError) -> Failed {
    let refused = |code: &str, message: String, hint: &str| Failed {
        stderr_tail: error.stderr_tail().to_owned(),
        ..Failed::for_good(code, message, hint)
    };
    match &error {
        MediaError::BadInput { problem: InputProblem::TooLarge, .. } => refused(
            "exec_output_too_large",
            "the program wrote a larger file than is allowed".into(),
            "raise max_input_mb, or let the program write less",
        ),
        MediaError::BadInput { problem: InputProblem::Hostile, .. } => refused(
            "exec_answer_invalid",
            format!("the program wrote more than {ANSWER_BYTES} bytes to stdout"),
            "stdout is for one JSON object; put files into out/ and talk on stderr",
        ),
        _ => Failed::from(error),
    }
}

fn judged(finished: Finished) -> Attempted<Answer> {
    let Finished { exit_code, stdout, stderr_tail, .. } = finished;
    let said = format!("the program ended with exit code {exit_code}");
    let failed = match exit_code {
        0 => return Answer::parse(&stdout).map_err(|failed| Failed { stderr_tail, ..failed }),
        TRY_AGAIN => {
            Failed::for_now("exec_failed", format!("{said}: try again"), "see what it wrote to stderr")
        }
        // What a shell says, and the sandbox's launcher, where the interpreter of a script is out of reach.
        126 | 127 => Failed::for_good(
            "exec_failed",
            format!("{said}: something could not be started"),
            "what it starts must be in a system folder, beside the program or in `reads`; see its stderr",
        ),
        _ => Failed::for_good(
            "exec_failed",
            said,
            "see what it wrote to stderr; exit code 75 means: try again",
        ),
    };
    Err(Failed { stderr_tail, ..failed })
}
