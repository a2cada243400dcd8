//! How long a job waits for an idle worker in another process: from just before the push to the start of its kind.

use std::time::Duration;

use crate::child::{Process, Role, now_ns};
use crate::ground::{Ground, job};
use crate::limit::Limit;

const JOBS: usize = 300;
const WARM_UP: usize = 20;

/// Latencies of single jobs, in milliseconds, sorted.
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

pub(crate) async fn ours(ground: &Ground) -> Latencies {
    let queue = ground.open().await;
    let mut worker = Process::start(&Role::Worker { url: ground.url.clone(), slots: 3 });
    worker.wait_until_ready();
    let mut taken = Vec::new();
    for _ in 0..WARM_UP + JOBS {
        let_it_fall_asleep().await;
        queue.push(vec![job(now_ns()).into()]).await.expect("push");
        taken.push(latency_ms(&mut worker));
    }
    queue.close().await;
    sorted(taken)
}

pub(crate) async fn limit(ground: &Ground, limit: &dyn Limit) -> Latencies {
    let mut other = Process::start(&Role::Raw { url: ground.url.clone(), bell: ground.bell() });
    other.wait_until_ready();
    let mut taken = Vec::new();
    for _ in 0..WARM_UP + JOBS {
        let_it_fall_asleep().await;
        limit.push_and_ring(&ground.bell(), now_ns()).await;
        taken.push(latency_ms(&mut other));
    }
    sorted(taken)
}

/// The last job is settled and its slot free again; uneven, so as not to fall into step with anything.
async fn let_it_fall_asleep() {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(8_000..14_000))).await;
}

fn latency_ms(worker: &mut Process) -> f64 {
    let line = worker.next_line();
    line.parse::<f64>().expect("nanoseconds") / 1e6
}

fn sorted(mut taken: Vec<f64>) -> Latencies {
    taken.drain(..WARM_UP);
    taken.sort_by(f64::total_cmp);
    Latencies(taken)
}
