//! `telecine schedules`.

use anyhow::Result;
use telecine_queue::{NewSchedule, Push, Schedule, Timestamp};

use super::jobs::new_job;
use super::{Schema, open};
use crate::cli::{SchedulesAdd, SchedulesCommand};
use crate::config::Config;
use crate::human;
use crate::output::{Answer, List, Output, say};
use crate::table::{Table, truncate};

pub(super) async fn run(command: SchedulesCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        SchedulesCommand::Ls => ls(config, output).await,
        SchedulesCommand::Add(flags) => add(*flags, config, output).await,
        SchedulesCommand::Rm { name } => rm(&name, config).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<Answer> {
    let schedules = open(config, Schema::AsItIs).await?.schedules().await?;
    if output.json {
        output.print_json(&List::whole(schedules))?;
    } else if schedules.is_empty() {
        say("there are no schedules\nnext: add one with `telecine schedules add NAME '*/5 * * * *' KIND`");
    } else {
        output.print(&draw(&schedules, Timestamp::now()).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

fn draw(schedules: &[Schedule], now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "CRON", "PUSHES", "MISSED", "NEXT", "LAST"]);
    for schedule in schedules {
        let kinds: Vec<&str> = schedule.push.jobs.iter().map(|job| job.kind.as_str()).collect();
        table.row([
            truncate(&schedule.name, 30).into(),
            truncate(&schedule.cron, 30).into(),
            truncate(&kinds.join(","), 40).into(),
            schedule.missed.to_string().into(),
            human::instant(schedule.next_at, now).into(),
            schedule.last_at.map_or_else(|| "-".into(), |at| human::instant(at, now)).into(),
        ]);
    }
    table
}

async fn add(flags: SchedulesAdd, config: &Config, output: &Output) -> Result<Answer> {
    let tenant = flags.job.tenant.clone().unwrap_or_default();
    let push = Push::from(new_job(flags.job)?).tenant(tenant);
    let schedule = NewSchedule::new(&flags.name, flags.cron, push).missed(flags.missed);
    let queue = open(config, Schema::Migrate).await?;
    queue.schedule(schedule).await?;
    let kept = queue.schedules().await?.into_iter().find(|schedule| schedule.name == flags.name);
    match kept {
        Some(kept) if output.json => output.print_json(&kept)?,
        Some(kept) => say(format_args!("schedule `{}` is next due at {}", kept.name, kept.next_at)),
        None => say(format_args!("schedule `{}` was removed by somebody else at once", flags.name)),
    }
    Ok(Answer::Yes)
}

async fn rm(name: &str, config: &Config) -> Result<Answer> {
    if open(config, Schema::AsItIs).await?.unschedule(name).await? {
        say(format_args!("schedule `{name}` is removed; what it pushed stays"));
        return Ok(Answer::Yes);
    }
    say(format_args!(
        "there is no schedule `{name}`\nnext: see which there are with `telecine schedules ls`"
    ));
    Ok(Answer::No)
}
