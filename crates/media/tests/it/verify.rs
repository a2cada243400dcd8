use std::path::Path;

use telecine_media::{
    AudioCodec, Channels, Limits, Loudness, MadeRendition, MediaError, Mp4Summary, Promise, PromisedRung,
    PromisedSound, SoundtrackSpec, Verified, VerifiedFile, VerifiedRendition, make_soundtrack, verify,
};
use tokio_util::sync::CancellationToken;

use crate::clips;
use crate::film::{self, H264, Rung, Shape, seconds};

/// Two rungs of 25 fps in segments of 50, 50 and 25 frames, with sound.
struct Film {
    promise: Promise,
    video: Vec<MadeRendition>,
    audio: Option<MadeRendition>,
    source: Option<Mp4Summary>,
}

impl Film {
    async fn made(folder: &Path) -> Self {
        let video = film::two_rungs(folder).into_iter().map(MadeRendition::from).collect();
        let rung = |name: &str, width, height| PromisedRung { name: name.to_owned(), width, height };
        let promise = Promise {
            rungs: vec![rung("180p", 320, 180), rung("90p", 160, 90)],
            segment_frames: vec![50, 50, 25],
            frame_rate: Some(seconds(25, 1)),
            offset: seconds(film::OFFSET_SECONDS, 1),
            sound: Some(PromisedSound { segments: 3, duration_us: 5_000_000 }),
            damaged_frames: 0,
            end_tolerance_frames: 0,
        };
        Self { promise, video, audio: Some(sound(folder).await), source: None }
    }

    /// As if each file had been told of as it is now.
    async fn verified(&self) -> Result<Verified, MediaError> {
        let now = |it: &MadeRendition| film::made(&it.name, &it.init, &it.segments);
        let (video, audio) = (self.video.iter().map(now).collect(), self.audio.as_ref().map(now));
        Self { promise: self.promise.clone(), video, audio, source: self.source.clone() }
            .verified_as_told()
            .await
    }

    async fn verified_as_told(&self) -> Result<Verified, MediaError> {
        let (toolbox, cancel) = (clips::toolbox(), CancellationToken::new());
        verify(&toolbox, &self.promise, &self.video, self.audio.as_ref(), self.source.as_ref(), &cancel).await
    }

    async fn refused(&self) -> (&'static str, String) {
        let error = self.verified().await.unwrap_err();
        (error.code(), error.to_string())
    }
}

impl From<Rung> for MadeRendition {
    fn from(rung: Rung) -> Self {
        film::made(&rung.name, &rung.init, &rung.segments)
    }
}

async fn sound(folder: &Path) -> MadeRendition {
    let tone = ["-f", "lavfi", "-i", "aevalsrc=0.2*sin(880*PI*t):s=48000:d=5", "-c:a", "pcm_s16le"];
    let source = clips::clip("five_seconds.wav", &tone);
    let (limits, probe) = (Limits::default(), clips::probed(&source).await.unwrap());
    let spec = SoundtrackSpec {
        source: &source,
        probe: &probe,
        limits: &limits,
        codec: AudioCodec::Aac,
        kbits: 64,
        channels: Channels::Stereo,
        loudness: Loudness::Keep,
        zero_us: 0,
        duration: seconds(5, 1),
        offset: seconds(film::OFFSET_SECONDS, 1),
        boundaries: &[seconds(2, 1), seconds(4, 1)],
        folder,
    };
    let made = make_soundtrack(&clips::toolbox(), &spec, &|_| {}, &CancellationToken::new()).await.unwrap();
    made.rendition()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn position(bytes: &[u8], atom: &[u8; 4]) -> usize {
    bytes.windows(4).position(|window| window == atom).unwrap()
}

#[tokio::test]
async fn what_was_promised_and_made_is_verified_with_its_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let film = Film::made(folder.path()).await;

    let verified = film.verified().await.unwrap();

    assert_eq!((verified.frames, verified.duration_us, verified.video.len()), (125, 5_000_000, 2));
    let sum = film::lines_of("sha256sum", &[film.video[1].segments[2].to_str().unwrap()]);
    assert!(sum[0].starts_with(&verified.video[1].segments[2].sha256), "{sum:?}");
    assert_eq!(verified.video[1].facts[2].frames, 25);
    assert_eq!(verified.audio.as_ref().unwrap().segments.len(), 3);
    // Manifests may name files by their hashes.
    let uri =
        |rung: &VerifiedRendition, file: &VerifiedFile| format!("{}/{}.m4s", rung.name, &file.sha256[..16]);
    let shown = verified.presentation(seconds(10, 1), seconds(25, 1), uri);
    let playlist = shown.hls_video(&shown.video[1]);
    assert!(
        playlist.contains(&format!("\n90p/{}.m4s\n", &verified.video[1].segments[2].sha256[..16])),
        "{playlist}"
    );
    assert!(shown.hls_master().contains("URI=\"90p-keyframes.m3u8\"") && shown.hls_audio().is_some());
}

#[tokio::test]
async fn a_film_that_ends_early_in_every_rung_had_a_truncated_source() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    film.video.iter_mut().for_each(|rung| rung.segments.truncate(2));
    assert_eq!(
        film.refused().await,
        ("input_truncated", "verify: the picture ends after 100 frames of 125: input_truncated".to_owned())
    );

    film.promise.segment_frames = vec![50, 50, 50];
    film.video = film::two_rungs(folder.path()).into_iter().map(MadeRendition::from).collect();
    let (code, detail) = film.refused().await;
    assert!(code == "input_truncated" && detail.contains("125 frames of 150"), "{detail}");

    film.promise.end_tolerance_frames = 25;
    assert_eq!(film.verified().await.unwrap().frames, 125);
}

#[tokio::test]
async fn rungs_that_disagree_are_our_own_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    film.video[1].segments.pop();
    let (code, detail) = film.refused().await;
    assert!(
        code == "unexpected" && detail.contains("segment 2 has 25 frames in 180p and no in 90p"),
        "{detail}"
    );

    let shape = Shape { size: "160x90", rate: "25", frames: 125, gop: 25 };
    film.video[1] = film::rung(folder.path(), "90p", shape, H264).into();
    let (code, detail) = film.refused().await;
    assert!(
        code == "unexpected" && detail.contains("segment 0 has 50 frames in 180p and 25 in 90p"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_hole_or_a_shift_in_time_is_seen_at_its_joint() {
    let folder = tempfile::tempdir().unwrap();
    let film = Film::made(folder.path()).await;
    change(&film.video[0].segments[1], |bytes| {
        let time = position(bytes, b"tfdt") + 8;
        bytes[time + 7] ^= 1;
    });
    let (code, detail) = film.refused().await;
    assert!(code == "unexpected" && detail.contains("180p: segment 0 ends at"), "{detail}");

    let film = Film::made(folder.path()).await;
    let mut late = film;
    late.promise.offset = seconds(251, 25);
    let (code, detail) = late.refused().await;
    assert!(code == "unexpected" && detail.contains("frame 0, in segment 0, is shown at"), "{detail}");
}

#[tokio::test]
async fn a_segment_must_begin_with_a_key_frame() {
    let folder = tempfile::tempdir().unwrap();
    let film = Film::made(folder.path()).await;
    change(&film.video[1].segments[1], |bytes| {
        let run = position(bytes, b"trun");
        assert_eq!(bytes[run + 7] & 4, 4, "the first sample has flags of its own");
        bytes[run + 16..run + 20].copy_from_slice(&0x0101_0000_u32.to_be_bytes());
    });

    let (code, detail) = film.refused().await;

    assert!(
        code == "unexpected" && detail.contains("90p: segment 1 does not begin with a key frame"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_segment_that_does_not_decode_is_made_again() {
    for end in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let film = Film::made(folder.path()).await;
        change(&film.video[0].segments[end], |bytes| {
            let media = position(bytes, b"mdat");
            bytes[media + 1200..media + 1700].fill(0xff);
        });

        let error = film.verified().await.unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), ("tool_failed", true), "{end}: {error}");
        assert!(error.to_string().contains("180p: segments [0, 2] do not decode"), "{error}");
    }
}

#[tokio::test]
async fn a_cut_segment_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let film = Film::made(folder.path()).await;
    change(&film.video[1].segments[1], |bytes| bytes.truncate(bytes.len() - 1));

    let (code, detail) = film.refused().await;

    assert!(code == "unexpected" && detail.contains("90p: segment 1: it ends early"), "{detail}");
}

#[tokio::test]
async fn sound_must_be_there_exactly_when_it_was_promised() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    let promised = film.promise.sound.take();
    assert!(film.refused().await.1.contains("no sound was promised"));

    film.promise.sound = promised;
    let audio = film.audio.take().unwrap();
    assert!(film.refused().await.1.contains("sound was promised, and none made"));

    film.audio = Some(MadeRendition { segments: audio.segments[..2].to_vec(), ..audio });
    assert!(film.refused().await.1.contains("2 segments of sound beside 3 of picture"));
}

#[tokio::test]
async fn a_source_that_was_cut_is_refused_whatever_was_made_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    film.source = Some(Mp4Summary {
        video_frames: None,
        file_bytes: 10,
        truncated: Some("mdat reaches to byte 20 of a file of 10 bytes".to_owned()),
        faststart: true,
        fragmented: false,
        duration_us: None,
    });

    assert_eq!(film.refused().await.0, "input_truncated");
}

#[tokio::test]
async fn a_segment_of_other_bytes_than_were_made_is_seen_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let film = Film::made(folder.path()).await;
    film.verified_as_told().await.unwrap();
    // Neither the first nor the last, which are decoded.
    change(&film.video[0].segments[1], |bytes| {
        let media = position(bytes, b"mdat") + 4;
        bytes[media..].fill(0);
    });
    film.verified().await.expect("nothing but the hash tells");

    let error = film.verified_as_told().await.unwrap_err();

    assert!(error.to_string().contains("180p: segment 1 has other bytes than were made"), "{error}");
}

#[tokio::test]
async fn ranges_of_another_init_segment_do_not_become_one_film() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    let other = film.video[1].hashes[0].init_sha256.clone();
    film.video[0].hashes[2].init_sha256 = other;

    let error = film.verified_as_told().await.unwrap_err();

    assert!(error.to_string().contains("180p: segment 2 was made with another init segment"), "{error}");
}

#[tokio::test]
async fn sound_alone_is_as_long_as_was_promised() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    film.promise.rungs.clear();
    film.promise.segment_frames.clear();
    film.video.clear();
    assert!(film.verified().await.unwrap().duration_us.abs_diff(5_000_000) < 100_000);

    let whole = film.audio.clone().unwrap();
    for left in [1, 2] {
        film.audio = Some(film::made("audio", &whole.init, &whole.segments[..left]));
        let (code, detail) = film.refused().await;
        assert_eq!(code, "unexpected");
        assert!(detail.contains(&format!("{left} segments of sound, and 3 were promised")), "{detail}");
        film.promise.sound = Some(PromisedSound { segments: left, duration_us: 5_000_000 });
        let (_, detail) = film.refused().await;
        assert!(detail.contains("and 5000000 us were promised"), "{detail}");
        film.promise.sound = Some(PromisedSound { segments: 3, duration_us: 5_000_000 });
    }
}

#[tokio::test]
async fn ranges_that_are_each_damaged_a_little_are_too_much_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut film = Film::made(folder.path()).await;
    film.promise.damaged_frames = 12;
    film.verified().await.unwrap();

    film.promise.damaged_frames = 13;

    let (code, detail) = film.refused().await;
    assert!(code == "input_corrupt" && detail.contains("13 frames of 125"), "{detail}");
}
