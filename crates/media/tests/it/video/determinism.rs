use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use telecine_media::{Limits, RangeEvent, RangeJob, SegmentDone, VideoPlan, encode_range};
use tokio_util::sync::CancellationToken;

use super::{
    Hashes, RECIPE, encode, encode_into, encode_whole, hashes, ntsc_matroska, ntsc_open_gop, planned_video,
    range, vfr,
};
use crate::clips;

#[tokio::test]
async fn many_ranges_out_of_order_give_the_same_bytes_as_one() {
    for source in [ntsc_open_gop(), ntsc_matroska(), vfr()] {
        let plan = planned_video(&source, RECIPE).await;
        let whole = encode_whole(&source, &plan).await;
        let last = plan.grid.segments;

        let mut parts: Vec<SegmentDone> = Vec::new();
        for (start, end) in [(4, last), (0, 1), (2, 4), (1, 2)] {
            parts.extend(encode(&source, &plan, range(start, end), &[]).await.unwrap().segments);
        }

        assert_eq!(parts.len(), last as usize);
        assert_eq!(hashes(&parts), hashes(&whole.segments), "{}", source.display());
        assert!(parts.iter().all(|segment| segment.damaged_frames == 0), "{}", source.display());
    }
}

#[tokio::test]
async fn only_what_is_missing_is_made_and_it_is_the_same() {
    let source = ntsc_open_gop();
    let plan = planned_video(&source, RECIPE).await;
    let whole = encode_whole(&source, &plan).await;

    let rest = encode(&source, &plan, plan.grid.whole(), &[0, 2, 3]).await.unwrap();

    let made: Vec<u32> = rest.segments.iter().map(|segment| segment.segment).collect();
    assert_eq!(made, [1, 4, 5]);
    let wanted: Hashes = hashes(&whole.segments).into_iter().filter(|((n, _), _)| made.contains(n)).collect();
    assert_eq!(hashes(&rest.segments), wanted);
}

#[tokio::test]
async fn a_plan_that_was_sent_elsewhere_gives_the_same_bytes() {
    let source = vfr();
    let plan = planned_video(&source, RECIPE).await;
    let sent: VideoPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();

    assert_eq!(sent, plan);
    let here = encode(&source, &plan, range(3, 4), &[]).await.unwrap();
    let there = encode(&source, &sent, range(3, 4), &[]).await.unwrap();
    assert_eq!(hashes(&here.segments), hashes(&there.segments));
}

/// Set in a process that is to be killed: the source and the folder.
const VICTIM: &str = "TELECINE_TEST_VICTIM";

/// Not a promise by itself: the process that the next test kills runs only this.
#[tokio::test]
async fn victim() {
    let Some(places) = std::env::var_os(VICTIM) else { return };
    let places: Vec<PathBuf> = std::env::split_paths(&places).collect();
    let (source, folder) = (&places[0], &places[1]);
    let plan = planned_video(source, RECIPE).await;
    encode_into(folder, source, &plan, plan.grid.whole(), &[]).await.unwrap();
    panic!("it should have been killed");
}

fn stored(folder: &Path, plan: &VideoPlan) -> Vec<u32> {
    let is_stored = |segment: &u32| {
        plan.rungs.iter().all(|rung| folder.join(format!("segment-{segment:05}-{}.m4s", rung.name)).exists())
    };
    plan.grid.whole().segments().filter(is_stored).collect()
}

#[tokio::test]
async fn killed_in_the_middle_and_resumed_gives_the_same_bytes() {
    let source = ntsc_open_gop();
    let plan = planned_video(&source, RECIPE).await;
    let whole = encode_whole(&source, &plan).await;
    let folder = tempfile::tempdir().unwrap();
    let places = std::env::join_paths([source.as_path(), folder.path()]).unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "video::determinism::victim"])
        .env(VICTIM, places)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while stored(folder.path(), &plan).is_empty() {
        assert!(victim.try_wait().unwrap().is_none(), "it ended before it stored anything");
        tokio::task::yield_now().await;
    }

    victim.kill().unwrap();
    victim.wait().unwrap();
    let stored = stored(folder.path(), &plan);
    let rest = encode_into(folder.path(), &source, &plan, plan.grid.whole(), &stored).await.unwrap();

    assert!(!stored.is_empty() && !rest.is_empty(), "{} were stored, {} were made", stored.len(), rest.len());
    for segment in &whole.segments {
        for file in &segment.files {
            let name = file.path.file_name().unwrap();
            let resumed = std::fs::read(folder.path().join(name)).unwrap();
            assert!(std::fs::read(&file.path).unwrap() == resumed, "{} differs", name.display());
        }
    }
}

/// `MALLOC_PERTURB_` fills what the C library hands out. x264 has read such memory (widths of 14 and 20 macroblocks, with
/// AVX-512), and only by luck got the same each time.
#[tokio::test]
async fn the_bytes_do_not_depend_on_what_was_in_memory() {
    let source = ntsc_open_gop();
    let plan = planned_video(&source, RECIPE).await;
    let folder = tempfile::tempdir().unwrap();

    let encoded_over = |fill: &str| {
        let outputs: Vec<PathBuf> =
            plan.rungs.iter().map(|rung| folder.path().join(format!("{fill}-{}", rung.name))).collect();
        let size = format!("{}x{}", plan.picture.size.width, plan.picture.size.height);
        let moving = format!("testsrc2=size={size}:rate=30:duration=2,noise=alls=20:allf=t:all_seed=1");
        let mut frames = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-f", "lavfi", "-i", &moving])
            .args(["-pix_fmt", "yuv420p", "-f", "rawvideo", "-"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let encoder = Command::new("ffmpeg")
            .args(["-v", "error"])
            .args(plan.encoder_args(0, &outputs))
            .env("MALLOC_PERTURB_", fill)
            .stdin(frames.stdout.take().unwrap())
            .status();
        assert!(encoder.unwrap().success() && frames.wait().unwrap().success());
        outputs.iter().map(|output| std::fs::read(output).unwrap()).collect::<Vec<_>>()
    };

    let over_ones = encoded_over("1");
    assert!(over_ones.iter().all(|file| file.len() > 1000));
    assert!(over_ones == encoded_over("77") && over_ones == encoded_over("200"));
}

#[tokio::test]
async fn the_other_codecs_give_the_same_bytes_again() {
    let source = ntsc_open_gop();
    for (codec, tag) in [("h265", "hvc1"), ("av1", "av01")] {
        let recipe = format!(
            r#"{{"video": {{"ladder": {{"heights": [180, 120]}}, "segment_seconds": 1, "codec": "{codec}"}}}}"#
        );
        if codec == "av1" && !super::capabilities().await.encoders.contains("libsvtav1") {
            // Some builds of FFmpeg are without it, which must not come out only when it runs.
            let recipe = serde_json::from_str(&recipe).unwrap();
            let probe = clips::probed(&source).await.unwrap();
            let refused = telecine_media::plan(&recipe, &probe, super::capabilities().await).unwrap_err();
            assert_eq!(refused.code(), "capability_missing");
            continue;
        }
        let plan = planned_video(&source, &recipe).await;

        let together = encode(&source, &plan, range(1, 3), &[]).await.unwrap();
        let alone = encode(&source, &plan, range(2, 3), &[]).await.unwrap();

        assert_eq!(hashes(&together.segments[1..]), hashes(&alone.segments));
        assert_eq!(super::stream(&together.joined("180p"))["codec_tag_string"], tag);
    }
}

#[tokio::test]
async fn cancelling_ends_the_work_and_keeps_what_was_told() {
    let source = ntsc_open_gop();
    let plan = planned_video(&source, RECIPE).await;
    let folder = tempfile::tempdir().unwrap();
    let job = RangeJob {
        plan: &plan,
        source: &source,
        folder: folder.path(),
        range: plan.grid.whole(),
        skip: &[],
        limits: &Limits::default(),
        stall: RangeJob::STALL,
    };
    let cancel = CancellationToken::new();
    let mut told = Vec::new();
    let mut tell = |event: RangeEvent| {
        if let RangeEvent::Segment(segment) = event {
            told.push(segment.segment);
            cancel.cancel();
        }
    };

    let error = Box::pin(encode_range(&clips::toolbox(), &job, &cancel, &mut tell)).await.unwrap_err();

    assert_eq!(error.code(), "cancelled");
    assert!(told.len() < plan.grid.segments as usize);
    let stored = stored(folder.path(), &plan);
    assert!(told.iter().all(|segment| stored.contains(segment)));
}

#[tokio::test]
async fn fields_are_woven_into_the_same_frames_in_every_range() {
    let input = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=50:duration=4,interlace,format=yuv420p"];
    let fields = ["-c:v", "libx264", "-preset", "veryfast", "-flags", "+ilme+ildct", "-g", "25", "-bf", "2"];
    let source = clips::clip("interlaced.mp4", &[&input[..], &fields[..]].concat());
    let plan = planned_video(&source, RECIPE).await;
    assert!(plan.picture.deinterlace);

    let whole = encode_whole(&source, &plan).await;
    let part = encode(&source, &plan, range(2, 4), &[]).await.unwrap();

    assert_eq!(hashes(&whole.segments[2..]), hashes(&part.segments));
}
