//! One client that watches all runs, or all of a tenant.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::response::sse::Event as Sent;
use telecine_queue::{Event, FedEvent, FeedCursor, QueueError};
use tokio::sync::broadcast::error::RecvError;

use crate::app::App;
use crate::hub::{EventShown, Glance, Joined, News, PROGRESS, Told};

/// Events that are read together.
const BATCH: u32 = 100;

pub(super) struct WatchOfAll {
    app: Arc<App>,
    /// `None` is all of them.
    tenant: Option<String>,
    joined: Joined,
    /// The last that was told, or passed over.
    cursor: FeedCursor,
    /// What was read and not told yet.
    read: VecDeque<FedEvent>,
    /// When that was read.
    glance: Glance,
    /// What is up to the place at which it joined has to be read.
    is_behind: bool,
}

impl WatchOfAll {
    /// Without a place it hears of what happens from now on.
    pub(super) async fn join(
        app: &Arc<App>,
        tenant: Option<String>,
        after: Option<FeedCursor>,
    ) -> Result<Self, QueueError> {
        let joined = app.hub.join_all().await?;
        let is_behind = after.is_some();
        let cursor = after.unwrap_or_else(|| joined.position.clone());
        let (read, glance) = (VecDeque::new(), app.hub.glance());
        Ok(Self { app: Arc::clone(app), tenant, joined, cursor, read, glance, is_behind })
    }

    /// Reads on, if it has to.
    pub(super) async fn catch_up(&mut self) -> Result<(), QueueError> {
        if !self.is_behind {
            return Ok(());
        }
        let fed = self.app.queue().feed(Some(self.cursor.clone()), BATCH).await?;
        self.glance = self.app.hub.glance();
        self.is_behind = !fed.events.is_empty();
        self.read = fed.events.into();
        Ok(())
    }

    /// The next event; `None` ends the stream. So does a database that does not answer: who comes back goes on from the
    /// last event it was sent.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        let stopping = self.app.stopping.clone();
        stopping.run_until_cancelled(Box::pin(self.next_or_error())).await?.unwrap_or_else(|error| {
            tracing::warn!(%error, "a stream of events ends early");
            None
        })
    }

    async fn next_or_error(&mut self) -> Result<Option<Sent>, QueueError> {
        loop {
            if let Some(sent) = self.next_read().await? {
                return Ok(Some(sent));
            }
            if self.is_behind {
                self.catch_up().await?;
                continue;
            }
            match self.joined.news.recv().await {
                Ok(news) => {
                    if let Some(sent) = self.heard(&news).await? {
                        return Ok(Some(sent));
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    self.joined = self.app.hub.join_all().await?;
                    self.is_behind = true;
                }
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// What was read, up to the place from which on it is heard.
    async fn next_read(&mut self) -> Result<Option<Sent>, QueueError> {
        while let Some(FedEvent { cursor, tenant, event }) = self.read.pop_front() {
            if cursor > self.joined.position {
                self.read.clear();
                self.is_behind = false;
                return Ok(None);
            }
            self.cursor = cursor;
            if !self.is_wanted(&tenant) {
                continue;
            }
            if let Some(run) = self.app.hub.document(&event.run, self.glance).await? {
                return Ok(Some(self.sent(&event, &EventShown::text(&event, &run))));
            }
        }
        Ok(None)
    }

    async fn heard(&mut self, news: &News) -> Result<Option<Sent>, QueueError> {
        match news {
            News::Told(Told { event: FedEvent { cursor, tenant, event }, glance })
                if *cursor > self.cursor =>
            {
                let document = match self.is_wanted(tenant) {
                    true => self.app.hub.document(&event.run, *glance).await?,
                    false => None,
                };
                self.cursor = cursor.clone();
                Ok(document.map(|run| self.sent(event, &EventShown::text(event, &run))))
            }
            News::Progressed { run, tenant, glance } if self.is_wanted(tenant) => {
                let document = self.app.hub.document(run, *glance).await?;
                let text = document.map(|document| EventShown::progress_text(run, &document));
                Ok(text.map(|text| Sent::default().event(PROGRESS).data(text)))
            }
            News::Told(_) | News::Progressed { .. } => Ok(None),
        }
    }

    fn is_wanted(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|wanted| wanted == tenant)
    }

    fn sent(&self, event: &Event, data: &str) -> Sent {
        Sent::default().id(self.cursor.to_string()).event(&event.name).data(data)
    }
}
