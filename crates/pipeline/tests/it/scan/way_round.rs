//! No way leads round a scan.

use libtest_mimic::Trial;
use telecine_pipeline::records::{ToolsRecord, read_all};
use telecine_pipeline::{Clamd, Input, retry};
use telecine_queue::{JobFilter, Page, RunId, RunState};

use super::{infected_picture, refusal, run_of, scanned_by, uploaded};
use crate::clamd_server::ClamdServer;
use crate::sources::picture;
use crate::studio::{Studio, images, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("scan::a_retry_of_the_plan_alone_reads_nothing".into(), a_retry_of_the_plan_alone),
        trial("scan::a_plan_waits_for_a_scan_that_was_cancelled".into(), a_plan_waits_for_a_cancelled_scan),
    ]
}

/// Nothing was started to read it, and nothing made of it.
async fn is_unread(studio: &Studio, run: &RunId) {
    let programs = read_all::<ToolsRecord>(&*studio.queue, run).await.unwrap();
    assert!(programs.is_empty() && studio.outputs(run).await.is_empty(), "{programs:?}");
}

/// By its step, and as a job.
async fn a_retry_of_the_plan_alone() {
    let clamd = ClamdServer::start();
    let (infected, too_large) = (infected_picture(), picture());
    for (bytes, max_bytes, code) in [(infected, 1 << 20, "infected"), (too_large, 100, "unscanned")] {
        let studio = Studio::tuned(scanned_by(Clamd { max_bytes, ..clamd.by_unix() })).await;
        let file = studio.file("evil.png");
        std::fs::write(&file, &bytes).unwrap();
        for input in [Input::Path(file), uploaded(&studio, "evil", &bytes).await] {
            let (run, _) = run_of(&studio, &images(160), input).await;

            retry(&*studio.queue, &run, &["ingest.plan".into()]).await.unwrap();
            let by_step = studio.ended(&run).await.state;
            let of_run =
                JobFilter { run: Some(run.clone()), kind: Some("plan".into()), ..JobFilter::default() };
            let plan = studio.queue.list(&of_run, Page::first(1)).await.unwrap().data.remove(0);
            studio.queue.retry(plan.id).await.unwrap();
            let by_job = studio.ended(&run).await.state;

            assert_eq!((by_step, by_job), (RunState::Failed, RunState::Failed), "{code}");
            let failures = studio.failures(&run).await;
            assert!(failures.iter().all(|failure| failure.code == code), "{failures:?}");
            assert!(failures.iter().any(|failure| failure.step == "ingest.plan"), "{failures:?}");
            is_unread(&studio, &run).await;
        }
        studio.close().await;
    }
}

async fn a_plan_waits_for_a_cancelled_scan() {
    let mut clamd = ClamdServer::stopped("");
    let studio = Studio::tuned(scanned_by(clamd.by_unix())).await;
    let input = uploaded(&studio, "evil", &infected_picture()).await;
    let run = studio.submit_input(&images(160), input).await;
    studio.failed(&run).await;
    studio.queue.cancel_run(&run).await.unwrap();
    studio.ended(&run).await;
    clamd.go();

    retry(&*studio.queue, &run, &["ingest.plan".into()]).await.unwrap();
    let ended = studio.ended(&run).await;

    assert_eq!((ended.state, refusal(&studio, &run).await.0.as_str()), (RunState::Failed, "infected"));
    is_unread(&studio, &run).await;
    studio.close().await;
}
