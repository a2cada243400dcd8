//! Turns at something of which there is little. Of several tenants none has all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct Turns {
    count: usize,
    all: Arc<Semaphore>,
    /// Of those who have a turn or wait for one.
    tenants: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_tenant: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn of(count: usize) -> Self {
        Self { count, all: Arc::new(Semaphore::new(count)), tenants: Mutex::default() }
    }

    /// `None`: it was nobody's turn within that time.
    pub(crate) async fn take(&self, tenant: &str, within: Duration) -> Option<Turn> {
        let of_tenant = self.of_tenant(tenant);
        let taking = async {
            // Who waits for its own tenant does not stand in the way of others.
            let _of_tenant = of_tenant.acquire_owned().await.ok()?;
            let _of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Turn { _of_all, _of_tenant })
        };
        tokio::time::timeout(within, taking).await.ok().flatten()
    }

    fn of_tenant(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        tenants.retain(|_, turns| turns.strong_count() > 0);
        let made = Arc::new(Semaphore::new(self.share(tenant)));
        tenants.insert(tenant.to_owned(), Arc::downgrade(&made));
        made
    }

    /// One is left for somebody else. The nameless tenant is the operator's own, and most often the only one there is.
    fn share(&self, tenant: &str) -> usize {
        if tenant.is_empty() { self.count } else { self.count.saturating_sub(1).max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[tokio::test]
    async fn one_turn_is_left_for_another_tenant() {
        let turns = Turns::of(3);
        let loud = [turns.take("loud", AT_ONCE).await.unwrap(), turns.take("loud", AT_ONCE).await.unwrap()];

        assert!(turns.take("loud", AT_ONCE).await.is_none());
        let quiet = turns.take("quiet", AT_ONCE).await.unwrap();
        assert!(turns.take("other", AT_ONCE).await.is_none(), "there are three");

        drop((loud, quiet));
        let operator = [(); 3].map(|()| turns.take("", AT_ONCE));
        assert!(futures_util::future::join_all(operator).await.iter().all(Option::is_some));
    }

    #[tokio::test]
    async fn where_there_is_one_turn_everybody_may_have_it() {
        let turns = Turns::of(1);

        drop(turns.take("loud", AT_ONCE).await.unwrap());

        assert!(turns.take("quiet", AT_ONCE).await.is_some());
        assert!(Turns::of(0).take("quiet", AT_ONCE).await.is_none());
    }
}
