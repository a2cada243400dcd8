//! `telecine counts`.

use std::collections::BTreeMap;

use anyhow::Result;
use telecine_queue::{Count, JobState};

use super::{Schema, open};
use crate::config::Config;
use crate::output::{Answer, List, Output, say};
use crate::table::{Cell, Table};

pub(super) async fn run(config: &Config, output: &Output) -> Result<Answer> {
    let counts = open(config, Schema::AsItIs).await?.counts().await?;
    if output.json {
        output.print_json(&List::whole(counts))?;
    } else if counts.iter().all(|count| count.jobs == 0) {
        say("there are no jobs");
    } else {
        output.print(&draw(&counts).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

/// A row per lane and kind, a column per state that occurs.
fn draw(counts: &[Count]) -> Table {
    let seen = |state: &JobState| counts.iter().any(|count| count.state == *state && count.jobs > 0);
    let states: Vec<JobState> = JobState::ALL.into_iter().filter(seen).collect();
    let mut rows: BTreeMap<(&str, &str), BTreeMap<JobState, u64>> = BTreeMap::new();
    for count in counts.iter().filter(|count| count.jobs > 0) {
        *rows.entry((&count.lane, &count.kind)).or_default().entry(count.state).or_default() += count.jobs;
    }

    let mut header = vec!["LANE", "KIND"];
    header.extend(states.iter().map(|state| state.as_str()));
    let mut table = Table::new(header);
    for ((lane, kind), jobs) in rows {
        let mut row: Vec<Cell> = vec![lane.into(), kind.into()];
        row.extend(states.iter().map(|state| match jobs.get(state) {
            Some(jobs) => Cell::painted(jobs, *state),
            None => "-".into(),
        }));
        table.row(row);
    }
    table
}
