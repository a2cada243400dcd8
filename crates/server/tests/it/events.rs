//! What happens to runs, as it happens: nothing lost, nothing twice, whatever breaks in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use telecine_pipeline::{Input, Recipes, Submission, submit};
use telecine_queue::testing::{Faults, faulty};
use telecine_queue::{Pausable, Queue, RunId};
use telecine_server::{Scope, keys};

use crate::clips;
use crate::postgres_server::PostgresServer;
use crate::runs::{create, ended, hold, thumbnail};
use crate::support::{PATIENCE, Served, problem, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("events::a_run_is_watched_to_its_end", a_run_is_watched_to_its_end),
        trial("events::a_stream_ends_with_the_last_generation", a_stream_ends_with_the_last_generation),
        trial("events::progress_is_told_while_somebody_watches", progress_is_told_while_somebody_watches),
        trial("events::whoever_comes_back_misses_nothing", async || {
            whoever_comes_back_misses_nothing(Served::start().await).await;
        }),
        trial("events::whoever_comes_back_misses_nothing_on_postgres", async || {
            let server = PostgresServer::start();
            whoever_comes_back_misses_nothing(Served::on(&server.new_database()).await).await;
            server.stop();
        }),
        trial("events::a_hundred_clients_are_one_reader", a_hundred_clients_are_one_reader),
        trial("events::a_slow_client_gets_everything", a_slow_client_gets_everything),
        trial("events::tenants_hear_of_their_own_runs", tenants_hear_of_their_own_runs),
        trial("events::silence_is_kept_alive", silence_is_kept_alive),
        trial("events::streams_end_with_the_server", streams_end_with_the_server),
        trial("events::a_revoked_key_hears_no_more", a_revoked_key_hears_no_more),
        trial("events::a_session_that_ended_hears_no_more", a_session_that_ended_hears_no_more),
        trial("events::who_follows_a_run_that_is_deleted_is_let_go", who_follows_a_deleted_run_is_let_go),
        trial("events::a_place_that_is_none_is_refused", a_place_that_is_none_is_refused),
    ]
}

/// One event as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// A stream of events, read by the rules of the format.
pub(crate) struct Events {
    response: Response,
    unread: Vec<u8>,
    pub(crate) comments: usize,
}

impl Events {
    pub(crate) async fn open(served: &Served, path: &str, last: Option<&str>) -> Self {
        Self::by(served.get(path), last).await
    }

    /// By whatever the request shows.
    async fn by(mut request: RequestBuilder, last: Option<&str>) -> Self {
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.url());
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self { response, unread: Vec::new(), comments: 0 }
    }

    /// `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                if let Some(frame) = self.frame(std::str::from_utf8(&block).unwrap()) {
                    return Some(frame);
                }
            }
            let chunk =
                tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("an event, or the end");
            self.unread.extend(chunk.unwrap()?);
        }
    }

    fn frame(&mut self, block: &str) -> Option<Frame> {
        let mut frame = Frame::default();
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.split_once(':').unwrap_or((line, "")) {
                ("", _) => self.comments += 1,
                ("id", id) => frame.id = Some(id.trim_start().to_owned()),
                ("event", name) => frame.event = name.trim_start().to_owned(),
                ("data", data) => frame.data = serde_json::from_str(data.trim_start()).unwrap(),
                (other, _) => panic!("a field that is none: {other}"),
            }
        }
        (!frame.event.is_empty()).then_some(frame)
    }

    /// Those that are stored, to the end.
    async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            if frame.id.is_some() {
                frames.push(frame);
            }
        }
        frames
    }
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

async fn a_run_is_watched_to_its_end() {
    let served = Served::start().await;
    hold(&served).await;
    let run = create(&served, &thumbnail(&served)).await;
    let path = format!("/v1/runs/{}/events", run["id"].as_str().unwrap());

    let mut watching = Events::open(&served, &path, None).await;
    let first = watching.next().await.unwrap();
    served.queue.resume(&Pausable::Kind("ingest".into())).await.unwrap();
    let mut told = watching.rest().await;
    told.insert(0, first);

    assert_eq!(names(&told)[..2], ["run.created", "run.started"]);
    assert_eq!(names(&told).last(), Some(&"run.succeeded"));
    let ready = told.iter().find(|frame| frame.event == "output.ready").unwrap();
    assert_eq!(ready.data["details"]["name"], "poster");
    assert_eq!(ready.data["run"]["outputs"][0]["status"], "ready");
    for (frame, seq) in told.iter().zip(1_u64..) {
        assert_eq!(frame.id, Some(seq.to_string()));
        assert_eq!((&frame.data["seq"], &frame.data["run_id"]), (&json!(seq), &run["id"]));
        assert_eq!(frame.data["type"], frame.event);
        assert_eq!(frame.data["run"]["id"], run["id"]);
        assert!(frame.data["id"].as_str().unwrap().ends_with(&format!("_{seq}")), "{}", frame.data["id"]);
        assert!(frame.data["at"].is_string());
    }
    assert_eq!(told.last().unwrap().data["run"]["status"], "succeeded");
    // From any place on, by header or query, there is the rest; from the last there is nothing.
    for (last, event) in told.iter().enumerate().take(told.len() - 1) {
        let id = event.id.as_deref();
        let rest = Events::open(&served, &path, id).await.rest().await;
        assert_eq!(names(&rest), names(&told)[last + 1..]);
        let by_query = format!("{path}?last_event_id={}", id.unwrap());
        assert_eq!(names(&Events::open(&served, &by_query, None).await.rest().await), names(&rest));
    }
    let over = served.get(&path).header("Last-Event-ID", told.len().to_string()).send().await.unwrap();
    assert_eq!(over.status(), 204);
    served.stop().await;
}

async fn a_stream_ends_with_the_last_generation() {
    let served = Served::start().await;
    let body = thumbnail(&served);
    std::fs::write(served.file("film.mp4"), "no film at all").unwrap();
    let run = create(&served, &body).await;
    let path = format!("/v1/runs/{}/events", run["id"].as_str().unwrap());
    assert_eq!(ended(&served, &run).await["status"], "failed");
    clips::film(2, &served.file("film.mp4"));

    let mut following = Events::open(&served, &format!("{path}?follow=true"), None).await;
    let mut followed = Vec::new();
    while followed.last().is_none_or(|frame: &Frame| frame.event != "run.failed") {
        followed.push(following.next().await.unwrap());
    }
    let retry = format!("/v1/runs/{}/retry", run["id"].as_str().unwrap());
    assert_eq!(served.post(&retry).json(&json!({})).send().await.unwrap().status(), 200);
    let told = Events::open(&served, &path, None).await.rest().await;

    let story = names(&told);
    assert_eq!(story.iter().filter(|name| **name == "run.failed").count(), 1, "{story:?}");
    assert!(story.contains(&"run.retried"), "{story:?}");
    assert_eq!(story.last(), Some(&"run.succeeded"), "{story:?}");
    while followed.last().is_none_or(|frame: &Frame| frame.event != "run.succeeded") {
        followed.extend(following.next().await.filter(|frame| frame.id.is_some()));
    }
    assert_eq!(names(&followed), story);
    served.stop().await;
}

async fn progress_is_told_while_somebody_watches() {
    let served = Served::start().await;
    let film = served.file("film.mp4");
    clips::film(2, &film);
    served.queue.pause(&Pausable::Kind("conclude".into())).await.unwrap();
    let run = create(&served, &json!({ "recipe": "thumbnail", "input": { "path": film } })).await;
    let path = format!("/v1/runs/{}/events", run["id"].as_str().unwrap());

    let mut of_run = Events::open(&served, &path, None).await;
    let mut of_all = Events::open(&served, "/v1/events", None).await;
    for watching in [&mut of_run, &mut of_all] {
        let progress = loop {
            let frame = watching.next().await.unwrap();
            if frame.event == "run.progress" {
                break frame;
            }
        };
        assert_eq!((progress.id, &progress.data["seq"]), (None, &Value::Null));
        let percent = progress.data["run"]["progress"].as_f64().unwrap();
        assert!(percent > 0.0 && percent < 100.0, "{percent}");
        assert_eq!(progress.data["run_id"], run["id"]);
    }
    served.queue.resume(&Pausable::Kind("conclude".into())).await.unwrap();
    assert_eq!(names(&of_run.rest().await).last(), Some(&"run.succeeded"));
    served.stop().await;
}

/// Runs of the nameless tenant that stay as they are.
async fn still_runs(served: &Served, tenant: &str, count: usize) -> Vec<RunId> {
    hold(served).await;
    thumbnail(served);
    let recipe = Recipes::built_in().get("thumbnail").unwrap().clone();
    let mut runs = Vec::new();
    for _ in 0..count {
        let submission = Submission {
            tenant: tenant.into(),
            ..Submission::new(recipe.clone(), Input::Path(served.file("film.mp4")))
        };
        runs.push(submit(&*served.queue, submission).await.unwrap().run);
    }
    runs
}

/// Somebody for each run who tells so many events of it.
fn tellers(queue: &Arc<dyn Queue>, runs: &[RunId], events: u64) -> Vec<tokio::task::JoinHandle<()>> {
    let teller = |run: &RunId| {
        let (queue, run) = (Arc::clone(queue), run.clone());
        tokio::spawn(async move {
            for n in 0..events {
                queue.tell(&run, "output.ready", json!({ "n": n })).await.unwrap();
            }
        })
    };
    runs.iter().map(teller).collect()
}

/// What a client has seen of each run; panics where something is missing, twice, or out of order.
#[derive(Debug, Default)]
struct Seen(BTreeMap<String, u64>);

impl Seen {
    fn take(&mut self, frame: &Frame) {
        let run = frame.data["run_id"].as_str().unwrap().to_owned();
        let last = self.0.entry(run).or_default();
        assert_eq!(frame.data["seq"].as_u64(), Some(*last + 1), "{frame:?}");
        *last += 1;
    }

    fn has_all(&self, runs: usize, events: u64) -> bool {
        self.0.len() == runs && self.0.values().all(|seen| *seen == events)
    }
}

async fn whoever_comes_back_misses_nothing(served: Served) {
    const RUNS: usize = 6;
    const EVENTS: u64 = 120;
    let start = served.queue.feed_end().await.unwrap().to_string();
    let runs = still_runs(&served, "", RUNS).await;
    let telling = tellers(&served.queue, &runs, EVENTS);

    // Clients of all runs and of one, each of which goes away after a few events, however many that are.
    let of_all = async |patience: usize| {
        let (mut seen, mut last) = (Seen::default(), start.clone());
        while !seen.has_all(RUNS, EVENTS + 1) {
            let mut watching = Events::open(&served, "/v1/events", Some(&last)).await;
            for _ in 0..patience {
                if seen.has_all(RUNS, EVENTS + 1) {
                    break;
                }
                let frame = watching.next().await.unwrap();
                if let Some(id) = &frame.id {
                    seen.take(&frame);
                    last = id.clone();
                }
            }
        }
    };
    let of_run = async |run: &RunId, patience: usize| {
        let (mut seen, mut last, path) = (Seen::default(), "0".to_owned(), format!("/v1/runs/{run}/events"));
        while !seen.has_all(1, EVENTS + 1) {
            let mut watching = Events::open(&served, &path, Some(&last)).await;
            for _ in 0..patience {
                if seen.has_all(1, EVENTS + 1) {
                    break;
                }
                let frame = watching.next().await.unwrap();
                if let Some(id) = &frame.id {
                    seen.take(&frame);
                    last = id.clone();
                }
            }
        }
    };
    let watching = async {
        tokio::join!(
            of_all(1),
            of_all(7),
            of_all(50),
            of_all(usize::MAX),
            of_run(&runs[0], 1),
            of_run(&runs[1], 9),
            of_run(&runs[2], usize::MAX)
        )
    };
    tokio::time::timeout(PATIENCE, watching).await.expect("all of it arrives");
    for teller in telling {
        teller.await.unwrap();
    }
    served.stop().await;
}

async fn a_hundred_clients_are_one_reader() {
    const CLIENTS: usize = 100;
    let faults = Faults::new().refuse("feed", u64::MAX);
    let served = Served::with(|shop, _| shop.queue = faulty(shop.queue.clone(), &faults)).await;
    let runs = still_runs(&served, "", 3).await;
    let opening = (0..CLIENTS).map(|_| Events::open(&served, "/v1/events", None));
    let mut clients = futures_util::future::join_all(opening).await;
    let before = faults.called("feed");
    let began = Instant::now();

    for teller in tellers(&served.queue, &runs, 50) {
        teller.await.unwrap();
    }
    let hearing = clients.iter_mut().map(async |client| {
        let mut heard = BTreeMap::<String, Vec<u64>>::new();
        while heard.values().map(Vec::len).sum::<usize>() < 150 {
            let frame = client.next().await.unwrap();
            if frame.id.is_some() {
                let run = frame.data["run_id"].as_str().unwrap().to_owned();
                heard.entry(run).or_default().push(frame.data["seq"].as_u64().unwrap());
            }
        }
        heard
    });
    let heard = futures_util::future::join_all(hearing).await;

    let expected: Vec<u64> = (2..=51).collect();
    assert!(heard.iter().all(|runs| runs.len() == 3 && runs.values().all(|told| *told == expected)));
    // At most one look for each event told, and one for each 50 ms of waiting: whoever asked for each client would have
    // asked a hundred times as often.
    let looks = faults.called("feed") - before;
    let most = 150 + u64::try_from(began.elapsed().as_millis() / 50).unwrap() + 2;
    assert!(looks <= most, "{looks} looks, {most} at most");
    assert!(served.app.watchers() >= CLIENTS);
    drop(clients);
    served.until(async || served.app.watchers() == 0).await;
    served.stop().await;
}

async fn a_slow_client_gets_everything() {
    const EVENTS: u64 = 4_000;
    // However long a busy machine takes to tell them all, the client is slow and not dead.
    let served = Served::with(|_, options| options.body_idle = PATIENCE).await;
    let runs = still_runs(&served, "", 1).await;
    let mut watching = Events::open(&served, "/v1/events", None).await;
    let mut of_run = Events::open(&served, &format!("/v1/runs/{}/events", runs[0]), None).await;

    // Far more than sockets and the hub hold, before the first is read.
    for teller in tellers(&served.queue, &runs, EVENTS) {
        teller.await.unwrap();
    }
    let mut seen = Seen(BTreeMap::from([(runs[0].to_string(), 1)]));
    while !seen.has_all(1, EVENTS + 1) {
        let frame = watching.next().await.unwrap();
        if frame.id.is_some() {
            seen.take(&frame);
        }
    }
    let mut seen = Seen::default();
    while !seen.has_all(1, EVENTS + 1) {
        let frame = of_run.next().await.unwrap();
        if frame.id.is_some() {
            seen.take(&frame);
        }
    }
    drop((watching, of_run));
    served.stop().await;
}

async fn tenants_hear_of_their_own_runs() {
    let served = Served::start().await;
    let start = served.queue.feed_end().await.unwrap().to_string();
    let theirs = still_runs(&served, "others", 2).await;
    let ours = still_runs(&served, "", 1).await;
    let mut live = Events::open(&served, "/v1/events", None).await;
    let mut resumed = Events::open(&served, "/v1/events", Some(&start)).await;
    let mut all = Events::open(&served, "/v1/events?tenant=*", Some(&start)).await;
    let mut of_others = Events::open(&served, "/v1/events?tenant=others", Some(&start)).await;

    for run in theirs.iter().chain(&ours) {
        served.queue.tell(run, "output.ready", json!({})).await.unwrap();
    }

    assert_eq!(live.next().await.unwrap().data["run_id"], ours[0].as_str());
    for _ in 0..2 {
        assert_eq!(resumed.next().await.unwrap().data["run_id"], ours[0].as_str());
    }
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(all.next().await.unwrap().data["run_id"].as_str().unwrap().to_owned());
    }
    let in_order = [&theirs[0], &theirs[1], &ours[0], &theirs[0], &theirs[1], &ours[0]];
    assert_eq!(runs, in_order.map(ToString::to_string));
    for run in theirs.iter().chain(&theirs) {
        assert_eq!(of_others.next().await.unwrap().data["run_id"], run.as_str());
    }
    let foreign = served.get(&format!("/v1/runs/{}/events", theirs[0])).send().await.unwrap();
    assert_eq!(foreign.status(), 404);
    assert_eq!(problem(foreign).await["detail"], "there is no such run");
    drop((live, resumed, all, of_others));
    served.stop().await;
}

async fn silence_is_kept_alive() {
    let served = Served::with(|_, options| options.event_keep_alive = Duration::from_millis(50)).await;
    let runs = still_runs(&served, "", 1).await;
    let mut watching = Events::open(&served, "/v1/events", None).await;

    let deadline = Instant::now() + PATIENCE;
    while watching.comments < 3 {
        assert!(Instant::now() < deadline);
        let _ = tokio::time::timeout(Duration::from_millis(200), watching.next()).await;
    }
    served.queue.tell(&runs[0], "output.ready", json!({})).await.unwrap();
    assert_eq!(watching.next().await.unwrap().event, "output.ready");
    drop(watching);
    served.stop().await;
}

async fn streams_end_with_the_server() {
    let served = Served::start().await;
    let runs = still_runs(&served, "", 1).await;
    let of_all = Events::open(&served, "/v1/events", None).await;
    let mut of_run = Events::open(&served, &format!("/v1/runs/{}/events", runs[0]), None).await;
    assert_eq!(of_run.next().await.unwrap().event, "run.created");

    let (stopped, all, one) = tokio::join!(served.stop(), of_all.rest(), of_run.rest());

    assert_eq!((stopped, all, one), ((), Vec::new(), Vec::new()));
}

async fn a_revoked_key_hears_no_more() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let runs = still_runs(&served, "acme", 1).await;
    let (revoked, text) = served.key("acme", &[Scope::Read]).await;
    let (_, kept) = served.key("acme", &[Scope::Read]).await;
    let of_run = format!("/v1/runs/{}/events", runs[0]);
    let of_all = Events::by(served.get("/v1/events").bearer_auth(&text), None).await;
    let mut one = Events::by(served.get(&of_run).bearer_auth(&text), None).await;
    let mut others = Events::by(served.get("/v1/events").bearer_auth(&kept), None).await;
    assert_eq!(one.next().await.unwrap().event, "run.created");

    keys::revoke(served.queue.as_ref(), &revoked.id).await.unwrap().unwrap();

    assert_eq!((of_all.rest().await, one.rest().await), (Vec::new(), Vec::new()), "they end");
    served.queue.tell(&runs[0], "output.ready", json!({})).await.unwrap();
    assert_eq!(others.next().await.unwrap().event, "output.ready", "who may still hear does");
    drop(others);
    served.stop().await;
}

async fn a_session_that_ended_hears_no_more() {
    let served = Served::with(|_, options| options.trust_loopback = false).await;
    let (_, text) = served.key("acme", &[Scope::Read]).await;
    let begun = served.post("/v1/session").json(&json!({"key": text})).send().await.unwrap();
    let cookie = begun.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let watching = Events::by(served.get("/v1/events").header("cookie", &cookie), None).await;

    let end = served.client.delete(served.url("/v1/session")).header("origin", &served.base);
    assert_eq!(end.header("cookie", &cookie).send().await.unwrap().status(), 204);

    assert_eq!(watching.rest().await, Vec::new(), "it ends");
    served.stop().await;
}

async fn who_follows_a_deleted_run_is_let_go() {
    let served = Served::start().await;
    let run = create(&served, &thumbnail(&served)).await;
    assert_eq!(ended(&served, &run).await["status"], "succeeded");
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let mut following = Events::open(&served, &format!("{path}/events?follow=true"), None).await;
    while following.next().await.unwrap().event != "run.succeeded" {}

    assert_eq!(served.client.delete(served.url(&path)).send().await.unwrap().status(), 204);

    assert_eq!(following.rest().await, Vec::new(), "it ends");
    served.stop().await;
}

async fn a_place_that_is_none_is_refused() {
    let served = Served::start().await;
    let runs = still_runs(&served, "", 1).await;
    let of_run = format!("/v1/runs/{}/events", runs[0]);

    for (path, last) in [
        (of_run.as_str(), "x"),
        (&of_run, "-1"),
        (&of_run, "99999999999999999999"),
        ("/v1/events", "x"),
        ("/v1/events", "s99999999"),
        ("/v1/events", "p1.2.run_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ] {
        let refused = served.get(path).header("Last-Event-ID", last).send().await.unwrap();
        assert_eq!(refused.status(), 400, "{path} {last}");
        assert_eq!(problem(refused).await["errors"][0]["path"], "Last-Event-ID");
    }
    served.stop().await;
}
