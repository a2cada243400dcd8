//! `telecine tenants`.

use anyhow::Result;
use telecine_queue::{Queue, TenantPolicy, TenantState};

use super::{Schema, open};
use crate::cli::TenantsCommand;
use crate::config::Config;
use crate::output::{Answer, List, Output, say};
use crate::table::{Table, truncate};

pub(super) async fn run(command: TenantsCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        TenantsCommand::Ls => ls(config, output).await,
        TenantsCommand::Set { name, weight, max_running, no_max_running } => {
            let queue = open(config, Schema::Migrate).await?;
            let mut policy =
                policy_of(queue.as_ref(), &name).await?.unwrap_or_else(|| TenantPolicy::new(name));
            policy.weight = weight.unwrap_or(policy.weight);
            policy.max_running = if no_max_running { None } else { max_running.or(policy.max_running) };
            set(queue.as_ref(), policy).await
        }
        TenantsCommand::Rm { name } => rm(&name, config).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<Answer> {
    let tenants = open(config, Schema::AsItIs).await?.tenants().await?;
    if output.json {
        output.print_json(&List::whole(tenants))?;
    } else if tenants.is_empty() {
        say(
            "no tenant has a share or a cap of its own\nnext: set one with `telecine tenants set NAME --max-running 4`",
        );
    } else {
        output.print(&draw(&tenants).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

async fn policy_of(queue: &dyn Queue, name: &str) -> Result<Option<TenantPolicy>> {
    let tenants = queue.tenants().await?;
    Ok(tenants.into_iter().map(|state| state.policy).find(|policy| policy.name == name))
}

async fn set(queue: &dyn Queue, policy: TenantPolicy) -> Result<Answer> {
    let name = policy.name.clone();
    queue.tenant(policy).await?;
    say(format_args!("tenant `{name}` is set; see `telecine tenants ls`"));
    Ok(Answer::Yes)
}

async fn rm(name: &str, config: &Config) -> Result<Answer> {
    let queue = open(config, Schema::AsItIs).await?;
    if policy_of(queue.as_ref(), name).await?.is_none() {
        say(format_args!(
            "tenant `{name}` has no share or cap of its own\nnext: see which do with `telecine tenants ls`"
        ));
        return Ok(Answer::No);
    }
    queue.tenant(TenantPolicy::new(name)).await?;
    say(format_args!("tenant `{name}` is like any other again"));
    Ok(Answer::Yes)
}

fn draw(tenants: &[TenantState]) -> Table {
    let mut table = Table::new(["TENANT", "WEIGHT", "MAX RUNNING", "RUNNING", "PENDING", "PARKED"]);
    for state in tenants {
        table.row([
            truncate(&state.policy.name, 40).into(),
            state.policy.weight.to_string().into(),
            state.policy.max_running.map_or_else(|| "-".into(), |jobs| jobs.to_string()).into(),
            state.running.to_string().into(),
            state.pending.to_string().into(),
            state.parked.to_string().into(),
        ]);
    }
    table
}
