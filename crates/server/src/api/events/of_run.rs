//! One client that watches one run.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::response::sse::Event as Sent;
use telecine_pipeline::run_of_tenant;
use telecine_queue::{Event, QueueError, Run, RunId, RunState};
use tokio::sync::broadcast::error::RecvError;

use crate::app::App;
use crate::hub::{Documents, EventShown, Joined, News, PROGRESS};

/// Events that are read together.
const BATCH: u32 = 50;

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
    documents: Documents,
    /// There may be more in the database than was heard.
    is_behind: bool,
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
            documents: Documents::default(),
            is_behind: true,
        })
    }

    /// Reads on until there is something to tell or nothing more is there; says whether the run is over, all of it told.
    pub(super) async fn catch_up(&mut self) -> Result<bool, QueueError> {
        // First the run, then its events: what ended before the look has its last event among them.
        let run = run_of_tenant(self.app.queue(), &self.tenant, &self.run).await?;
        let events = self.app.queue().events(&self.run, self.seq, BATCH).await?;
        self.documents.clear();
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
                let Some(run) = self.documents.of(self.app.queue(), &self.run).await? else {
                    return Ok(None);
                };
                return Ok(Some(sent(&event, &EventShown::text(&event, &run))));
            }
            if self.is_behind {
                match self.catch_up().await? {
                    true => return Ok(None),
                    false => continue,
                }
            }
            match self.joined.news.recv().await {
                Ok(news) => {
                    if let Some(sent) = self.heard(&news).await? {
                        return Ok(Some(sent));
                    }
                }
                Err(RecvError::Lagged(_)) => self.is_behind = true,
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    async fn heard(&mut self, news: &News) -> Result<Option<Sent>, QueueError> {
        match news {
            News::Told(told) if told.event.run == self.run && told.event.seq > self.seq => {
                // After an ending the database says whether that was the last of it.
                if told.event.seq != self.seq + 1 || is_ending(&told.event) {
                    self.is_behind = true;
                    return Ok(None);
                }
                let Some(run) = told.document(self.app.queue()).await? else { return Ok(None) };
                self.seq = told.event.seq;
                Ok(Some(sent(&told.event, &EventShown::text(&told.event, &run))))
            }
            News::Progressed(progressed) if progressed.run == self.run => {
                let Some(run) = progressed.document(self.app.queue()).await? else { return Ok(None) };
                Ok(Some(Sent::default().event(PROGRESS).data(EventShown::progress_text(&self.run, &run))))
            }
            News::Told(_) | News::Progressed(_) => Ok(None),
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
