//! Workers as rows: a process with slots, registered under a lease that it renews.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claim::Claim;
use crate::graph::NewRecord;
use crate::job::{Fence, Job, JobId};
use crate::timestamp::Timestamp;

/// The number of one registration of a worker. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct WorkerId(pub i64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A worker that asks to be registered.
#[derive(Clone, Debug)]
pub struct NewWorker {
    pub name: String,
    pub host: String,
    /// 0: it is no process of this host, so nothing but its lease tells whether it lives.
    pub pid: u32,
    /// Slots per lane.
    pub slots: BTreeMap<String, u32>,
    pub kinds: Vec<String>,
    pub lease: Duration,
    /// Claims this process still holds from a registration that was declared dead. Those that nobody has taken
    /// since go on under the new id.
    pub holding: Vec<(JobId, Fence)>,
}

/// A registered worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Worker {
    pub id: WorkerId,
    pub name: String,
    pub host: String,
    pub pid: u32,
    pub slots: BTreeMap<String, u32>,
    pub kinds: Vec<String>,
    pub running: u32,
    pub draining: bool,
    pub alive: bool,
    pub started_at: Timestamp,
    /// When it last renewed its lease.
    pub seen_at: Timestamp,
}

/// What a worker with free slots asks for.
#[derive(Clone, Debug)]
pub struct Pull {
    pub worker: WorkerId,
    /// Free slots per lane.
    pub lanes: BTreeMap<String, u32>,
    pub kinds: Vec<String>,
    /// What is claimed needs no more scratch space than this, all jobs together; `u64::MAX`: there is no end of it. Where
    /// one does not fit, those behind it that need any are left for the next pull.
    pub free_scratch_bytes: u64,
}

/// A job and the right to finish it.
#[derive(Debug)]
pub struct Claimed {
    pub job: Arc<Job>,
    pub claim: Claim,
}

/// A worker says that it lives, and how its claims fare.
#[derive(Clone, Debug)]
pub struct Beat {
    pub worker: WorkerId,
    pub lease: Duration,
    pub draining: bool,
    pub claims: Vec<ClaimBeat>,
}

/// How one claim fares. `None` leaves what was saved before.
#[derive(Clone, Debug)]
pub struct ClaimBeat {
    pub job: JobId,
    pub fence: Fence,
    pub slot: Option<u32>,
    pub progress: Option<f64>,
    pub checkpoint: Option<Value>,
    /// Records of the run to write, if the claim still is the worker's.
    pub records: Vec<NewRecord>,
    /// The run can be played from now on, if the claim still is the worker's. Said after the records.
    pub playable: bool,
}

/// What a worker learns from its beat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeatReply {
    /// Claims that are no longer the worker's: cancelled, deleted or taken over. Stop them, drop what they made. Of all
    /// others everything that the beat told was committed.
    pub refused: Vec<JobId>,
    /// Somebody asked this worker to drain.
    pub drain: bool,
}
