//! `telecine doctor`: what this machine offers, and what to do about what it does not.

mod brokers;
mod machine;
mod media;
mod scanner;
mod space;

use anyhow::Result;
use serde::Serialize;
use telecine_queue::pending_migrations;

use crate::config::Config;
use crate::output::{Answer, Output, Paint, say};
use crate::table::{Cell, Table};

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was seen.
    detail: String,
    /// What to do about it; `None` when all is well.
    next: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// Some work cannot be done here, or is less well guarded.
    Warn,
    /// Telecine cannot do its work here.
    Fail,
}

#[derive(Debug, Serialize)]
struct Findings {
    ok: bool,
    checks: Vec<Check>,
}

/// Works with a broken configuration too: that is one of the things it finds.
pub(super) async fn run(config: Result<Config>, output: &Output) -> Result<Answer> {
    let mut checks = vec![configuration(&config)];
    let config = config.ok();
    let sandbox = config.as_ref().is_none_or(|config| config.sandbox);
    checks.extend(media::checks(sandbox).await);
    checks.extend(machine::checks());
    if let Some(config) = &config {
        checks.push(space::scratch(config));
        checks.push(space::store(config).await);
        checks.push(database(config).await);
        checks.extend(scanner::check(config).await);
        checks.extend(brokers::check(config).await);
    }
    let findings = Findings { ok: checks.iter().all(|check| check.state != State::Fail), checks };
    show(&findings, output)?;
    Ok(if findings.ok { Answer::Yes } else { Answer::No })
}

fn configuration(config: &Result<Config>) -> Check {
    match config {
        Ok(_) => Check::ok("configuration", "it holds together"),
        Err(error) => {
            Check::fail("configuration", format!("{error:#}"), "correct it: `telecine config show`")
        }
    }
}

async fn database(config: &Config) -> Check {
    let shown = config.database_shown();
    match pending_migrations(&config.database).await {
        Ok(pending) if pending.is_empty() => {
            Check::ok("database", format!("{shown}, its schema is up to date"))
        }
        Ok(pending) => Check::warn(
            "database",
            format!("{shown} lacks {} of its schema", crate::human::count(pending.len() as u64, "migration")),
            "`telecine migrate`, or start a worker, which does it too",
        ),
        Err(error) => Check::fail(
            "database",
            format!("{shown}: {error}"),
            "check that it is up and that the URL is right: `telecine config show`",
        ),
    }
}

fn show(findings: &Findings, output: &Output) -> Result<()> {
    if output.json {
        return output.print_json(findings);
    }
    let mut table = Table::new(["CHECK", "STATE", "FOUND"]);
    for check in &findings.checks {
        table.row([
            check.name.into(),
            Cell::painted(check.state.name(), check.state),
            check.detail.clone().into(),
        ]);
    }
    output.print(&table.draw(output.colour))?;
    for check in &findings.checks {
        if let Some(next) = &check.next {
            say(format_args!("{} {}: {next}", check.state.name(), check.name));
        }
    }
    Ok(())
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Ok, detail: detail.into(), next: None }
    }

    fn warn(name: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: State::Warn, detail: detail.into(), next: Some(next.into()) }
    }

    fn fail(name: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state: State::Fail, detail: detail.into(), next: Some(next.into()) }
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl From<State> for Paint {
    fn from(state: State) -> Self {
        match state {
            State::Ok => Self::Green,
            State::Warn => Self::Yellow,
            State::Fail => Self::Red,
        }
    }
}
