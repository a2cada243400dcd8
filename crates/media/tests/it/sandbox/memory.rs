//! How much memory a tool can get: as much as it was given, whatever it does, also where nobody gave it any.

use std::path::Path;

use telecine_media::{Confinement, Program, TOOL_MEMORY_BYTES, Tool, Toolbox};
use tokio_util::sync::CancellationToken;

use super::escape::{all_meet, hostile};
use super::{TESTBED, confinement};

const MEBIBYTE: u64 = 1 << 20;

fn greedy(confinement: Confinement, memory_bytes: u64, scratch: &Path) -> Tool {
    let toolbox =
        Toolbox::from_path(confinement).with(Program::Vips, TESTBED).with_memory_bytes(memory_bytes);
    let tool = toolbox.tool(Program::Vips, "greedy").unwrap();
    tool.args(["escape", "fill memory"]).scratch(scratch)
}

#[tokio::test]
async fn a_tool_that_takes_memory_without_end_is_stopped_at_its_bound() {
    let scratch = tempfile::tempdir().unwrap();
    for confinement in [confinement(), Confinement::None] {
        let tool = greedy(confinement.clone(), 200 * MEBIBYTE, scratch.path());

        let error = tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), ("out_of_memory", true), "{error}");
        let words = error.stderr_tail();
        let held = words.lines().filter_map(|line| line.strip_prefix("holds ")?.strip_suffix(" MiB"));
        let peak: u64 = held.filter_map(|number| number.parse().ok()).max().unwrap();
        assert!((128..200).contains(&peak), "{confinement:?}: {words}");
    }
}

#[tokio::test]
async fn memory_is_bounded_where_nobody_says_how_much() {
    let scratch = tempfile::tempdir().unwrap();
    let bound = TOOL_MEMORY_BYTES / MEBIBYTE;
    let [within, beyond] = [bound * 3 / 4, bound].map(|mebibytes| mebibytes.to_string());

    all_meet(scratch.path(), &[("take memory", &within, "open"), ("take memory", &beyond, "ENOMEM")]).await;
}

/// What is not counted as data is counted as address space: at most 12 GiB more.
#[tokio::test]
async fn memory_that_is_shared_or_hidden_is_bounded_too() {
    let scratch = tempfile::tempdir().unwrap();
    let beyond = (TOOL_MEMORY_BYTES / MEBIBYTE + (12 << 10)).to_string();

    all_meet(scratch.path(), &[("share memory", &beyond, "ENOMEM"), ("hide memory", &beyond, "ENOMEM")])
        .await;
}

#[tokio::test]
async fn a_tool_can_be_given_less_than_its_toolbox_has() {
    let scratch = tempfile::tempdir().unwrap();
    let limits = telecine_media::ToolLimits {
        memory_bytes: Some(100 * MEBIBYTE),
        ..telecine_media::ToolLimits::default()
    };

    let tool = hostile("fill memory", "", scratch.path()).limits(limits);
    let error = tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap_err();

    assert_eq!(error.code(), "out_of_memory", "{error}");
    assert!(!error.stderr_tail().contains("holds 112 MiB"), "{}", error.stderr_tail());
}
