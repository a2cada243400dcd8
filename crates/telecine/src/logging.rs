//! Logs, always on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::Log;
use crate::output::Talk;

/// Sets up the log of this process. The filter is the configured one, else `RUST_LOG`, else `otherwise`.
pub(crate) fn start(log: &Log, otherwise: &str) {
    let filter = log
        .filter
        .clone()
        .or_else(|| std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty()))
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(otherwise));
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Talk);
    if log.json {
        subscriber.json().init();
    } else {
        subscriber.with_ansi(std::io::stderr().is_terminal() && !no_colour).init();
    }
}
