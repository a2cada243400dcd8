//! What happened to each job, as segments on a line of time.

use std::collections::BTreeMap;
use std::time::Duration;

use telecine_queue::{AttemptOutcome, Job, JobId, JobState, Timestamp, WorkerId};

use super::Known;
use crate::output::{Colour, Paint, harmless};
use crate::table::truncate;

/// The line of time is at least this long, so that bars grow to the right instead of shrinking all the time.
const MIN_SPAN: Duration = Duration::from_secs(5);
const MIN_BAR: usize = 10;

#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) rows: Vec<Row>,
    pub(super) from: Timestamp,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: JobId,
    pub(super) label: String,
    pub(super) state: JobState,
    pub(super) worker: Option<WorkerId>,
    pub(super) created_at: Timestamp,
    pub(super) segments: Vec<Segment>,
}

/// One attempt; `ended` is `None` while it runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) worker: Option<WorkerId>,
    pub(super) started_at: Timestamp,
    pub(super) ended: Option<(Timestamp, AttemptOutcome)>,
}

impl Timeline {
    pub(super) fn new(jobs: &[Job], known: &Known, now: Timestamp) -> Self {
        let from = jobs.iter().map(|job| job.created_at).min().unwrap_or(now);
        let rows = jobs.iter().map(|job| Row::new(job, known)).collect();
        Self { rows, from, now }
    }

    /// The whole picture, a line per job under a header, no line wider than `width`.
    pub(super) fn draw(&self, width: usize, colour: Colour) -> Vec<String> {
        let mut lines = vec![self.header(width)];
        let fixed = "1234 job 10   scheduled  on 1234".len() + 2;
        let bar = width.saturating_sub(fixed).max(MIN_BAR);
        let end = self.rows.iter().flat_map(|row| &row.segments).filter_map(|segment| segment.ended);
        let finished = self.rows.iter().all(|row| row.state.is_terminal());
        let until = if finished { end.map(|(at, _)| at).max().unwrap_or(self.now) } else { self.now };
        let span = until.since(self.from).max(MIN_SPAN);
        for row in &self.rows {
            let worker = row.worker.map_or_else(String::new, |worker| format!("on {worker}"));
            lines.push(format!(
                "{:>4} {:<8} {} {} {}",
                row.id.0,
                truncate(&row.label, 8),
                self.bar(row, bar, span, colour),
                colour.paint(row.state.into(), &format!("{:<9}", row.state)),
                worker
            ));
        }
        lines
    }

    fn header(&self, width: usize) -> String {
        let mut counts: BTreeMap<JobState, usize> = BTreeMap::new();
        for row in &self.rows {
            *counts.entry(row.state).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(state, jobs)| format!("{jobs} {state}")).collect();
        truncate(&format!("{}  {}", self.clock(), counts.join(", ")), width)
    }

    /// The time since the first push.
    pub(super) fn clock(&self) -> String {
        format!("{:>5.1} s", self.now.since(self.from).as_secs_f64())
    }

    fn bar(&self, row: &Row, width: usize, span: Duration, colour: Colour) -> String {
        let column = |at: Timestamp| {
            let part = at.since(self.from).as_secs_f64() / span.as_secs_f64();
            ((part * width as f64) as usize).min(width)
        };
        let mut drawn = String::new();
        let mut filled = 0;
        for segment in &row.segments {
            let start = column(segment.started_at).max(filled).min(width.saturating_sub(1));
            let end =
                column(segment.ended.map_or(self.now, |(at, _)| at)).clamp(start + 1, width.max(start + 1));
            drawn.extend(std::iter::repeat_n('·', start.saturating_sub(filled)));
            let (mark, paint) = mark(segment);
            drawn += &colour.paint(paint, &mark.to_string().repeat(end - start.max(filled)));
            filled = end;
        }
        drawn.extend(std::iter::repeat_n(' ', width.saturating_sub(filled)));
        drawn
    }

    /// What is new since an earlier look, in words.
    pub(super) fn changes_since(&self, earlier: Option<&Self>) -> Vec<String> {
        let mut changes = Vec::new();
        for row in &self.rows {
            let before = earlier.and_then(|earlier| earlier.rows.iter().find(|before| before.id == row.id));
            let before = before.map_or(&[][..], |before| &before.segments);
            for (at, segment) in row.segments.iter().enumerate() {
                changes.extend(self.change(row, segment, before.get(at)));
            }
        }
        changes.sort_by_key(|(at, _)| *at);
        changes.into_iter().map(|(_, text)| text).collect()
    }

    fn change(&self, row: &Row, segment: &Segment, before: Option<&Segment>) -> Vec<(Timestamp, String)> {
        let worker = segment.worker.map_or_else(|| "a worker".into(), |worker| format!("worker {worker}"));
        let tell = |at: Timestamp, what: String| {
            let seconds = at.since(self.from).as_secs_f64();
            (at, format!("{seconds:>5.1} s  {:>4} {:<8} {what}", row.id.0, row.label))
        };
        let mut told = Vec::new();
        if before.is_none() {
            told.push(tell(segment.started_at, format!("running on {worker}")));
        }
        if let Some((at, outcome)) = segment.ended
            && before.is_none_or(|before| before.ended.is_none())
        {
            told.push(tell(at, format!("{outcome} on {worker}")));
        }
        told
    }
}

impl Row {
    fn new(job: &Job, known: &Known) -> Self {
        let mut segments: Vec<Segment> = known
            .get(&job.id)
            .map_or(&[][..], |(_, _, attempts)| attempts)
            .iter()
            .map(|attempt| Segment {
                worker: attempt.worker,
                started_at: attempt.started_at,
                ended: Some((attempt.ended_at, attempt.outcome)),
            })
            .collect();
        if let (JobState::Running, Some(started_at)) = (job.state, job.claimed_at) {
            segments.push(Segment { worker: job.worker, started_at, ended: None });
        }
        let label = job.payload.get("label").and_then(|label| label.as_str()).unwrap_or(&job.kind);
        Self {
            id: job.id,
            label: harmless(label),
            state: job.state,
            worker: segments.last().and_then(|last| last.worker),
            created_at: job.created_at,
            segments,
        }
    }
}

/// The marks differ, so that the picture can be read without colour.
fn mark(segment: &Segment) -> (char, Paint) {
    match segment.ended {
        None => ('▒', Paint::Cyan),
        Some((_, AttemptOutcome::Completed)) => ('█', Paint::Green),
        Some((_, outcome @ (AttemptOutcome::Lost | AttemptOutcome::Stranded))) => ('×', outcome.into()),
        Some((_, outcome @ (AttemptOutcome::Failed | AttemptOutcome::Overdue))) => ('!', outcome.into()),
        Some((
            _,
            outcome @ (AttemptOutcome::Snoozed | AttemptOutcome::Released | AttemptOutcome::Cancelled),
        )) => ('-', outcome.into()),
    }
}

/// From the first push to the last finish.
pub(super) fn took(rows: &[Row]) -> Duration {
    let from = rows.iter().map(|row| row.created_at).min();
    let until = ends(rows).map(|(at, _)| at).max();
    from.zip(until).map_or(Duration::ZERO, |(from, until)| until.since(from))
}

/// How many attempts ended like this.
pub(super) fn ended(rows: &[Row], outcome: AttemptOutcome) -> usize {
    ends(rows).filter(|(_, ended)| *ended == outcome).count()
}

/// When the last job that had lost an attempt was done.
pub(super) fn last_rerun(rows: &[Row]) -> Option<Timestamp> {
    let lost = |row: &&Row| ended(std::slice::from_ref(row), AttemptOutcome::Lost) > 0;
    rows.iter().filter(lost).flat_map(|row| row.segments.last()?.ended).map(|(at, _)| at).max()
}

fn ends(rows: &[Row]) -> impl Iterator<Item = (Timestamp, AttemptOutcome)> + '_ {
    rows.iter().flat_map(|row| &row.segments).filter_map(|segment| segment.ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn segment(worker: i64, from: i64, ended: Option<(i64, AttemptOutcome)>) -> Segment {
        Segment {
            worker: Some(WorkerId(worker)),
            started_at: at(from),
            ended: ended.map(|(until, outcome)| (at(until), outcome)),
        }
    }

    fn row(id: i64, state: JobState, segments: Vec<Segment>) -> Row {
        Row {
            id: JobId(id),
            label: format!("job {id}"),
            state,
            worker: segments.last().and_then(|last| last.worker),
            created_at: at(0),
            segments,
        }
    }

    fn timeline(now: i64, rows: Vec<Row>) -> Timeline {
        Timeline { rows, from: at(0), now: at(now) }
    }

    #[test]
    fn a_lost_attempt_and_its_rerun_are_told_apart_without_colour() {
        let lost = segment(2, 0, Some((1_000, AttemptOutcome::Lost)));
        let rerun = segment(1, 2_000, Some((3_000, AttemptOutcome::Completed)));
        let seen = timeline(
            4_000,
            vec![
                row(1, JobState::Completed, vec![lost, rerun]),
                row(2, JobState::Running, vec![segment(1, 3_000, None)]),
                row(3, JobState::Pending, vec![]),
            ],
        );

        let lines = seen.draw(84, Colour::Off);

        assert_eq!(lines[0], "  4.0 s  1 pending, 1 running, 1 completed");
        assert_eq!(
            lines[1],
            "   1 job 1    ××××××××××··········██████████                     completed on 1"
        );
        assert!(lines[2].contains("▒▒▒▒▒▒▒▒▒▒") && lines[2].contains("running"), "{}", lines[2]);
        assert!(!lines[3].contains('▒'), "{}", lines[3]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let seen = timeline(60_000, vec![row(1, JobState::Running, vec![segment(1234, 0, None)])]);

        for width in [50, 80, 200] {
            for line in seen.draw(width, Colour::Off) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn only_what_is_new_is_told_in_words() {
        let before = timeline(500, vec![row(1, JobState::Running, vec![segment(2, 0, None)])]);
        let after = timeline(
            1_500,
            vec![row(
                1,
                JobState::Running,
                vec![segment(2, 0, Some((900, AttemptOutcome::Lost))), segment(1, 1_000, None)],
            )],
        );

        assert_eq!(before.changes_since(None), ["  0.0 s     1 job 1    running on worker 2"]);
        assert_eq!(
            after.changes_since(Some(&before)),
            ["  0.9 s     1 job 1    lost on worker 2", "  1.0 s     1 job 1    running on worker 1"]
        );
        assert!(after.changes_since(Some(&after)).is_empty());
    }

    #[test]
    fn the_sums_count_attempts_not_jobs() {
        let rows = [row(
            1,
            JobState::Completed,
            vec![
                segment(2, 100, Some((900, AttemptOutcome::Lost))),
                segment(1, 2_000, Some((2_500, AttemptOutcome::Completed))),
            ],
        )];

        assert_eq!(ended(&rows, AttemptOutcome::Lost), 1);
        assert_eq!(took(&rows), Duration::from_millis(2_500));
        assert_eq!(last_rerun(&rows), Some(at(2_500)));
    }
}
