use std::ffi::OsString;
use std::path::Path;

use telecine_media::{
    Limits, ProgressiveSpec, mp4_summary, progressive_from_segments, progressive_from_source,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, AAC, X264};
use crate::film::{self, seconds};

fn entries(path: &Path, entries: &str) -> Vec<String> {
    let args = ["-v", "error", "-show_entries", entries, "-of", "csv=p=0", path.to_str().unwrap()];
    film::lines_of("ffprobe", &args)
}

fn pictures(path: &Path) -> Vec<String> {
    let args = ["-v", "error", "-i", path.to_str().unwrap(), "-map", "0:v:0", "-f", "framemd5", "-"];
    let lines = film::lines_of("ffmpeg", &args).into_iter().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

#[tokio::test]
async fn segments_become_one_file_without_a_new_encode() {
    let folder = tempfile::Builder::new().prefix("it's a \\ folder ").tempdir().unwrap();
    let rung = film::two_rungs(folder.path()).remove(0);
    let whole = folder.path().join("audio.mp4");
    let tone = ["-f", "lavfi", "-i", "aevalsrc=0.3*sin(880*PI*t):s=48000:d=5", "-c:a", "aac"];
    let clock = ["-output_ts_offset", "10", "-avoid_negative_ts", "disabled", "-use_editlist", "0"];
    let fragments = ["-frag_duration", "2000000", "-movflags", "+empty_moov+default_base_moof+frag_discont"];
    clips::ffmpeg(&[&tone[..], &clock, &fragments].concat(), &whole);
    let sound = film::split(folder.path(), "sound", &whole);
    let video = film::made("180p", &rung.init, &rung.segments);
    let audio = film::made("audio", &sound.init, &sound.segments);
    let (toolbox, cancel) = (clips::toolbox(), CancellationToken::new());
    let out = tempfile::tempdir().unwrap();
    let offset = seconds(film::OFFSET_SECONDS, 1);
    // Left there by a tool that meant no good.
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, out.path().join("video.list")).unwrap();

    let file =
        progressive_from_segments(&toolbox, &video, Some(&audio), offset, out.path(), &cancel).await.unwrap();

    assert_eq!(file.frames, 125);
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let summary = mp4_summary(&file.path).await.unwrap();
    assert!(summary.faststart && summary.truncated.is_none() && !summary.fragmented);
    // Both begin at zero: the film's offset is gone, and the encoder's first frame of sound is hidden again.
    assert_eq!(entries(&file.path, "stream=codec_type,start_time"), ["video,0.000000", "audio,0.000000"]);
    let joined = folder.path().join("joined.mp4");
    film::joined(&joined, std::iter::once(rung.init.clone()).chain(rung.segments.clone()));
    assert_eq!(pictures(&file.path), pictures(&joined));
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1, "no list is left");

    let mute = progressive_from_segments(&toolbox, &video, None, offset, out.path(), &cancel).await.unwrap();
    assert_eq!(entries(&mute.path, "stream=codec_type"), ["video"]);
}

#[tokio::test]
async fn a_source_becomes_one_file_by_one_encode() {
    let source = clips::plain();
    let (limits, probe) = (Limits::default(), clips::probed(&source).await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let args: Vec<OsString> = X264.iter().map(OsString::from).collect();
    let mut spec = ProgressiveSpec {
        source: &source,
        probe: &probe,
        limits: &limits,
        zero_us: 1_000_000,
        duration: seconds(1, 1),
        video_filter: "scale=160:90,fps=25,setsar=1",
        video_args: &args,
        audio_kbits: 96,
        frames: Some(25),
        folder: folder.path(),
    };
    let (toolbox, cancel) = (clips::toolbox(), CancellationToken::new());

    let file = progressive_from_source(&toolbox, &spec, &|_| {}, &cancel).await.unwrap();

    assert_eq!((file.frames, entries(&file.path, "stream=width")[0].as_str()), (25, "160"));
    assert!(mp4_summary(&file.path).await.unwrap().faststart);

    spec.frames = Some(26);
    let error = progressive_from_source(&toolbox, &spec, &|_| {}, &cancel).await.unwrap_err();
    assert_eq!(error.code(), "input_truncated");
}

#[tokio::test]
async fn a_source_that_is_cut_anywhere_is_never_a_short_film() {
    let source = clips::clip(
        "film_faststart.mp4",
        &[clips::VIDEO, clips::AUDIO, X264, AAC, &["-movflags", "+faststart"]].concat(),
    );
    let whole = std::fs::read(&source).unwrap();
    // The probe of a cut file would be refused: it became so after it.
    let probe = clips::probed(&source).await.unwrap();
    let limits = Limits::default();
    let args: Vec<OsString> = X264.iter().map(OsString::from).collect();
    for tenth in 1..10 {
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("cut.mp4");
        std::fs::write(&cut, &whole[..whole.len() * tenth / 10]).unwrap();
        let spec = ProgressiveSpec {
            source: &cut,
            probe: &probe,
            limits: &limits,
            zero_us: 0,
            duration: seconds(2, 1),
            video_filter: "fps=25",
            video_args: &args,
            audio_kbits: 96,
            frames: Some(50),
            folder: folder.path(),
        };

        let made =
            progressive_from_source(&clips::toolbox(), &spec, &|_| {}, &CancellationToken::new()).await;

        assert_eq!(made.unwrap_err().code(), "input_truncated", "{tenth}");
    }
}

#[tokio::test]
async fn a_segment_that_cannot_be_joined_is_not_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let rung = film::two_rungs(folder.path()).remove(0);
    let (toolbox, cancel) = (clips::toolbox(), CancellationToken::new());
    let out = tempfile::tempdir().unwrap();
    let offset = seconds(film::OFFSET_SECONDS, 1);
    // As FFmpeg sees it, there is no fragment; as its own atoms say, there is.
    let mut bytes = std::fs::read(&rung.segments[1]).unwrap();
    let moof = bytes.windows(4).position(|window| window == b"moof").unwrap();
    bytes[moof..moof + 4].copy_from_slice(b"free");
    std::fs::write(&rung.segments[1], bytes).unwrap();
    let video = film::made("180p", &rung.init, &rung.segments);

    let error =
        progressive_from_segments(&toolbox, &video, None, offset, out.path(), &cancel).await.unwrap_err();

    assert!(error.to_string().contains("segment 1"), "{error}");
}
