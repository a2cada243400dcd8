//! How many requests of one asker may be under way at once: nobody takes all connections for themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::pace::Asker;
use crate::problem::{Code, Problem};

/// One asker may have this part of all connections.
const PART: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Shares {
    most: usize,
    taken: Arc<Mutex<HashMap<Asker, usize>>>,
}

/// One request that is under way, until its answer was sent.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    asker: Asker,
}

impl Shares {
    pub(crate) fn of(max_connections: usize) -> Self {
        Self { most: (max_connections / PART).max(1), taken: Arc::default() }
    }

    pub(crate) fn take(&self, asker: Asker) -> Result<Share, Problem> {
        let mut taken = self.lock();
        let count = taken.entry(asker.clone()).or_default();
        if *count >= self.most {
            let detail = format!("{} requests of yours are under way; wait until one has ended", self.most);
            return Err(Problem::new(Code::RateLimited, detail).retry_after(Duration::from_secs(1)));
        }
        *count += 1;
        drop(taken);
        Ok(Share { shares: self.clone(), asker })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Asker, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        if let Some(count) = taken.get_mut(&self.asker) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.asker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asker_has_a_part_of_all_connections_and_nobody_is_remembered() {
        let shares = Shares::of(8);
        let loud = || shares.take(Asker::Key("loud".into()));
        let held = [loud().unwrap(), loud().unwrap()];

        assert_eq!(loud().unwrap_err().code(), Code::RateLimited);
        assert!(shares.take(Asker::Key("quiet".into())).is_ok());

        drop(held);
        assert!(loud().is_ok());
        assert!(shares.lock().is_empty());
    }
}
