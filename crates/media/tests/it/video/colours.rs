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
