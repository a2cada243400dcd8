//! What lies under keys of callers, and whether it should.

use std::collections::BTreeMap;

use telecine_pipeline::{Outcome, Trouble, submit};
use telecine_queue::{JobFilter, Pausable, RunState};

use super::{LOOK, MEND, assert_succeeded, look, settled, to, told};
use crate::studio::{Studio, photo};

pub(super) async fn copies_under_keys_of_the_caller_are_made_again() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let submit = async |prefix: &str| submit(&*studio.queue, to(prefix, 160, &photo)).await.unwrap().run;
    let (owner, borrower) = (submit("u1/m1").await, {
        studio
            .until(async || studio.queue.counts().await.unwrap().iter().all(|it| it.state.is_terminal()))
            .await;
        submit("u1/m2").await
    });
    let replaced = submit("u1/m3").await;
    let later = submit("u1/m3").await;
    for run in [&owner, &borrower, &replaced, &later] {
        assert_succeeded(&studio, run, 1).await;
    }
    assert_eq!(look(&studio, LOOK).await.0, [], "what a later run replaced is not missed");
    let copies = studio.shop.blobs.list("_published").await.unwrap();
    studio.shop.blobs.delete_all(copies.clone()).await.unwrap();
    // A copy needs no source.
    std::fs::remove_file(&photo).unwrap();

    let (findings, tally) = look(&studio, MEND).await;

    let mut expected: Vec<_> =
        [&owner, &borrower, &later].map(|run| (Trouble::Damaged, run.as_str(), Outcome::Mended)).into();
    expected.sort_by_key(|(_, at, _)| *at);
    assert_eq!(told(&findings), expected, "{findings:?}");
    assert!(tally.is_clean());
    studio.until(async || studio.shop.blobs.list("_published").await.unwrap().len() == copies.len()).await;
    for run in [&owner, &borrower, &later] {
        assert_succeeded(&studio, run, 1).await;
    }
    studio.until(async || look(&studio, LOOK).await.0.is_empty()).await;
    studio.close().await;
}

pub(super) async fn files_of_a_run_that_came_to_nothing_are_found_where_an_earlier_one_published() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let first = submit(&*studio.queue, to("u1", 160, &photo)).await.unwrap().run;
    assert_succeeded(&studio, &first, 1).await;
    let before = published(&studio).await;
    // A folder in the way of one of the second run's files, and nobody who settles it.
    let settling = Pausable::Kind("settle_publication".into());
    studio.queue.pause(&settling).await.unwrap();
    let obstacle = studio.file("store/_published/u1/image/180w.webp/in the way");
    std::fs::create_dir_all(&obstacle).unwrap();
    let second = submit(&*studio.queue, to("u1", 180, &photo)).await.unwrap().run;
    assert_eq!(studio.ended(&second).await.state, RunState::Failed);
    std::fs::remove_dir_all(obstacle.parent().unwrap()).unwrap();
    let lost = JobFilter { kind: Some("settle_publication".into()), ..JobFilter::default() };
    studio.queue.cancel_all(&lost).await.unwrap();
    studio.queue.resume(&settling).await.unwrap();

    let (found, _) = look(&studio, LOOK).await;
    let (mended, tally) = look(&studio, MEND).await;

    let at = "_published/u1";
    assert_eq!(told(&found), [(Trouble::Publication, at, Outcome::Mendable)], "{found:?}");
    assert!(found[0].message.contains(&format!("files of {second} lie where those of {first} should")));
    assert_eq!(told(&mended), [(Trouble::Publication, at, Outcome::Mended)], "{mended:?}");
    assert!(tally.is_clean());
    let lists = async || studio.shop.blobs.list("_publications").await.unwrap();
    studio.until(async || lists().await.len() == 1).await;
    studio.until(async || look(&studio, LOOK).await.0.is_empty()).await;
    assert!(published(&studio).await == before, "the same keys with the same bytes");
    studio.close().await;
}

async fn published(studio: &Studio) -> BTreeMap<String, Vec<u8>> {
    let mut published = BTreeMap::new();
    for key in studio.shop.blobs.list("_published").await.unwrap() {
        let bytes = studio.shop.blobs.get_bytes(&key).await.unwrap();
        published.insert(key, bytes.to_vec());
    }
    published
}

/// As a database finds it that was restored from before the run.
pub(super) async fn what_an_unknown_run_published_is_found_and_goes_after_a_while() {
    let studio = settled(None).await;
    let photo = photo(&studio);
    let (known, unknown) = (
        submit(&*studio.queue, to("u1", 160, &photo)).await.unwrap().run,
        submit(&*studio.queue, to("u2", 180, &photo)).await.unwrap().run,
    );
    for run in [&known, &unknown] {
        assert_succeeded(&studio, run, 1).await;
    }
    let is_theirs = |key: &String| key.starts_with("_published/u2");
    let mut before = published(&studio).await;
    for owner in studio.queue.entries("publication", None, 10).await.unwrap() {
        if owner.body["run"] == unknown.as_str() {
            studio.queue.delete_entry("publication", &owner.key).await.unwrap();
        }
    }
    studio.queue.delete_run(&unknown).await.unwrap();

    let outcomes = async |options| {
        let (mut findings, _) = look(&studio, options).await;
        findings.retain(|it| it.trouble == Trouble::Publication);
        findings.into_iter().map(|it| (it.at, it.outcome)).collect::<Vec<_>>()
    };
    let told = |outcome| vec![("_published/u2".to_owned(), outcome)];
    assert_eq!(outcomes(MEND).await, told(Outcome::Waits), "it is seen for the first time");
    assert!(published(&studio).await == before);
    assert_eq!(outcomes(LOOK).await, told(Outcome::Mendable));
    assert_eq!(outcomes(MEND).await, told(Outcome::Mended));

    assert_eq!(outcomes(LOOK).await, []);
    before.retain(|key, _| !is_theirs(key));
    assert!(published(&studio).await == before, "nobody else's was touched");
    studio.close().await;
}
