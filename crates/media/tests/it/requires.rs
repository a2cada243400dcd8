//! What a plan says it needs, held against what the programs are really told.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::thread::JoinHandle;

use telecine_media::{
    Capabilities, Channels, Confinement, Limits, Loudness, Piece, Plan, Probe, Program, RangeJob, Rational,
    Recipe, SoundtrackSpec, Timeline, Toolbox, encode_range, make_audio, make_pictures, make_soundtrack,
    plan,
};
use tokio_util::sync::CancellationToken;

use crate::clips::{self, probed};
use crate::video;

const EVERYTHING: &str = r#"{
    "video": {"ladder": {"heights": [180, 120]}, "segment_seconds": 2, "loudness": "normalise"},
    "pictures": {"poster": {}, "storyboard": {}, "preview": {}, "scenes": true, "frames": {}},
    "audio": {"formats": [{"codec": "aac"}, {"codec": "opus"}, {"codec": "mp3"}], "loudness": "normalise",
              "waveform_points_per_second": 10},
    "images": {"variants": [{"width": 160, "formats": ["jpeg", "webp", "png", "avif", "gif"]}]}
}"#;

fn recipe() -> Recipe {
    serde_json::from_str(EVERYTHING).unwrap()
}

async fn capabilities() -> Capabilities {
    Capabilities { has_vips_helper: true, ..video::capabilities().await.clone() }
}

fn without(piece: &Piece, all: &Capabilities) -> Capabilities {
    let mut left = all.clone();
    match piece {
        Piece::Program(Program::Ffmpeg) => left.ffmpeg_version = None,
        Piece::Program(Program::VipsHelper) => left.has_vips_helper = false,
        Piece::Encoder(name) => assert!(left.encoders.remove(name.as_ref()), "{name}"),
        Piece::Filter(name) => assert!(left.filters.remove(name.as_ref()), "{name}"),
        Piece::VipsForeign(name) => assert!(left.vips_foreigns.remove(name.as_ref()), "{name}"),
        Piece::Program(_) | Piece::Kernel(_) => panic!("{piece} is not needed by a plan"),
    }
    left
}

#[tokio::test]
async fn each_piece_that_any_output_needs_is_missed_before_anything_runs() {
    let (recipe, all) = (recipe(), capabilities().await);
    let probe = probed(&clips::plain()).await.unwrap();
    let requires = plan(&recipe, &probe, &all).unwrap().requires;

    for name in ["libx264", "aac", "libopus", "libmp3lame", "libwebp_anim", "mjpeg"] {
        assert!(requires.contains(&Piece::Encoder(name.to_owned().into())), "{name}: {requires:?}");
    }
    // What has a way around it is told as a loss, not missed.
    let is_needed = |piece: &&Piece| **piece != Piece::Filter("zscale".into());
    for piece in requires.iter().filter(is_needed) {
        let error = plan(&recipe, &probe, &without(piece, &all)).unwrap_err();

        assert_eq!((error.code(), error.is_retryable()), ("capability_missing", false), "{piece}");
        assert!(error.to_string().ends_with(&format!("missing {piece}")), "{piece}: {error}");
    }
}

#[tokio::test]
async fn outputs_that_are_not_asked_for_need_nothing() {
    let bare = Capabilities { ffmpeg_version: Some("5.1.9".into()), ..Capabilities::default() };
    let probe = probed(&clips::plain()).await.unwrap();

    for (recipe, missing) in [
        (r"{}", ""),
        (r#"{"pictures": {"scenes": true}}"#, "scdet"),
        (r#"{"audio": {"formats": [{"codec": "opus"}]}}"#, "libopus"),
        (r#"{"images": {}}"#, "telecine-vips"),
    ] {
        let outcome = plan(&serde_json::from_str(recipe).unwrap(), &probe, &bare);

        let told = outcome.map(|_| String::new()).unwrap_or_else(|error| error.to_string());
        assert!(told.contains(missing) && told.is_empty() == missing.is_empty(), "{recipe}: {told}");
        assert!(!told.contains("libx264") && !told.contains("mjpeg"), "{recipe}: {told}");
    }
}

/// What an FFmpeg was told that passes it on, a line for each argument. It goes through a pipe: some command lines may
/// write to no file at all, and a file would be written to before or after that limit is set, as chance will have it.
struct Eavesdropper {
    pipe: File,
    lines: JoinHandle<Vec<String>>,
}

const END: &str = "-- the end --";

impl Eavesdropper {
    fn new(folder: &Path) -> (Toolbox, Self) {
        let [script, pipe, lock] = ["ffmpeg", "told", "lock"].map(|name| folder.join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        let real = clips::toolbox().path(Program::Ffmpeg).unwrap().display().to_string();
        let (told, lock) = (pipe.display(), lock.display());
        // One at a time: a long write to a pipe may be cut in two by another.
        let text = format!(
            "exec 9> {lock}\nflock 9\nprintf '%s\\n' \"$@\" > {told}\nexec 9>&-\nexec {real} \"$@\"\n"
        );
        clips::script(&script, &text);
        let pipe = File::options().read(true).write(true).open(&pipe).unwrap();
        let reader = BufReader::new(pipe.try_clone().unwrap());
        let lines = std::thread::spawn(move || {
            reader.lines().map(Result::unwrap).take_while(|line| line != END).collect::<Vec<String>>()
        });
        (Toolbox::from_path(Confinement::None).with(Program::Ffmpeg, script), Self { pipe, lines })
    }

    fn heard(mut self) -> Vec<String> {
        writeln!(self.pipe, "{END}").unwrap();
        self.lines.join().unwrap()
    }
}

/// Encoders and filters of all command lines.
fn told(lines: &[String], known: &Capabilities) -> BTreeSet<Piece> {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut pieces = BTreeSet::new();
    for pair in lines.windows(2) {
        match pair {
            ["-c:v" | "-c:a", "copy"] => {}
            ["-c:v" | "-c:a", encoder] => {
                pieces.insert(Piece::Encoder((*encoder).to_owned().into()));
            }
            ["-filter_complex", graph] => pieces.extend(filters(graph, known)),
            _ => {}
        }
    }
    pieces
}

/// Whatever stands between commas, semicolons and labels and is a filter's name.
fn filters<'a>(graph: &'a str, known: &'a Capabilities) -> impl Iterator<Item = Piece> {
    let outside_quotes = graph.split('\'').step_by(2);
    let words = outside_quotes.flat_map(|part| part.split([',', ';', '[', ']']));
    let names = words.map(|word| word.split('=').next().unwrap());
    names.map(|name| Piece::Filter(name.to_owned().into())).filter(|piece| known.has(piece))
}

async fn run_all(toolbox: &Toolbox, source: &Path, probe: &Probe, plan: &Plan) {
    let (folder, limits, cancel) =
        (tempfile::tempdir().unwrap(), Limits::default(), CancellationToken::new());
    let (recipe, video) = (recipe(), plan.video.as_ref().unwrap());
    let scratch = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let film = scratch("film");
    let job = RangeJob {
        plan: video,
        source,
        folder: &film,
        range: video.grid.whole(),
        skip: &[],
        limits: &limits,
        stall: RangeJob::STALL,
    };
    Box::pin(encode_range(toolbox, &job, &cancel, &mut |_| {})).await.unwrap();
    let spec = SoundtrackSpec {
        source,
        probe,
        limits: &limits,
        codec: plan.sound.as_ref().unwrap().codec,
        kbits: 96,
        channels: Channels::Stereo,
        loudness: Loudness::Normalise,
        zero_us: 0,
        duration: Rational::new(2, 1).unwrap(),
        offset: Rational::new(i64::from(Timeline::OFFSET_SECONDS), 1).unwrap(),
        boundaries: &[],
        folder: &scratch("sound"),
    };
    Box::pin(make_soundtrack(toolbox, &spec, &|_| {}, &cancel)).await.unwrap();
    let (spec, folder) = (recipe.pictures.unwrap(), scratch("pictures"));
    let pictures = make_pictures(toolbox, source, probe, &spec, &limits, &folder, &cancel);
    assert!(Box::pin(pictures).await.unwrap().preview.unwrap().is_ok());
    let spec = recipe.audio.unwrap();
    Box::pin(make_audio(toolbox, source, probe, &spec, &limits, &scratch("audio"), &cancel)).await.unwrap();
}

#[tokio::test]
async fn nothing_is_used_that_was_not_required() {
    let folder = tempfile::tempdir().unwrap();
    let (toolbox, eavesdropper) = Eavesdropper::new(folder.path());
    let source = clips::plain();
    let probe = probed(&source).await.unwrap();
    let capabilities = capabilities().await;
    let plan = plan(&recipe(), &probe, &capabilities).unwrap();

    run_all(&toolbox, &source, &probe, &plan).await;

    let required: BTreeSet<Piece> = plan.requires.iter().cloned().collect();
    let used = told(&eavesdropper.heard(), &capabilities);
    assert!(used.len() > 25, "{used:?}");
    let surprises: Vec<String> = used.difference(&required).map(ToString::to_string).collect();
    assert!(surprises.is_empty(), "{surprises:?}");
}
