//! The same work is done once, and what is shared lives as long as somebody uses it.

use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use telecine_media::{Ladder, VideoSpec};
use telecine_pipeline::{Deleted, Does, Input, Recipe, Submission, delete, describe, retry, submit};
use telecine_queue::{RunId, RunState};

use crate::clips;
use crate::crash::files_below;
use crate::studio::{Studio, hls, images, photo, recipe, step, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("cache::the_same_work_is_done_once".into(), the_same_work_is_done_once),
        trial("cache::outputs_live_as_long_as_somebody_uses_them".into(), outputs_live_as_long_as_used),
        trial(
            "cache::who_borrows_while_the_owner_is_deleted_has_whole_outputs".into(),
            borrowing_races_deleting,
        ),
        trial("cache::what_is_no_longer_whole_is_not_borrowed".into(), what_is_not_whole_is_not_borrowed),
        trial("cache::a_borrowed_film_can_be_played_at_once".into(), a_borrowed_film_is_playable),
        trial("cache::an_input_is_taken_in_once".into(), an_input_is_taken_in_once),
        trial("cache::a_damaged_segment_is_made_again".into(), a_damaged_segment_is_made_again),
        trial("cache::what_a_run_stored_on_the_way_is_removed".into(), intermediates_are_removed),
    ]
}

async fn succeeds(studio: &Studio, submission: Submission) -> RunId {
    let run = submit(&*studio.queue, submission).await.unwrap().run;
    let ended = studio.ended(&run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    run
}

fn of(recipe: &Recipe, file: &Path) -> Submission {
    Submission::new(recipe.clone(), Input::Path(file.to_owned()))
}

async fn the_same_work_is_done_once() {
    let studio = Studio::open().await;
    let file = photo(&studio);
    let first = succeeds(&studio, of(&images(160), &file)).await;
    let copy = studio.file("another name.jpg");
    std::fs::copy(&file, &copy).unwrap();

    let again = succeeds(&studio, of(&images(160), &copy)).await;
    let other_recipe = succeeds(&studio, of(&images(200), &file)).await;
    let other_tenant =
        succeeds(&studio, Submission { tenant: "acme".into(), ..of(&images(160), &file) }).await;
    let fresh = succeeds(&studio, Submission { fresh: true, ..of(&images(160), &file) }).await;

    assert_eq!(studio.kinds_of(&again).await, ["ingest"]);
    assert_eq!(studio.outputs(&again).await, studio.outputs(&first).await);
    for made in [&other_recipe, &other_tenant, &fresh] {
        assert!(studio.kinds_of(made).await.contains(&"image".to_owned()));
    }
    studio.close().await;
}

async fn outputs_live_as_long_as_used() {
    let studio = Studio::open().await;
    let file = photo(&studio);
    let owner = succeeds(&studio, of(&images(160), &file)).await;
    let borrower = succeeds(&studio, of(&images(160), &file)).await;
    let main = studio.main_file(&borrower, "image").await;

    let lent = delete(&*studio.queue, &studio.shop.blobs, &owner).await.unwrap();
    assert_eq!(lent, Deleted::Lent);
    assert!(main.exists(), "the borrower still has it");
    assert!(describe(&*studio.queue, &owner).await.unwrap().is_none(), "the owner is shown no more");
    let later = succeeds(&studio, of(&images(160), &file)).await;
    assert!(studio.kinds_of(&later).await.contains(&"image".to_owned()), "nobody borrows from a deleted run");

    let gone = delete(&*studio.queue, &studio.shop.blobs, &borrower).await.unwrap();
    assert_eq!(gone, Deleted::Gone);
    assert!(!main.exists() && studio.queue.get_run(&owner).await.unwrap().is_none());
    delete(&*studio.queue, &studio.shop.blobs, &later).await.unwrap();
    assert_eq!(files_below(&studio.file("store")), Vec::<PathBuf>::new());
    studio.close().await;
}

async fn borrowing_races_deleting() {
    let studio = Studio::open().await;
    let file = photo(&studio);

    for _ in 0..8 {
        let owner = succeeds(&studio, of(&images(160), &file)).await;
        let borrower = submit(&*studio.queue, of(&images(160), &file)).await.unwrap().run;
        delete(&*studio.queue, &studio.shop.blobs, &owner).await.unwrap();
        let ended = studio.ended(&borrower).await;

        assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&borrower).await);
        for output in studio.outputs(&borrower).await {
            for stored in &output.files {
                let bytes = std::fs::read(studio.shop.blobs.local_path(&stored.key).unwrap()).unwrap();
                assert_eq!(bytes.len() as u64, stored.bytes);
            }
        }
        delete(&*studio.queue, &studio.shop.blobs, &borrower).await.unwrap();
        assert_eq!(files_below(&studio.file("store")), Vec::<PathBuf>::new());
    }
    studio.close().await;
}

async fn intermediates_are_removed() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    let ladder = Ladder::Heights(vec![120]);
    let spec = VideoSpec { ladder, segment_seconds: 1, allow_copy: false, ..VideoSpec::default() };

    let run = succeeds(&studio, of(&recipe(vec![step("mp4", Does::Mp4(spec))]), &file)).await;

    let stored = files_below(&studio.file("store").join("_").join(run.as_str()));
    assert_eq!(stored, [studio.main_file(&run, "mp4").await]);
    // The segments are gone, and made again when somebody asks for them.
    retry(&*studio.queue, &run, &["mp4".into()]).await.unwrap();
    assert_eq!(studio.ended(&run).await.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    studio.close().await;
}

async fn what_is_not_whole_is_not_borrowed() {
    let studio = Studio::open().await;
    let file = photo(&studio);
    let owner = succeeds(&studio, of(&images(160), &file)).await;
    let first = studio.outputs(&owner).await[0].files[0].key.clone();
    std::fs::remove_file(studio.shop.blobs.local_path(&first).unwrap()).unwrap();

    let later = succeeds(&studio, of(&images(160), &file)).await;

    assert!(studio.kinds_of(&later).await.contains(&"image".to_owned()));
    studio.close().await;
}

async fn a_borrowed_film_is_playable() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(2, &file);
    let long = "a tenant whose name has odd signs ".repeat(5);
    let of_tenant = || Submission { tenant: long.clone(), ..of(&recipe(vec![hls()]), &file) };
    succeeds(&studio, of_tenant()).await;

    let borrower = succeeds(&studio, of_tenant()).await;

    assert_eq!(studio.kinds_of(&borrower).await, ["ingest"]);
    let shown = describe(&*studio.queue, &borrower).await.unwrap().unwrap();
    assert!(shown.playable_at.is_some());
    studio.close().await;
}

async fn an_input_is_taken_in_once() {
    let studio = Studio::open().await;
    let file = photo(&studio);
    let run = succeeds(&studio, of(&images(160), &file)).await;

    let refused = retry(&*studio.queue, &run, &["ingest".into()]).await.unwrap_err();
    assert!(refused.to_string().contains("already"), "{refused}");
    // Also by whoever asks the queue itself.
    studio.queue.retry_run(&run, &["ingest".into()]).await.unwrap();
    assert_eq!(studio.ended(&run).await.state, RunState::Failed);
    assert_eq!(studio.failures(&run).await[0].code, "run_planned");
    studio.close().await;
}

async fn a_damaged_segment_is_made_again() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);
    let run = succeeds(&studio, of(&recipe(vec![hls()]), &file)).await;
    let files = studio.outputs(&run).await[0].files.clone();
    let segment = files.iter().find(|file| file.path.starts_with("180p/00001")).unwrap();
    let path = studio.shop.blobs.local_path(&segment.key).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();

    retry(&*studio.queue, &run, &["hls.package".into()]).await.unwrap();
    assert_eq!(studio.ended(&run).await.state, RunState::Failed);
    retry(&*studio.queue, &run, &["hls".into()]).await.unwrap();

    assert_eq!(studio.ended(&run).await.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    assert_eq!(studio.outputs(&run).await[0].files, files);
    studio.close().await;
}
