//! Logs, always on stderr.

use std::io::IsTerminal;

use telecine_server::Traces;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::Log;
use crate::output::Talk;

/// Sets up the log of this process. The filter is the configured one, else `RUST_LOG`, else `otherwise`. Traces have a
/// filter of their own: a quiet log does not make them poorer.
///
/// Whatever is said within a request or a job carries its ids, because it is said within its span.
pub(crate) fn start(log: &Log, otherwise: &str, traces: Option<&Traces>) {
    let filter = log
        .filter
        .clone()
        .or_else(|| std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty()))
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(otherwise));
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Talk);
    let lines = match log.json {
        true => lines.json().boxed(),
        false => lines.with_ansi(std::io::stderr().is_terminal() && !no_colour).boxed(),
    };
    let traces = traces.map(Traces::layer);
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).init();
}
