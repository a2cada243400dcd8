//! Beats of remote claims, on a thread and a connection of their own: a beat may block its thread.

use std::sync::Arc;

use telecine_queue::{Beat, BeatReply, Pulse, Queue, QueueError};
use tokio::sync::{mpsc, oneshot};

/// So many may wait for their turn; more wait for room.
const WAITING: usize = 256;

#[derive(Debug)]
pub(super) struct PulseThread {
    asks: mpsc::Sender<Ask>,
}

#[derive(Debug)]
struct Ask {
    beat: Beat,
    answer: oneshot::Sender<Result<BeatReply, QueueError>>,
}

impl PulseThread {
    /// It ends with the last handle to it.
    pub(super) fn start(queue: Arc<dyn Queue>) -> Result<Self, QueueError> {
        let unexpected = |error: std::io::Error| QueueError::Unexpected { reason: error.to_string() };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unexpected)?;
        let (asks, asked) = mpsc::channel(WAITING);
        std::thread::Builder::new()
            .name("remote-beat".into())
            .spawn(move || runtime.block_on(beat_until_closed(&*queue, asked)))
            .map_err(unexpected)?;
        Ok(Self { asks })
    }

    pub(super) async fn beat(&self, beat: Beat) -> Result<BeatReply, QueueError> {
        let gone = || QueueError::Unavailable { reason: "the thread of remote beats has ended".into() };
        let (answer, answered) = oneshot::channel();
        self.asks.send(Ask { beat, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn beat_until_closed(queue: &dyn Queue, mut asked: mpsc::Receiver<Ask>) {
    let mut pulse = None;
    while let Some(Ask { beat, answer }) = asked.recv().await {
        let replied = beat_once(queue, &mut pulse, &beat).await;
        if !matches!(replied, Ok(_) | Err(QueueError::WorkerGone)) {
            // Its connection may be the reason.
            pulse = None;
        }
        // Whoever asked may have left; the beat counts all the same.
        let _ = answer.send(replied);
    }
}

async fn beat_once(
    queue: &dyn Queue,
    pulse: &mut Option<Box<dyn Pulse>>,
    beat: &Beat,
) -> Result<BeatReply, QueueError> {
    let pulse = match pulse {
        Some(pulse) => pulse,
        none => none.insert(queue.pulse().await?),
    };
    pulse.beat(beat).await
}
