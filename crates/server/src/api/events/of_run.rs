//! One client that watches one run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::sse::Event as Sent;
use telecine_pipeline::run_of_tenant;
use telecine_queue::{Event, FedEvent, QueueError, Run, RunId, RunState};
use tokio::sync::broadcast::error::RecvError;

use crate::app::App;
use crate::hub::{EventShown, Glance, Joined, News, PROGRESS, Told};

/// Events that are read together.
const BATCH: u32 = 50;
/// That a run was deleted is told by nobody: who follows one beyond its end looks whether it is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(super) struct WatchOfRun {
    app: Arc<App>,
    run: RunId,
    tenant: String,
    follow: bool,
    joined: Joined,
    /// The last that was told.
    seq: u64,
    /// What was read and not told yet.
    read: VecDeque<Event>,
    /// When that was read.
    glance: Glance,
    /// There may be more in the database than was heard.
    is_behind: bool,
    looked_at: Instant,
}

impl WatchOfRun {
    pub(super) async fn join(app: &Arc<App>, run: Run, seq: u64, follow: bool) -> Result<Self, QueueError> {
        let joined = app.hub.join_run(&run.id, &run.tenant).await?;
        Ok(Self {
            app: Arc::clone(app),
            run: run.id,
            tenant: run.tenant,
            follow,
            joined,
            seq,
            read: VecDeque::new(),
            glance: app.hub.glance(),
            is_behind: true,
            looked_at: Instant::now(),
        })
    }

    /// Reads on until there is something to tell or nothing more is there; says whether the run is over, all of it told.
    pub(super) async fn catch_up(&mut self) -> Result<bool, QueueError> {
        // First the run, then its events: what ended before the look has its last event among them.
        let run = run_of_tenant(self.app.queue(), &self.tenant, &self.run).await?;
        let events = self.app.queue().events(&self.run, self.seq, BATCH).await?;
        self.glance = self.app.hub.glance();
        self.looked_at = Instant::now();
        self.is_behind = !events.is_empty();
        self.read = events.into();
        let is_over = run.is_none_or(|run| run.finished_at.is_some() && !self.follow);
        Ok(is_over && self.read.is_empty())
    }

    /// The next event; `None` ends the stream. So does a database that does not answer: who comes back goes on from the
    /// last event it was sent.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        let stopping = self.app.stopping.clone();
        stopping.run_until_cancelled(Box::pin(self.next_or_error())).await?.unwrap_or_else(|error| {
            tracing::warn!(run.id = %self.run, %error, "a stream of events ends early");
            None
        })
    }

    async fn next_or_error(&mut self) -> Result<Option<Sent>, QueueError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.seq = event.seq;
                let Some(run) = self.app.hub.document(&self.run, self.glance).await? else {
                    return Ok(None);
                };
                return Ok(Some(sent(&event, &EventShown::text(&event, &run))));
            }
            if self.is_behind || self.has_to_look() {
                match self.catch_up().await? {
                    true => return Ok(None),
                    false => continue,
                }
            }
            match tokio::time::timeout(LOOK_EVERY, self.joined.news.recv()).await {
                Ok(Ok(news)) => {
                    if let Some(sent) = self.heard(&news).await? {
                        return Ok(Some(sent));
                    }
                }
                Ok(Err(RecvError::Lagged(_))) => self.is_behind = true,
                Ok(Err(RecvError::Closed)) => return Ok(None),
                Err(_) => {}
            }
        }
    }

    fn has_to_look(&self) -> bool {
        self.follow && self.looked_at.elapsed() >= LOOK_EVERY
    }

    async fn heard(&mut self, news: &News) -> Result<Option<Sent>, QueueError> {
        match news {
            News::Told(Told { event: FedEvent { event, .. }, glance })
                if event.run == self.run && event.seq > self.seq =>
            {
                // After an ending the database says whether that was the last of it.
                if event.seq != self.seq + 1 || is_ending(event) {
                    self.is_behind = true;
                    return Ok(None);
                }
                let Some(run) = self.app.hub.document(&self.run, *glance).await? else { return Ok(None) };
                self.seq = event.seq;
                Ok(Some(sent(event, &EventShown::text(event, &run))))
            }
            News::Progressed { run, glance, .. } if *run == self.run => {
                let Some(run) = self.app.hub.document(&self.run, *glance).await? else { return Ok(None) };
                Ok(Some(Sent::default().event(PROGRESS).data(EventShown::progress_text(&self.run, &run))))
            }
            News::Told(_) | News::Progressed { .. } => Ok(None),
        }
    }
}

fn is_ending(event: &Event) -> bool {
    let state = event.name.strip_prefix("run.").and_then(|state| state.parse::<RunState>().ok());
    state.is_some_and(RunState::is_terminal)
}

fn sent(event: &Event, data: &str) -> Sent {
    Sent::default().id(event.seq.to_string()).event(&event.name).data(data)
}
