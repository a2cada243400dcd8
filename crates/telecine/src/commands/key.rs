//! `telecine key`: who may call the API.

use anyhow::Result;
use serde::Serialize;
use telecine_queue::Timestamp;
use telecine_server::keys::{self, Key, NewKey};

use super::{Schema, open};
use crate::cli::{KeyCommand, KeyNew};
use crate::config::Config;
use crate::human;
use crate::output::{Answer, List, Output, Paint, say};
use crate::table::{Cell, Table, truncate};

pub(super) async fn run(command: KeyCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        KeyCommand::New(flags) => new(flags, config, output).await,
        KeyCommand::Ls => ls(config, output).await,
        KeyCommand::Revoke { id } => revoke(&id, config).await,
    }
}

#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    key: &'a Key,
    secret: &'a str,
}

async fn new(flags: KeyNew, config: &Config, output: &Output) -> Result<Answer> {
    let new = NewKey {
        name: flags.name.unwrap_or_default(),
        tenant: flags.tenant.unwrap_or_default(),
        scopes: flags.scopes.into_iter().collect(),
    };
    let queue = open(config, Schema::Migrate).await?;
    let is_first = !keys::was_any_made(queue.as_ref()).await?;
    let (key, secret) = keys::make(queue.as_ref(), new).await?;
    if output.json {
        output.print_json(&Made { key: &key, secret: &secret })?;
    } else {
        output.print(&format!("{secret}\n"))?;
    }
    say(format_args!(
        "this is the only time that the key is shown; send it as `Authorization: Bearer …`\n\
         next: `telecine key revoke {}` takes it back",
        key.id
    ));
    if is_first && config.serving.options.trust_until_first_key && config.serving.options.trust_loopback {
        say("from now on programs on the server's own machine need a key too, unless trust_loopback is true");
    }
    Ok(Answer::Yes)
}

async fn ls(config: &Config, output: &Output) -> Result<Answer> {
    let mut keys = keys::list(open(config, Schema::AsItIs).await?.as_ref()).await?;
    keys.sort_by_key(|key| key.created_at);
    if output.json {
        output.print_json(&List::whole(keys))?;
    } else if keys.is_empty() {
        say("there are no keys\nnext: make one with `telecine key new`");
    } else {
        output.print(&draw(&keys, Timestamp::now()).draw(output.colour))?;
    }
    Ok(Answer::Yes)
}

async fn revoke(id: &str, config: &Config) -> Result<Answer> {
    // Whoever has the key at hand may name it in full.
    let id = id.strip_prefix("tk_").map_or(id, |rest| rest.split('_').next().unwrap_or(rest));
    let queue = open(config, Schema::AsItIs).await?;
    if keys::revoke(queue.as_ref(), id).await?.is_some() {
        say(format_args!("key {id} is revoked; servers notice within 5 seconds"));
        return Ok(Answer::Yes);
    }
    say(format_args!("there is no key {id}\nnext: see which there are with `telecine key ls`"));
    Ok(Answer::No)
}

fn draw(keys: &[Key], now: Timestamp) -> Table {
    let mut table = Table::new(["ID", "NAME", "TENANT", "SCOPES", "CREATED", "STATE"]);
    for key in keys {
        let scopes: Vec<String> = key.scopes.iter().map(ToString::to_string).collect();
        table.row([
            key.id.clone().into(),
            truncate(&key.name, 30).into(),
            truncate(&key.tenant, 30).into(),
            scopes.join(",").into(),
            human::instant(key.created_at, now).into(),
            match key.revoked_at {
                None => Cell::painted("valid", Paint::Green),
                Some(at) => Cell::painted(format!("revoked {}", human::instant(at, now)), Paint::Dim),
            },
        ]);
    }
    table
}
