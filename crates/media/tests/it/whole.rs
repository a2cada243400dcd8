//! From a file to a film that plays, the way a worker goes: every part on what the part before it made, and every
//! program in the sandbox.

use std::path::Path;

use telecine_media::{
    Capabilities, Channels, Limits, Loudness, MadeRendition, Plan, Probe, Program, Promise, PromisedRung,
    PromisedSound, RangeJob, Rational, Recipe, SegmentDone, SegmentHashes, SoundtrackSpec, Timeline, Toolbox,
    Verified, encode_range, make_images, make_pictures, make_soundtrack, mp4_summary, plan, probe,
    sniff_file, verify,
};
use tokio_util::sync::CancellationToken;

use crate::playlist::played;
use crate::vips_helper::vips_helper;
use crate::{clips, sandbox};

const RECIPE: &str = r#"{
    "video": {"ladder": {"heights": [180, 120]}, "segment_seconds": 1},
    "pictures": {"poster": {}, "storyboard": {}, "preview": {}, "scenes": true, "frames": {}},
    "images": {"variants": [{"width": 160, "formats": ["jpeg", "webp"]}]}
}"#;

/// What one film's processing shares.
struct Work {
    toolbox: Toolbox,
    limits: Limits,
    cancel: CancellationToken,
    folder: tempfile::TempDir,
}

impl Work {
    fn with(toolbox: Toolbox) -> Self {
        Self {
            toolbox: toolbox.with(Program::VipsHelper, vips_helper()),
            limits: Limits::default(),
            cancel: CancellationToken::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn folder(&self, name: &str) -> std::path::PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    async fn segments(&self, source: &Path, plan: &Plan) -> Vec<SegmentDone> {
        let (plan, folder) = (plan.video.as_ref().unwrap(), self.folder("film"));
        let mut made = Vec::new();
        // The last range first: none needs another.
        for range in plan.ranges.iter().rev() {
            let job = RangeJob {
                plan,
                source,
                folder: &folder,
                range: *range,
                skip: &[],
                limits: &self.limits,
                stall: RangeJob::STALL,
            };
            let done = Box::pin(encode_range(&self.toolbox, &job, &self.cancel, &mut |_| {})).await.unwrap();
            made.extend(done.segments);
        }
        made.sort_by_key(|done| done.segment);
        made
    }

    async fn sound(&self, source: &Path, probe: &Probe, plan: &Plan) -> MadeRendition {
        let (video, sound) = (plan.video.as_ref().unwrap(), plan.sound.as_ref().unwrap());
        let at = |frame: u64| {
            let (num, den) = (video.timeline.fps.num(), video.timeline.fps.den());
            Rational::new(i64::try_from(frame).unwrap() * den, num).unwrap()
        };
        let first_frame = |segment| u64::from(video.grid.frames_per_segment) * u64::from(segment);
        let boundaries: Vec<Rational> =
            (1..video.grid.segments).map(|segment| at(first_frame(segment))).collect();
        let folder = self.folder("film");
        let spec = SoundtrackSpec {
            source,
            probe,
            limits: &self.limits,
            codec: sound.codec,
            kbits: sound.kbits,
            channels: Channels::Stereo,
            loudness: Loudness::Normalise,
            zero_us: u64::try_from(sound.origin_us).unwrap(),
            duration: at(video.timeline.frames),
            offset: offset(),
            boundaries: &boundaries,
            folder: &folder,
        };
        let made = make_soundtrack(&self.toolbox, &spec, &|_| {}, &self.cancel).await.unwrap();
        made.rendition()
    }

    async fn verified(
        &self,
        source: &Path,
        plan: &Plan,
        segments: &[SegmentDone],
        sound: &MadeRendition,
    ) -> Verified {
        let video = plan.video.as_ref().unwrap();
        let promise = Promise {
            rungs: video
                .rungs
                .iter()
                .map(|rung| PromisedRung {
                    name: rung.name.clone(),
                    width: rung.size.width,
                    height: rung.size.height,
                })
                .collect(),
            segment_frames: segments.iter().map(|done| done.frames).collect(),
            frame_rate: Some(video.timeline.fps),
            offset: offset(),
            sound: Some(PromisedSound { segments: segments.len(), duration_us: 4_500_000 }),
            damaged_frames: segments.iter().map(|done| u64::from(done.damaged_frames)).sum(),
            end_tolerance_frames: 0,
        };
        let rungs: Vec<MadeRendition> = video
            .rungs
            .iter()
            .map(|rung| {
                let files =
                    || segments.iter().flat_map(|done| &done.files).filter(|file| file.rung == rung.name);
                MadeRendition {
                    name: rung.name.clone(),
                    init: files().next().unwrap().init.path.clone(),
                    segments: files().map(|file| file.path.clone()).collect(),
                    hashes: files()
                        .map(|file| SegmentHashes {
                            sha256: file.sha256.clone(),
                            init_sha256: file.init.sha256.clone(),
                        })
                        .collect(),
                }
            })
            .collect();
        let summary = mp4_summary(source).await.unwrap();
        verify(&self.toolbox, &promise, &rungs, Some(sound), Some(&summary), &self.cancel).await.unwrap()
    }
}

fn offset() -> Rational {
    Rational::new(i64::from(Timeline::OFFSET_SECONDS), 1).unwrap()
}

/// 4.5 s with sound.
fn source() -> std::path::PathBuf {
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30000/1001:duration=4.5"];
    let sound = ["-f", "lavfi", "-i", "aevalsrc=0.1*sin(880*PI*t)|0.1*sin(660*PI*t):s=44100:d=4.5:c=stereo"];
    clips::clip("film.mp4", &[&picture[..], &sound, clips::X264, clips::AAC].concat())
}

#[tokio::test]
async fn a_file_becomes_a_film_that_plays() {
    assert_becomes_film(sandbox::toolbox()).await;
}

/// The second version, where `make setup` could fetch it; ffprobe stays what it is.
#[tokio::test]
async fn a_file_becomes_a_film_that_plays_with_ffmpeg_7() {
    let Some(ffmpeg) = clips::ffmpeg_7() else { return };
    assert_becomes_film(sandbox::toolbox().with(Program::Ffmpeg, ffmpeg)).await;
}

async fn assert_becomes_film(toolbox: Toolbox) {
    let (work, source) = (Work::with(toolbox), source());
    let recipe: Recipe = serde_json::from_str(RECIPE).unwrap();
    let capabilities = Capabilities::detect(&work.toolbox, &work.cancel).await.unwrap();
    let probe = probe(&work.toolbox, &source, &work.limits, &work.cancel).await.unwrap();
    let plan = plan(&recipe, &probe, &capabilities).unwrap();

    let segments = work.segments(&source, &plan).await;
    let sound = work.sound(&source, &probe, &plan).await;
    let verified = work.verified(&source, &plan, &segments, &sound).await;

    assert_eq!(verified.frames, 135);
    let fps = plan.video.as_ref().unwrap().timeline.fps;
    let name = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
    let film = verified.presentation(offset(), fps, |_, file| name(&file.path));
    let codecs: Vec<&str> = film.video.iter().map(|rung| rung.media.codec.as_str()).collect();
    assert_eq!(codecs, ["avc1.64000D", "avc1.64000C"], "levels 1.3 and 1.2, as size and rate have it");
    let folder = work.folder("film");
    let put = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    put("master.m3u8", film.hls_master());
    film.video.iter().for_each(|rung| put(&rung.playlist_uri, film.hls_video(rung)));
    put(&film.audio.as_ref().unwrap().playlist_uri.clone(), film.hls_audio().unwrap());
    let master = folder.join("master.m3u8");
    let sound_frames = (4_500 * 48_u32 / 1_024)..(4_500 * 48 / 1_024 + 4);
    let played = played(&master, "");
    assert_eq!(played.len(), 3, "{played:?}");
    assert!(
        sound_frames.contains(&played[0].strip_prefix("audio,2,").unwrap().parse().unwrap()),
        "{played:?}"
    );
    assert_eq!(played[1..], ["video,214,135", "video,320,135"]);
}

#[tokio::test]
async fn pictures_of_a_film_and_of_its_poster_are_made_in_the_sandbox() {
    assert_gives_pictures(sandbox::toolbox()).await;
}

#[tokio::test]
async fn pictures_of_a_film_and_of_its_poster_are_made_with_ffmpeg_7() {
    let Some(ffmpeg) = clips::ffmpeg_7() else { return };
    assert_gives_pictures(sandbox::toolbox().with(Program::Ffmpeg, ffmpeg)).await;
}

async fn assert_gives_pictures(toolbox: Toolbox) {
    let (work, source) = (Work::with(toolbox), source());
    let recipe: Recipe = serde_json::from_str(RECIPE).unwrap();
    let probe = probe(&work.toolbox, &source, &work.limits, &work.cancel).await.unwrap();

    let (spec, folder) = (recipe.pictures.unwrap(), work.folder("pictures"));
    let made = make_pictures(&work.toolbox, &source, &probe, &spec, &work.limits, &folder, &work.cancel);
    let made = Box::pin(made).await.unwrap();

    let poster = made.poster.unwrap().unwrap();
    assert!(!poster.is_black && !made.storyboard.unwrap().unwrap().tiles.is_empty());
    assert!(made.preview.unwrap().unwrap().frames > 1 && made.scenes.unwrap().unwrap().is_empty());
    assert!(!made.frames.unwrap().unwrap().is_empty());
    let (spec, folder) = (recipe.images.unwrap(), work.folder("variants"));
    let format = sniff_file(&poster.path).await.unwrap();
    let variants =
        make_images(&work.toolbox, &poster.path, format, &spec, &work.limits, &folder, &work.cancel);
    let variants = Box::pin(variants).await.unwrap();
    let sizes: Vec<_> = variants.outputs.iter().map(|it| (it.width, it.height)).collect();
    assert_eq!(sizes, [(160, 90), (160, 90)]);
}
