//! Patches of known colours through every way that colours are converted, in the film and in its poster.

use std::path::{Path, PathBuf};

use telecine_media::{Limits, PicturesSpec, PosterSpec, make_pictures};
use tokio_util::sync::CancellationToken;

use super::{encode_whole, planned_video};
use crate::clips::{self, probed};
use crate::film;

type Rgb = [i32; 3];

/// As a screen without HDR shows them, from left to right.
const PATCHES: [Rgb; 8] = [
    [0, 0, 0],
    [46, 46, 46],
    [118, 118, 118],
    [188, 188, 188],
    [255, 255, 255],
    [200, 50, 50],
    [50, 160, 50],
    [60, 80, 200],
];

/// How a clip of the patches is made.
struct Source<'a> {
    name: &'a str,
    patch: (u32, u32),
    /// To what `zscale` brings them.
    to: &'a str,
    encoder: &'a [&'a str],
}

impl Source<'_> {
    fn made(&self) -> PathBuf {
        let (width, height) = self.patch;
        let patches = PATCHES.iter().enumerate().map(|(n, [r, g, b])| {
            let size = format!("size={width}x{height}:rate=25:duration=1");
            format!("color=0x{r:02x}{g:02x}{b:02x}:{size},format=gbrp[p{n}];")
        });
        let labels: String = (0..PATCHES.len()).map(|n| format!("[p{n}]")).collect();
        let graph = format!(
            "{}{labels}hstack=inputs={},zscale=min=gbr:pin=bt709:tin=bt709:rin=full:r=limited:{}",
            patches.collect::<String>(),
            PATCHES.len(),
            self.to
        );
        clips::clip(self.name, &[&["-filter_complex", &graph][..], self.encoder].concat())
    }
}

/// The middle of each patch, as FFmpeg's own decoder and scaler show it.
fn patches_of(path: &Path) -> Vec<Rgb> {
    let (columns, rows) = (PATCHES.len() * 10, 10);
    let scale = format!("scale={columns}:{rows}:flags=area+accurate_rnd+full_chroma_int,format=rgb24");
    let input = path.to_str().unwrap();
    let pixels = film::output_of(
        "ffmpeg",
        &["-v", "error", "-i", input, "-vf", &scale, "-frames:v", "1", "-f", "rawvideo", "-"],
    );
    let middle = |patch: usize| {
        let at = (rows / 2 * columns + patch * 10 + 5) * 3;
        [0, 1, 2].map(|part| i32::from(pixels[at + part]))
    };
    (0..PATCHES.len()).map(middle).collect()
}

/// What a viewer of the highest rung sees, and of the poster.
async fn seen(source: &Path, height: u32) -> [(&'static str, Vec<Rgb>); 2] {
    let recipe =
        format!(r#"{{"video": {{"ladder": {{"heights": [{height}]}}, "crf": 8, "segment_seconds": 1}}}}"#);
    let plan = planned_video(source, &recipe).await;
    let encoded = encode_whole(source, &plan).await;
    let film = patches_of(&encoded.joined(&plan.rungs[0].name));

    let poster = PosterSpec { at_ms: Some(0), ..PosterSpec::default() };
    let spec = PicturesSpec { poster: Some(poster), ..PicturesSpec::default() };
    let (scratch, probe) = (tempfile::tempdir().unwrap(), probed(source).await.unwrap());
    let (limits, cancel) = (Limits::default(), CancellationToken::new());
    let toolbox = clips::toolbox();
    let made = make_pictures(&toolbox, source, &probe, &spec, &limits, scratch.path(), &cancel);
    let poster = Box::pin(made).await.unwrap().poster.unwrap().unwrap();
    [("film", film), ("poster", patches_of(&poster.path))]
}

fn assert_near(have: Rgb, wanted: Rgb, tolerance: i32, what: &str) {
    let is_near = have.iter().zip(wanted).all(|(have, wanted)| (have - wanted).abs() <= tolerance);
    assert!(is_near, "{what}: {have:?}, not {wanted:?}");
}

const X264: &[&str] = &["-c:v", "libx264", "-preset", "veryfast", "-crf", "4", "-pix_fmt", "yuv420p"];

#[tokio::test]
async fn wide_colours_are_narrowed_alike_in_the_film_and_its_poster() {
    for (name, to) in [
        ("wide-2020.mp4", "p=bt2020:t=bt2020-10:m=bt2020nc"),
        ("wide-p3.mp4", "p=smpte432:t=bt709:m=bt709"),
        ("wide-p3-srgb.mp4", "p=smpte432:t=iec61966-2-1:m=bt709"),
    ] {
        let source = Source { name, patch: (40, 180), to, encoder: X264 }.made();

        for (what, colours) in seen(&source, 180).await {
            for (have, wanted) in colours.into_iter().zip(PATCHES) {
                assert_near(have, wanted, 8, &format!("{name}, {what}"));
            }
        }
    }
}

#[tokio::test]
async fn plain_colours_stay_as_they_are_in_the_film_and_its_poster() {
    const FULL: &[&str] = &["-c:v", "libx264", "-preset", "veryfast", "-crf", "4", "-pix_fmt", "yuvj420p"];
    for (name, to, encoder) in [
        ("plain-709.mp4", "p=bt709:t=bt709:m=bt709", X264),
        ("plain-601.mp4", "p=bt709:t=bt709:m=smpte170m", X264),
        ("full-709.mp4", "p=bt709:t=bt709:m=bt709,format=yuv420p,zscale=r=full,format=yuvj420p", FULL),
        ("full-601.mp4", "p=bt709:t=bt709:m=smpte170m,format=yuv420p,zscale=r=full,format=yuvj420p", FULL),
    ] {
        let source = Source { name, patch: (40, 180), to, encoder }.made();

        for (what, colours) in seen(&source, 180).await {
            for (have, wanted) in colours.into_iter().zip(PATCHES) {
                assert_near(have, wanted, 8, &format!("{name}, {what}"));
            }
        }
    }
}

#[tokio::test]
async fn a_picture_that_says_nothing_is_taken_for_the_same_in_the_film_and_its_poster() {
    // Between the standard sizes, where one might guess either way.
    let untagged = "p=smpte170m:t=smpte170m:m=smpte170m,format=yuv420p,setparams=range=unspecified:\
                    color_primaries=unknown:color_trc=unknown:colorspace=unknown";
    let source = Source { name: "untagged.mp4", patch: (80, 600), to: untagged, encoder: X264 }.made();
    assert_eq!(probed(&source).await.unwrap().video().unwrap().colour_matrix, None);

    let [(_, film), (_, poster)] = seen(&source, 600).await;

    for (film, poster) in film.into_iter().zip(poster) {
        assert_near(film, poster, 6, "film and poster");
    }
}

/// H.265 of ten bits, as phones and cameras write it.
fn hdr_source(name: &str, transfer: &str, white_nits: u32, more_params: &str) -> PathBuf {
    let to = format!("p=bt2020:t={transfer}:m=bt2020nc:npl={white_nits},format=yuv420p10le");
    let params = format!(
        "log-level=error:colorprim=bt2020:transfer={transfer}:colormatrix=bt2020nc:range=limited{more_params}"
    );
    let x265 = ["-c:v", "libx265", "-preset", "ultrafast", "-crf", "8", "-x265-params", &params];
    Source { name, patch: (40, 180), to: &to, encoder: &x265 }.made()
}

/// Red is 0, green 120, blue 240.
fn hue_degrees([r, g, b]: Rgb) -> f64 {
    let [r, g, b] = [r, g, b].map(f64::from);
    (3.0_f64.sqrt() * (g - b)).atan2(2.0 * r - g - b).to_degrees().rem_euclid(360.0)
}

fn saturation(colour: Rgb) -> f64 {
    let most = f64::from(colour.into_iter().max().unwrap_or(0).max(1));
    1.0 - f64::from(colour.into_iter().min().unwrap_or(0)) / most
}

#[tokio::test]
async fn hdr_looks_as_its_tones_would_in_sdr() {
    let mastered = ":hdr10=1:max-cll=4000,400:\
                    master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(40000000,50)";
    for (name, transfer, params) in [
        ("patches-pq.mp4", "smpte2084", ""),
        ("patches-pq-mastered.mp4", "smpte2084", mastered),
        ("patches-hlg.mp4", "arib-std-b67", ""),
    ] {
        let source = hdr_source(name, transfer, 203, params);
        assert!(probed(&source).await.unwrap().video().unwrap().hdr.is_some(), "{name}");

        for (what, colours) in seen(&source, 180).await {
            let what = format!("{name}, {what}: {colours:?}");
            let [black, dark, grey, light, white, coloured @ ..] = colours.as_slice() else {
                panic!("{what}")
            };
            assert_near(*black, [0; 3], 4, &what);
            assert_near(*dark, PATCHES[1], 6, &what);
            assert_near(*grey, PATCHES[2], 6, &what);
            assert_near(*light, PATCHES[3], 12, &what);
            // Room is left above it for what shines.
            assert_near(*white, [218; 3], 12, &what);
            for (have, wanted) in coloured.iter().zip(&PATCHES[5..]) {
                let turned = (hue_degrees(*have) - hue_degrees(*wanted) + 180.0).rem_euclid(360.0) - 180.0;
                assert!(turned.abs() < 5.0, "{what}: {have:?} is turned by {turned} degrees from {wanted:?}");
                assert!((saturation(*have) - saturation(*wanted)).abs() < 0.08, "{what}: {have:?}");
                assert_near(*have, *wanted, 16, &what);
            }
        }
    }
}

#[tokio::test]
async fn what_shines_in_hdr_is_white_and_not_grey() {
    for (name, transfer) in [("bright-pq.mp4", "smpte2084"), ("bright-hlg.mp4", "arib-std-b67")] {
        let source = hdr_source(name, transfer, 1000, "");

        for (what, colours) in seen(&source, 180).await {
            let what = format!("{name}, {what}: {colours:?}");
            assert_near(colours[4], [255; 3], 4, &what);
            let greys: Vec<i32> = colours[..5].iter().map(|[r, _, _]| *r).collect();
            assert!(greys.is_sorted() && greys[3] < 250, "tones stay apart: {what}");
        }
    }
}
