use std::path::Path;

use telecine_media::{Timeline, VideoPlan};

use super::{
    RECIPE, brightness, encode_whole, ffprobe, is_kept, ntsc_matroska, ntsc_open_gop, numbered_clip,
    planned_video, shown, vfr,
};

struct Packet {
    pts: i64,
    dts: i64,
    is_key: bool,
}

fn packets(path: &Path) -> Vec<Packet> {
    let answer = ffprobe(path, &["-show_entries", "packet=pts,dts,flags"]);
    let number = |value: &serde_json::Value| value.as_i64().unwrap();
    let packet = |raw: &serde_json::Value| Packet {
        pts: number(&raw["pts"]),
        dts: number(&raw["dts"]),
        is_key: raw["flags"].as_str().unwrap().starts_with('K'),
    };
    answer["packets"].as_array().unwrap().iter().map(packet).collect()
}

/// Every frame is there, at its tick, and keyframes begin every GOP and with it every segment.
fn assert_on_grid(path: &Path, plan: &VideoPlan, frames: usize) {
    let packets = packets(path);
    let Timeline { ticks_per_frame, timescale, .. } = plan.timeline;
    let start = i64::from(Timeline::OFFSET_SECONDS * timescale);

    assert_eq!(packets.len(), frames);
    let mut shown_at: Vec<i64> = packets.iter().map(|packet| packet.pts).collect();
    shown_at.sort_unstable();
    let grid: Vec<i64> = (0..).map(|n| start + n * i64::from(ticks_per_frame)).take(frames).collect();
    assert_eq!(shown_at, grid);
    assert!(packets.windows(2).all(|pair| pair[0].dts < pair[1].dts), "decoding times rise over every joint");
    let keys: Vec<i64> = packets.iter().filter(|packet| packet.is_key).map(|packet| packet.pts).collect();
    let per_gop = plan.grid.frames_per_gop as usize;
    assert_eq!(keys, grid.iter().copied().step_by(per_gop).collect::<Vec<_>>());
}

fn assert_shows(path: &Path, source_frames: impl Iterator<Item = u32>) {
    let shown = shown(path);
    let wanted: Vec<u8> = source_frames.map(brightness).collect();
    assert_eq!(shown.len(), wanted.len());
    for (n, (seen, wanted)) in shown.iter().zip(&wanted).enumerate() {
        // The filter's grey is full range.
        let seen = f64::from(*seen) * 219.0 / 255.0 + 16.0;
        assert!((seen - f64::from(*wanted)).abs() < 6.0, "frame {n} shows {seen}, not {wanted}");
    }
}

#[tokio::test]
async fn ntsc_from_an_open_gop_source_is_exact_over_every_joint() {
    for source in [ntsc_open_gop(), ntsc_matroska()] {
        let plan = planned_video(&source, RECIPE).await;
        assert_eq!(
            (plan.timeline.fps.to_string().as_str(), plan.grid.frames_per_segment),
            ("30000/1001", 30)
        );
        assert_eq!((plan.timeline.frames, plan.grid.segments), (156, 6));

        let encoded = encode_whole(&source, &plan).await;

        for rung in ["180p", "120p"] {
            let joined = encoded.joined(rung);
            assert_on_grid(&joined, &plan, 156);
            assert_shows(&joined, 0..156);
        }
    }
}

#[tokio::test]
async fn a_source_of_no_one_pace_shows_each_picture_when_it_is_due() {
    let source = vfr();
    let plan = planned_video(&source, RECIPE).await;
    assert_eq!(plan.timeline.fps.to_string(), "25/1");

    let encoded = encode_whole(&source, &plan).await;

    let joined = encoded.joined("120p");
    let frames = u32::try_from(plan.timeline.frames).unwrap();
    assert_eq!(frames, 175);
    assert_on_grid(&joined, &plan, 175);
    let standing = |n: u32| (0..=n).rev().find(|n| is_kept(*n)).unwrap();
    assert_shows(&joined, (0..frames).map(standing));
}

#[tokio::test]
async fn a_part_is_cut_out_to_the_frame() {
    let source = ntsc_open_gop();
    let recipe = r#"{"video": {"ladder": {"heights": [180]}, "segment_seconds": 1,
        "trim": {"start_ms": 2000, "end_ms": 4500}}}"#;
    let plan = planned_video(&source, recipe).await;
    assert_eq!((plan.timeline.frames, plan.timeline.origin_us), (75, 2_002_000));

    let encoded = encode_whole(&source, &plan).await;

    let joined = encoded.joined("180p");
    assert_on_grid(&joined, &plan, 75);
    assert_shows(&joined, 60..135);
}

#[tokio::test]
async fn a_container_without_an_index_is_read_from_its_beginning() {
    let source = numbered_clip("numbered.ts", "25", 3.0, &["-c:v", "libx264", "-crf", "12", "-g", "40"]);
    let plan = planned_video(&source, RECIPE).await;
    assert!(!plan.is_seekable && plan.ranges.len() == 1);

    let end = super::encode(&source, &plan, super::range(2, 3), &[]).await.unwrap();

    assert_shows(&end.joined("180p"), 50..75);
}

#[tokio::test]
async fn a_fast_source_is_halved_and_every_second_frame_kept() {
    let source = numbered_clip("numbered-100fps.mp4", "100", 2.0, &["-c:v", "libx264", "-crf", "12"]);
    let plan = planned_video(&source, RECIPE).await;
    assert_eq!(plan.timeline.fps.to_string(), "50/1");

    let encoded = encode_whole(&source, &plan).await;

    assert_on_grid(&encoded.joined("180p"), &plan, 100);
}
