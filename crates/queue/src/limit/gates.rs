//! What becomes of jobs that a balance comes to: called to another line, let in, sent back, or left where they are.
//!
//! A balance goes in rounds: call, look who is next, decide. A job that is called is let in, or its key has become full
//! by others and is asked no more; so the rounds end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Bound, Bounds, Bucket, SHORTEST_WAIT};
use crate::bell::Ring;

/// Jobs admitted or parked in one transaction.
pub(crate) const BALANCE_BATCH: u32 = 1_000;

/// A parked job that is next in a line.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) id: i64,
    pub(crate) priority: i64,
    pub(crate) fair_at: i64,
    pub(crate) limit_key: Option<String>,
    /// Its tenant, if that has a cap.
    pub(crate) capped: Option<String>,
}

impl Candidate {
    /// Its place in a line, the least first.
    fn place(&self) -> (Reverse<i64>, i64, i64) {
        (Reverse(self.priority), self.fair_at, self.id)
    }
}

/// A bound while its jobs are balanced.
#[derive(Debug)]
pub(crate) struct Gate {
    /// `None`: there is no limit, and everything is let in.
    bucket: Option<Bucket>,
    room: i64,
    admitted: u64,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self { bucket: None, room: BALANCE_BATCH.into(), admitted: 0 }
    }

    pub(crate) fn of(bucket: Bucket, pending: u64, running: u64) -> Self {
        let batch = i64::from(BALANCE_BATCH);
        Self { room: bucket.room(pending, running).clamp(-batch, batch), bucket: Some(bucket), admitted: 0 }
    }

    fn free(&self) -> u64 {
        u64::try_from(self.room).unwrap_or(0).saturating_sub(self.admitted)
    }

    /// Whether it bounds anything at all.
    fn is_limited(&self) -> bool {
        self.bucket.is_some()
    }

    fn bucket(&self) -> Option<Bucket> {
        self.bucket.map(|bucket| bucket.spent(self.admitted))
    }

    /// When there was more room than jobs, nobody is left to wait for a token.
    fn next_in(&self) -> Option<Duration> {
        if self.free() > 0 { None } else { self.bucket()?.next_in() }
    }
}

/// The bounds that are being balanced together.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    gates: BTreeMap<Bound, Gate>,
    /// The keys of jobs in the lines of tenants.
    waiting: BTreeMap<Bound, Bounds>,
    admitted: u64,
    moved: u64,
    left: bool,
    /// Nothing has changed since the lines were looked at.
    settled: bool,
}

/// A tenant that has room, with the keys to whose lines it calls its best jobs: so many of each key at most, and no more
/// than `jobs` in all. Its jobs without a key count among the best; they need no call.
#[derive(Debug, PartialEq)]
pub(crate) struct Call<'g> {
    pub(crate) tenant: &'g str,
    pub(crate) jobs: u64,
    pub(crate) keys: Vec<(&'g str, u64)>,
}

impl Call<'_> {
    /// Those to call, out of the best of each key and the best without one.
    pub(crate) fn best(&self, mut line: Vec<Candidate>) -> Vec<i64> {
        line.sort_by_key(Candidate::place);
        let best = line.into_iter().take(usize::try_from(self.jobs).unwrap_or(usize::MAX));
        best.filter(|job| job.limit_key.is_some()).map(|job| job.id).collect()
    }
}

/// What becomes of candidates.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) admitted: Vec<i64>,
    /// Their keys have room but their tenants do not: back to the tenants' lines, and others may be next.
    pub(crate) sent_back: Vec<i64>,
}

impl Gates {
    pub(crate) fn insert(&mut self, bound: Bound, gate: Gate) {
        self.gates.insert(bound, gate);
    }

    pub(crate) fn holds(&self, bound: &Bound) -> bool {
        self.gates.contains_key(bound)
    }

    /// Bounds of which too many jobs are pending, and how many too many.
    pub(crate) fn over(&self) -> Vec<(&Bound, u64)> {
        let over = self.gates.iter().filter(|(_, gate)| gate.room < 0);
        over.map(|(bound, gate)| (bound, gate.room.unsigned_abs())).collect()
    }

    /// Bounds that have room, and how much.
    pub(crate) fn free(&self) -> Vec<(&Bound, u64)> {
        self.gates.iter().map(|(bound, gate)| (bound, gate.free())).filter(|(_, free)| *free > 0).collect()
    }

    /// Tenants of candidates of which nothing is known here yet.
    pub(crate) fn unknown(&self, candidates: &[Candidate]) -> Bounds {
        let tenants = candidates.iter().filter_map(|job| job.capped.clone().map(Bound::Tenant));
        tenants.filter(|tenant| !self.holds(tenant)).collect()
    }

    /// Jobs that gave up their place, which may leave room in another bound: that is looked at soon.
    pub(crate) fn note_parked(&mut self, jobs: u64) {
        self.moved += jobs;
        self.left |= jobs > 0;
    }

    /// Jobs of the tenant's line have this key.
    pub(crate) fn note_waiting(&mut self, tenant: Bound, key: Bound) -> bool {
        self.waiting.entry(tenant).or_default().insert(key)
    }

    /// What tenants with room call to the lines of keys with room. A tenant without a cap has no line: all its jobs go to
    /// those of their keys.
    pub(crate) fn calls(&self) -> Vec<Call<'_>> {
        let calls = self.waiting.iter().filter_map(|(tenant, keys)| {
            let gate = self.gates.get(tenant)?;
            let jobs = gate.free();
            let of_key = |key| {
                let key = self.gates.get(key)?;
                Some(if gate.is_limited() { key.free().min(jobs) } else { jobs })
            };
            let keys = keys.iter().filter_map(|key| Some((key.name(), of_key(key)?)));
            Some(Call { tenant: tenant.name(), jobs, keys: keys.filter(|(_, jobs)| *jobs > 0).collect() })
        });
        calls.filter(|call| !call.keys.is_empty()).collect()
    }

    /// Notes how many were called. Says whether the lines are to be looked at: once in any case, and again when somebody
    /// was called or sent back since.
    pub(crate) fn note_called(&mut self, jobs: u64) -> bool {
        self.moved += jobs;
        let was_settled = std::mem::replace(&mut self.settled, true);
        jobs > 0 || !was_settled
    }

    /// Notes whom candidates stand in for. Says whether their tenants should call others before it is decided, because
    /// there is room for more than one of a tenant that is met for the first time.
    pub(crate) fn meet(&mut self, candidates: &[Candidate]) -> bool {
        let mut may_call = false;
        for job in candidates {
            let (Some(key), Some(tenant)) = (&job.limit_key, &job.capped) else { continue };
            let (key, tenant) = (Bound::Key(key.clone()), Bound::Tenant(tenant.clone()));
            let has_room =
                [&key, &tenant].iter().all(|bound| self.free_of(bound).is_some_and(|free| free > 1));
            may_call |= self.note_waiting(tenant, key) && has_room;
        }
        self.settled &= !may_call;
        may_call
    }

    /// Tenants that have room when none of their keys has, with each of those: one job has to stand in its line for all.
    /// Else nobody would come to them when there is room.
    pub(crate) fn stand_ins(&self) -> Vec<(&str, &str)> {
        let with_room =
            self.waiting.iter().filter(|(tenant, _)| self.free_of(tenant).is_some_and(|free| free > 0));
        let pairs = with_room.flat_map(|(tenant, keys)| keys.iter().map(move |key| (tenant, key)));
        let full = pairs.filter(|(_, key)| self.free_of(key) == Some(0));
        full.map(|(tenant, key)| (tenant.name(), key.name())).collect()
    }

    /// Jobs that were called to stand in for others.
    pub(crate) fn note_stand_ins(&mut self, jobs: u64) {
        self.moved += jobs;
    }

    /// How many more jobs this transaction should move.
    pub(crate) fn rest(&self) -> u64 {
        u64::from(BALANCE_BATCH).saturating_sub(self.moved)
    }

    fn free_of(&self, bound: &Bound) -> Option<u64> {
        self.gates.get(bound).map(Gate::free)
    }

    /// Whether a tenant has room for a job whose key came up too late to be held here. Those that are held and full do
    /// not count: looking at them again would change nothing.
    fn is_short_of_a_key(&self) -> bool {
        self.waiting.iter().any(|(tenant, keys)| {
            self.free_of(tenant).is_some_and(|free| free > 0) && keys.iter().any(|key| !self.holds(key))
        })
    }

    /// Lets in, in the order of the line, those who find room everywhere. A tenant that could not be looked at keeps its
    /// jobs where they are.
    pub(crate) fn decide(&mut self, mut candidates: Vec<Candidate>) -> Verdict {
        candidates.sort_by_key(Candidate::place);
        let mut verdict = Verdict::default();
        for job in candidates {
            let key = job.limit_key.map(Bound::Key);
            let tenant = job.capped.map(Bound::Tenant);
            let free = |bound: &Option<Bound>| match bound {
                Some(bound) => self.free_of(bound),
                None => Some(u64::MAX),
            };
            match (free(&key), free(&tenant)) {
                (Some(1..), None) => self.left = true,
                (Some(1..), Some(0)) if key.is_some() => verdict.sent_back.push(job.id),
                (Some(1..), Some(1..)) => {
                    for bound in [key, tenant].into_iter().flatten() {
                        self.gates.entry(bound).and_modify(|gate| gate.admitted += 1);
                    }
                    verdict.admitted.push(job.id);
                }
                (None | Some(0), _) | (Some(_), Some(0)) => {}
            }
        }
        self.admitted += verdict.admitted.len() as u64;
        self.moved += verdict.sent_back.len() as u64;
        self.settled = verdict.sent_back.is_empty();
        verdict
    }

    /// One transaction has moved as many as it should.
    pub(crate) fn is_spent(&self) -> bool {
        self.rest() == 0
    }

    /// Buckets out of which tokens were taken.
    pub(crate) fn spent(&self) -> impl Iterator<Item = (&str, Bucket)> {
        self.gates.iter().filter(|(_, gate)| gate.admitted > 0).filter_map(|(bound, gate)| {
            gate.bucket().filter(|bucket| bucket.per_minute.is_some()).map(|bucket| (bound.name(), bucket))
        })
    }

    pub(crate) fn balanced(&self) -> Balanced {
        let most = self.gates.values().map(|gate| gate.admitted).max().unwrap_or(0);
        let next_in = self.gates.values().filter_map(Gate::next_in);
        let again = (self.left || self.is_short_of_a_key()).then_some(SHORTEST_WAIT);
        Balanced { moved: most.max(self.moved), admitted: self.admitted, next_in: next_in.chain(again).min() }
    }
}

/// What a balance did, and when time alone may allow more.
#[derive(Debug, Default)]
pub(crate) struct Balanced {
    /// The most that were let in by one bound, or that were moved otherwise.
    moved: u64,
    pub(crate) admitted: u64,
    pub(crate) next_in: Option<Duration>,
}

impl Balanced {
    /// What came of both, one after the other.
    pub(crate) fn then(self, next: Self) -> Self {
        Self { admitted: self.admitted + next.admitted, ..next }
    }

    /// One transaction was not enough.
    pub(crate) fn is_partial(&self) -> bool {
        self.moved >= BALANCE_BATCH.into()
    }

    /// Somebody has to be there when the next token is, or to do the rest.
    pub(crate) fn ring(&self) -> Ring {
        let scheduled = self.next_in.is_some() || self.is_partial();
        Ring { ready: self.admitted > 0, scheduled, ..Ring::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Bound {
        Bound::Key(name.into())
    }

    fn tenant(name: &str) -> Bound {
        Bound::Tenant(name.into())
    }

    /// One with this much room.
    fn room_for(jobs: u32) -> Gate {
        let bucket =
            Bucket { max_running: Some(jobs), per_minute: None, pace: 1.0, tokens: 0.0, refilled_at_ms: 0 };
        Gate::of(bucket, 0, 0)
    }

    fn gates(of: impl IntoIterator<Item = (Bound, Gate)>) -> Gates {
        Gates { gates: of.into_iter().collect(), ..Gates::default() }
    }

    fn candidate(id: i64, limit_key: Option<&str>, capped: Option<&str>) -> Candidate {
        let (limit_key, capped) = (limit_key.map(str::to_owned), capped.map(str::to_owned));
        Candidate { id, priority: 50, fair_at: 0, limit_key, capped }
    }

    #[test]
    fn a_job_needs_room_everywhere_and_is_otherwise_in_nobodys_way() {
        let mut gates =
            gates([(key("k"), room_for(3)), (tenant("full"), room_for(0)), (tenant("free"), room_for(1))]);

        let verdict = gates.decide(vec![
            candidate(5, Some("k"), Some("unknown")),
            candidate(4, None, Some("free")),
            candidate(3, Some("k"), None),
            candidate(2, Some("k"), Some("free")),
            candidate(1, Some("k"), Some("full")),
        ]);

        assert_eq!(verdict, Verdict { admitted: vec![2, 3], sent_back: vec![1] });
        let balanced = gates.balanced();
        assert_eq!(
            (balanced.admitted, balanced.next_in),
            (2, Some(SHORTEST_WAIT)),
            "one could not be judged"
        );
        assert_eq!(gates.free(), [(&key("k"), 1)]);
    }

    #[test]
    fn a_tenant_calls_to_keys_that_are_held_and_have_room() {
        let mut gates = gates([
            (key("roomy"), room_for(9)),
            (key("narrow"), room_for(1)),
            (key("full"), room_for(0)),
            (tenant("a"), room_for(3)),
            (tenant("b"), room_for(0)),
        ]);
        for name in ["roomy", "narrow", "full", "not held"] {
            gates.note_waiting(tenant("a"), key(name));
            gates.note_waiting(tenant("b"), key(name));
            gates.note_waiting(tenant("not held"), key(name));
        }

        let keys = vec![("narrow", 1), ("roomy", 3)];
        assert_eq!(gates.calls(), [Call { tenant: "a", jobs: 3, keys }]);
        assert_eq!(gates.stand_ins(), [("a", "full")]);
    }

    #[test]
    fn a_tenant_without_a_cap_calls_all_it_has() {
        let mut gates = gates([(key("full"), room_for(0)), (tenant("a"), Gate::open())]);
        gates.note_waiting(tenant("a"), key("full"));

        let all = u64::from(BALANCE_BATCH);
        assert_eq!(gates.calls(), [Call { tenant: "a", jobs: all, keys: vec![("full", all)] }]);
    }

    #[test]
    fn the_best_are_called_over_all_keys_and_those_without_one_need_no_call() {
        let call = Call { tenant: "a", jobs: 3, keys: vec![("x", 3), ("y", 3)] };
        let urgent = Candidate { priority: 90, ..candidate(9, Some("y"), Some("a")) };
        let early = Candidate { fair_at: -1, ..candidate(8, None, Some("a")) };

        let line = [1, 2, 3].map(|id| candidate(id, Some("x"), Some("a")));
        let best = call.best(line.into_iter().chain([early, urgent]).collect());

        assert_eq!(best, [9, 1]);
    }

    #[test]
    fn lines_are_looked_at_once_and_again_while_somebody_moves() {
        let mut gates = gates([(key("k"), room_for(1)), (tenant("full"), room_for(0))]);

        assert!(gates.note_called(BALANCE_BATCH.into()), "whatever was moved before");
        assert!(gates.is_spent());
        gates.decide(vec![candidate(1, Some("k"), Some("full"))]);
        assert!(gates.note_called(0), "one was sent back, another may be next");
        gates.decide(vec![candidate(2, Some("k"), None)]);
        assert!(!gates.note_called(0), "nothing has changed");
        assert!(gates.note_called(1));
    }

    #[test]
    fn a_tenant_that_is_met_calls_others_where_there_is_room_for_more_than_one() {
        let mut gates = gates([
            (key("roomy"), room_for(2)),
            (key("narrow"), room_for(1)),
            (tenant("a"), room_for(2)),
            (tenant("b"), room_for(2)),
        ]);

        assert!(!gates.meet(&[candidate(1, Some("narrow"), Some("a")), candidate(2, Some("roomy"), None)]));
        assert!(!gates.meet(&[candidate(3, Some("roomy"), Some("not held")), candidate(4, None, Some("b"))]));
        assert!(gates.meet(&[candidate(5, Some("roomy"), Some("b"))]));
        assert!(!gates.meet(&[candidate(5, Some("roomy"), Some("b"))]), "it has been asked");
        assert_eq!(gates.calls().iter().map(|call| call.tenant).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_key_that_is_not_held_is_looked_at_soon_and_a_full_one_is_not() {
        let next_in = |room: u32, waits_for: &str| {
            let mut gates = gates([(key("full"), room_for(0)), (tenant("a"), room_for(room))]);
            gates.note_waiting(tenant("a"), key(waits_for));
            gates.balanced().next_in
        };

        assert_eq!(next_in(1, "not held"), Some(SHORTEST_WAIT));
        assert_eq!(next_in(1, "full"), None);
        assert_eq!(next_in(0, "not held"), None, "the tenant is full itself");
    }
}
