//! A run as everybody sees it, and a film that plays before it is whole.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use telecine_pipeline::{LiveFilm, OutputStatus, RunDocument, StepStatus, describe, live_film};
use telecine_queue::{NewRecord, Pausable, RunId, RunState};

use crate::clips;
use crate::film::frames;
use crate::studio::{Studio, hls, pictures, recipe, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("document::a_run_tells_how_far_it_is".into(), a_run_tells_how_far_it_is),
        trial("document::a_film_plays_before_it_is_whole".into(), a_film_plays_before_it_is_whole),
    ]
}

async fn document(studio: &Studio, run: &RunId) -> RunDocument {
    describe(&*studio.queue, run).await.unwrap().unwrap()
}

fn status(document: &RunDocument, step: &str) -> Option<StepStatus> {
    document.steps.iter().find(|shown| shown.name == step).map(|shown| shown.status)
}

/// Waits until the run's document is as wanted.
async fn until(studio: &Studio, run: &RunId, holds: impl Fn(&RunDocument) -> bool) -> RunDocument {
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut wakes = studio.queue.wakes();
    loop {
        let now = document(studio, run).await;
        if holds(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "{now:#?}");
        let _ = tokio::time::timeout(Duration::from_millis(20), wakes.changed()).await;
    }
}

async fn a_run_tells_how_far_it_is() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(4, &file);
    studio.queue.pause(&Pausable::Kind("package".into())).await.unwrap();

    let run = studio.submit(&recipe(vec![hls(), pictures()]), &file).await;
    let waiting = until(&studio, &run, |now| {
        status(now, "hls") == Some(StepStatus::Succeeded)
            && now.playable_at.is_some()
            && status(now, "pictures") == Some(StepStatus::Succeeded)
    });
    let waiting = waiting.await;

    assert_eq!(waiting.status, RunState::Running);
    assert_eq!(status(&waiting, "hls.package"), Some(StepStatus::Queued));
    assert!(waiting.progress > 50.0 && waiting.progress < 100.0, "{}", waiting.progress);
    let output = |document: &RunDocument, name: &str| {
        document.outputs.iter().find(|output| output.name == name).map(|output| output.status)
    };
    assert_eq!(output(&waiting, "hls"), Some(OutputStatus::Pending));
    assert_eq!(output(&waiting, "poster"), Some(OutputStatus::Ready));
    let probe = waiting.input.probe.as_ref().unwrap();
    assert_eq!((probe.width, probe.fps, probe.has_audio), (Some(320), Some(25.0), true));

    studio.queue.resume(&Pausable::Kind("package".into())).await.unwrap();
    studio.ended(&run).await;
    let ended = document(&studio, &run).await;
    assert_eq!((ended.status, ended.progress, ended.error.clone()), (RunState::Succeeded, 100.0, None));
    assert_eq!(output(&ended, "hls"), Some(OutputStatus::Ready));
    assert!(ended.outputs.iter().all(|output| output.uri.is_some()), "{:#?}", ended.outputs);
    let names: Vec<String> =
        studio.queue.events(&run, 0, 100).await.unwrap().into_iter().map(|event| event.name).collect();
    assert!(names.contains(&"run.playable".to_owned()), "{names:?}");
    studio.close().await;
}

async fn a_film_plays_before_it_is_whole() {
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(6, &file);
    studio.queue.pause(&Pausable::Kind("package".into())).await.unwrap();
    let run = studio.submit(&recipe(vec![hls()]), &file).await;
    until(&studio, &run, |now| {
        status(now, "hls") == Some(StepStatus::Succeeded) && now.playable_at.is_some()
    })
    .await;

    // As the records stood when all but the fourth segment had come.
    let earlier = studio.submit(&recipe(vec![hls()]), &studio.file("nothing")).await;
    studio.ended(&earlier).await;
    for record in studio.queue.records(&run, None).await.unwrap() {
        if record.key != "hls/00003" {
            let copy = NewRecord::new(record.kind, record.key, record.json);
            studio.queue.put_record(&earlier, copy, None).await.unwrap();
        }
    }
    let (whole, beginning) = (live(&studio, &run).await, live(&studio, &earlier).await);

    assert_eq!((whole.segments(), beginning.segments()), (6, 3));
    assert!(whole.playlist("180p").unwrap().contains("ENDLIST"));
    assert!(!beginning.playlist("audio").unwrap().contains("ENDLIST"));
    assert!(beginning.playlist("720p").is_none());
    // A player waits for more of a list that has no end: this one shall play what there is.
    let folder = studio.shop.blobs.local_path(&format!("_/{run}/hls")).unwrap();
    let ended = |list: String| if list.contains("ENDLIST") { list } else { list + "#EXT-X-ENDLIST\n" };
    for (film, expected) in [(&beginning, [75, 75]), (&whole, [150, 150])] {
        for name in ["180p", "120p", "audio"] {
            std::fs::write(folder.join(format!("{name}.m3u8")), ended(film.playlist(name).unwrap())).unwrap();
        }
        std::fs::write(folder.join("live.m3u8"), film.master()).unwrap();
        assert_eq!(frames(&folder.join("live.m3u8")), expected);
    }
    studio.close().await;
}

async fn live(studio: &Studio, run: &RunId) -> LiveFilm {
    live_film(&*studio.queue, run, "hls").await.unwrap().unwrap()
}
