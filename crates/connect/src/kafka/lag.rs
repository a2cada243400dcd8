//! How much there is left to read, for whoever watches the figures.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::broker::Broker;
use super::figures;
use super::membership::Membership;

const LOOK_EVERY: Duration = Duration::from_secs(5);
const WITHIN: Duration = Duration::from_secs(2);

/// Asked of the brokers: what the consumer itself knows of a partition that is paused grows old.
pub(super) async fn watch(
    broker: Broker,
    membership: Arc<Membership>,
    topic: String,
    stop: CancellationToken,
) {
    loop {
        let partitions = membership.assigned();
        if !partitions.is_empty() {
            match broker.lags(partitions.into_iter().collect(), WITHIN).await {
                Ok(lags) => {
                    // Another member tells of what went to it meanwhile.
                    let own = membership.assigned();
                    for (partition, lag) in lags.into_iter().filter(|(partition, _)| own.contains(partition))
                    {
                        figures::lag(&topic, partition, lag);
                    }
                }
                Err(error) => tracing::debug!(%error, "how far the group is behind is not known"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}
