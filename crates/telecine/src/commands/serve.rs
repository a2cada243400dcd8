//! `telecine serve` and `telecine up`: the API on one database, alone or with a worker in the same process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use telecine_connect::Kafka;
use telecine_pipeline::Workshop;
use telecine_queue::Relay;
use telecine_server::{App, Meter, ServeError, Server, ServerOptions, Traces};

use super::worker::{self, Leaving};
use super::{Schema, open};
use crate::cli::WorkerFlags;
use crate::config::{Config, Key};
use crate::kafka::{self, Brokers};
use crate::output::{Answer, say};
use crate::signals::Signals;
use crate::{kinds, recipes, webhooks, workshop};

/// The API alone: workers on the same database do what it accepts.
pub(super) async fn serve(config: &Config) -> Result<Answer> {
    let mut signals = Signals::listen()?;
    let queue = open(config, Schema::Migrate).await?;
    let shop = Arc::new(workshop::open(config, &queue)?);
    // Before anything is done that counts.
    Meter::install();
    let kafka = kafka::of(config, &shop)?;
    let mut running = start_kafka(config, kafka.as_ref()).await?;
    let relay = webhooks::start(config, &shop).await?;
    let (server, trusts_this_machine) = start(config, &shop, kafka.as_ref()).await?;
    say(format_args!(
        "the API is on {} with {}; runs wait for a `telecine worker` on the same database; Ctrl-C stops it",
        shown(config, server.address()),
        config.database_shown()
    ));
    say_who_needs_a_key(config, trusts_this_machine);
    let leaving = Leaving::default();
    let stopped = async {
        let (is_clean, ()) = tokio::join!(
            stop(&server, &leaving, config.drain_within),
            take_no_more(running.as_mut(), &leaving)
        );
        stop_relays(relay, running, &leaving).await;
        is_clean
    };
    let is_clean = tokio::select! {
        is_clean = stopped => is_clean,
        never = pass_on(&mut signals, &leaving) => match never {},
    };
    say(if is_clean { "stopped" } else { "stopped; requests under way were cut off" });
    Ok(ended(&leaving))
}

/// A drain that came to its deadline has done what was asked of it; only who was hurried has left something undone.
fn ended(leaving: &Leaving) -> Answer {
    if leaving.hurry.is_cancelled() { Answer::No } else { Answer::Yes }
}

/// All of it in one process.
pub(super) async fn up(flags: &WorkerFlags, config: &Config, traces: Option<&Traces>) -> Result<Answer> {
    let mut signals = Signals::listen()?;
    worker::follow_parent(flags)?;
    let queue = open(config, Schema::Migrate).await?;
    let shop = Arc::new(workshop::open(config, &queue)?);
    // Before anything is done that counts.
    Meter::install();
    let kafka = kafka::of(config, &shop)?;
    let mut running = start_kafka(config, kafka.as_ref()).await?;
    let relay = webhooks::start(config, &shop).await?;
    let kinds = worker::chosen_kinds(config, &shop)?;
    let runtime = worker::start(config, queue, &shop, kinds, traces).await?;
    let (server, trusts_this_machine) = match start(config, &shop, kafka.as_ref()).await {
        Ok(started) => started,
        Err(error) => {
            // So that the lease does not outlive a process that never worked.
            runtime.stop_now();
            runtime.finished().await;
            return Err(error);
        }
    };
    welcome(config, server.address(), trusts_this_machine);
    say_who_needs_a_key(config, trusts_this_machine);
    let leaving = Leaving::default();
    let (clean, is_clean, ()) = tokio::join!(
        worker::until_asked_to_stop(&runtime, config.drain_within, &mut signals, &leaving),
        stop(&server, &leaving, config.drain_within),
        take_no_more(running.as_mut(), &leaving)
    );
    stop_relays(relay, running, &leaving).await;
    if !is_clean {
        say("requests under way were cut off");
    }
    Ok(clean)
}

async fn start_kafka(config: &Config, kafka: Option<&Kafka>) -> Result<Option<kafka::Running>> {
    let Some(kafka) = kafka else { return Ok(None) };
    kafka::start(kafka, config, Brokers::Awaited).await.map(Some)
}

/// What is asked of this process, to whoever waits for it: to leave, and to leave at once.
async fn pass_on(signals: &mut Signals, leaving: &Leaving) -> Infallible {
    signals.next().await;
    leaving.drain.cancel();
    signals.next().await;
    leaving.hurry.cancel();
    std::future::pending().await
}

/// When asked to leave: brokers that hang hold up nobody who is in a hurry.
async fn take_no_more(running: Option<&mut kafka::Running>, leaving: &Leaving) {
    leaving.drain.cancelled().await;
    if let Some(running) = running {
        leaving.hurry.run_until_cancelled(running.stop_intake()).await;
    }
}

async fn stop_relays(webhooks: Relay, kafka: Option<kafka::Running>, leaving: &Leaving) {
    let stopped = async {
        webhooks.stop().await;
        if let Some(running) = kafka {
            running.stop_relay().await;
        }
    };
    leaving.hurry.run_until_cancelled(stopped).await;
}

/// The server, and whether programs on this machine need no key.
async fn start(config: &Config, shop: &Arc<Workshop>, kafka: Option<&Kafka>) -> Result<(Server, bool)> {
    raise_file_limit();
    let kafka = kafka.map(|kafka| kafka.broker().clone());
    let options = ServerOptions { kafka, own_kinds: kinds::names(), ..config.serving.options.clone() };
    let app = App::new(Arc::clone(shop), recipes::all(config)?, options);
    let trusts_this_machine = app.trusts_this_machine().await?;
    let server = Server::start(&app, config.serving.listen).await.map_err(|error| refusal(error, config))?;
    Ok((server, trusts_this_machine))
}

/// When asked to leave: until all requests have ended, or the deadline, or whoever asks again. `false`: some were cut off.
async fn stop(server: &Server, leaving: &Leaving, within: Duration) -> bool {
    leaving.drain.cancelled().await;
    tokio::select! {
        is_clean = server.stop(within) => is_clean,
        () = leaving.hurry.cancelled() => server.stop(Duration::ZERO).await,
    }
}

fn refusal(error: ServeError, config: &Config) -> anyhow::Error {
    let listen = config.shown(Key::Listen);
    match error {
        ServeError::NoKey { address } => anyhow!(
            "listen is {listen}, which other machines can reach, and there is no key that would let anybody in\n\
             next: make one with `telecine key new`, or set {} to 127.0.0.1:{}",
            Key::Listen.variable(),
            address.port()
        ),
        ServeError::Bind { source, .. } => anyhow!(
            "cannot listen on {listen}: {source}\n\
             next: stop whatever listens there, or choose another address with --listen"
        ),
        ServeError::Keys(error) => error.into(),
    }
}

/// Each connection is an open file. The usual soft limit is for programs with few of them.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// What to type into a browser or curl.
fn shown(config: &Config, address: SocketAddr) -> String {
    config.serving.options.public_url.clone().unwrap_or_else(|| format!("http://{address}"))
}

fn welcome(config: &Config, address: SocketAddr, trusts_this_machine: bool) {
    let url = shown(config, address);
    let key = if trusts_this_machine && address.ip().is_loopback() {
        ""
    } else {
        " -H \"authorization: Bearer $KEY\""
    };
    say(format_args!(
        "telecine is up on {url} with {} and the store {}; Ctrl-C drains it\n\
         \n\
         try it:\n\
         \x20 curl{key} -F file=@film.mp4 {url}/v1/uploads\n\
         \x20 curl{key} --json '{{\"recipe\": \"web-video\", \"input\": {{\"upload\": \"THE ID\"}}}}' {url}/v1/runs\n\
         \x20 open {url}/docs for everything else\n",
        config.database_shown(),
        config.store
    ));
}

fn say_who_needs_a_key(config: &Config, trusts_this_machine: bool) {
    say(match (trusts_this_machine, config.serving.options.trust_until_first_key) {
        (true, true) => {
            "programs on this machine need no key until the first one is made; \
             set trust_loopback to false now if a proxy on this machine passes on what others send"
        }
        (true, false) => {
            "programs on this machine need no key, and whatever a proxy on it passes on is taken for one; \
             trust_loopback = false changes that"
        }
        (false, _) => {
            "everybody needs a key, `telecine key new` prints one; \
             trust_loopback = true lets programs on this machine in without"
        }
    });
}
