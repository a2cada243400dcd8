//! `make bench`, the ladder: how long 1080p, 720p and 480p of a clip take in ranges, as a worker with a slot for each
//! core makes them; beside the CPU time of one single-threaded run of the same work and of its encoders alone, beside one
//! run for each rung in sequence, and beside a copy. The CPU time of all programs is told too: on a machine that does
//! other things it is the figure to look at.
//!
//! ```text
//! cargo bench -p telecine-media --bench ladder              # three rounds, some minutes
//! cargo bench -p telecine-media --bench ladder -- --quick   # one round
//! ```

#[allow(dead_code, reason = "others have figures without a target")]
mod figure;
mod limit;
mod sequence;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Instant;

use telecine_media::{
    Capabilities, Confinement, Limits, RangeEvent, RangeJob, Rational, Recipe, Remux, RemuxSpec,
    SegmentRange, Timeline, Toolbox, VideoPlan, encode_range, plan, probe, remux_to_segments,
};
use tokio_util::sync::CancellationToken;

use figure::{Figure, median};

const ROUNDS: usize = 3;
const RECIPE: &str = r#"{"video": {"ladder": {"heights": [1080, 720, 480]}}}"#;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only wants to know that it links.
    if !arguments.iter().any(|argument| argument == "--bench") || arguments.iter().any(|it| it == "--test") {
        return ExitCode::SUCCESS;
    }
    let rounds = if arguments.iter().any(|argument| argument == "--quick") { 1 } else { ROUNDS };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let figures = runtime.block_on(Box::pin(measure(rounds)));
    figure::print_table(&figures);
    figure::write_json(&figures);
    ExitCode::SUCCESS
}

async fn measure(rounds: usize) -> Vec<Figure> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = make_clip(folder.path());
    let fitting = make_fitting_clip(&source, folder.path());
    let plan = planned(&source).await;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut ours, mut cpu, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    let (mut encoders, mut sequences, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("ladder {}/{rounds}", round + 1);
        // In turn, so that a machine which slows down slows all of them.
        let spent = children_seconds();
        ours.push(told("  ours", encode_in_ranges(&source, &plan, cores).await));
        cpu.push(told("  ours, CPU", children_seconds() - spent));
        limits.push(told("  one single-threaded run, CPU", limit::one_run_seconds(&source, &plan)));
        encoders.push(told("  encoders alone, CPU", limit::encoder_seconds(&source, &plan)));
        sequences.push(told("  a run for each rung", sequence::wall_seconds(&source, &plan, folder.path())));
        copies.push(told("  a copy", copy_seconds(&fitting).await));
    }
    let (ours, cpu, limit, sequence) = (median(ours), median(cpu), median(limits), median(sequences));
    vec![
        Figure::at_most("ladder_wall", ours, "s", limit / cores as f64, 1.30),
        Figure::at_most("ladder_wall_of_encoders_alone", ours, "s", median(encoders) / cores as f64, 1.30),
        Figure::at_most("ladder_cpu", cpu, "CPU s", limit, 1.15),
        Figure::at_least("ladder_against_runs_in_sequence", sequence / ours, "times", 1.0, 1.2),
        Figure::at_least("remux_against_ladder", ours / median(copies), "times", 1.0, 50.0),
    ]
}

/// Sixteen seconds of 1080p: a phone's own recording (Debian's forensics-samples-files), over and over; or, where that
/// cannot be fetched, a made clip of a camera's bit rate.
fn make_clip(folder: &Path) -> PathBuf {
    let path = folder.join("clip.mp4");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin"]);
    match phone_clip() {
        Some(phone) => ffmpeg
            .args(["-stream_loop", "-1", "-i"])
            .arg(phone)
            .args(["-t", "16", "-map", "0:v:0", "-c", "copy"]),
        None => {
            eprintln!("the phone's clip cannot be fetched: another one is made, and the figures differ");
            ffmpeg
                .args([
                    "-f",
                    "lavfi",
                    "-i",
                    "testsrc2=size=1920x1080:rate=30:duration=16,noise=alls=4:allf=t",
                ])
                .args([
                    "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-b:v", "13M", "-g",
                    "30",
                ])
        }
    };
    assert!(ffmpeg.arg(&path).status().expect("ffmpeg is installed").success());
    path
}

/// The same pictures as a source has them that need not be encoded: a phone's own pace is not even enough for that, and
/// its bit rate too high. With sound, since it is copied too.
fn make_fitting_clip(clip: &Path, folder: &Path) -> PathBuf {
    let path = folder.join("fitting.mp4");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-i"])
        .arg(clip)
        .args(["-f", "lavfi", "-i", "sine=frequency=330:sample_rate=48000", "-shortest"])
        .args(["-vf", "fps=30,format=yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-b:v", "6M"])
        .args(["-g", "60", "-c:a", "aac", "-b:a", "128k"])
        .arg(&path)
        .status();
    assert!(made.expect("ffmpeg is installed").success());
    path
}

fn phone_clip() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-samples");
    let fetched = Command::new(script).output().ok().filter(|fetched| fetched.status.success())?;
    let folder = String::from_utf8(fetched.stdout).ok()?;
    Some(Path::new(folder.trim()).join("movie1/VID_20191220_170832.mp4")).filter(|clip| clip.exists())
}

async fn planned(source: &Path) -> VideoPlan {
    let (toolbox, cancel) = (toolbox(), CancellationToken::new());
    let recipe: Recipe = serde_json::from_str(RECIPE).expect("a valid recipe");
    let probe = probe(&toolbox, source, &Limits::default(), &cancel).await.expect("a good clip");
    let capabilities = Capabilities::detect(&toolbox, &cancel).await.expect("programs that answer");
    plan(&recipe, &probe, &capabilities).expect("a plan").video.expect("pictures")
}

fn toolbox() -> Toolbox {
    Toolbox::from_path(Confinement::None)
}

/// The plan's own ranges, first come first served by a slot for each core.
async fn encode_in_ranges(source: &Path, plan: &VideoPlan, slots: usize) -> f64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ranges = Mutex::new(plan.ranges.iter().copied());
    let next = || ranges.lock().expect("nobody panicked").next();
    let slot = |n: usize| {
        let (folder, next) = (folder.path().join(n.to_string()), &next);
        async move {
            std::fs::create_dir(&folder).expect("a folder");
            while let Some(range) = next() {
                encode(source, plan, range, &folder).await;
            }
        }
    };
    let started = Instant::now();
    let slots: Vec<_> = (0..slots).map(|n| Box::pin(slot(n))).collect();
    join_all(slots).await;
    started.elapsed().as_secs_f64()
}

async fn join_all(futures: Vec<impl Future<Output = ()> + Unpin>) {
    let mut futures = futures;
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| std::pin::Pin::new(future).poll(context).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

async fn encode(source: &Path, plan: &VideoPlan, range: SegmentRange, folder: &Path) {
    let job = RangeJob {
        plan,
        source,
        folder,
        range,
        skip: &[],
        limits: &Limits::default(),
        stall: RangeJob::STALL,
    };
    let mut tell = |_: RangeEvent| {};
    let done = Box::pin(encode_range(&toolbox(), &job, &CancellationToken::new(), &mut tell)).await;
    assert_eq!(done.expect("a range").segments.len(), range.segments().len());
}

/// The same pictures made ready for players without an encode, as is done when they fit.
async fn copy_seconds(source: &Path) -> f64 {
    let (folder, limits) = (tempfile::tempdir().expect("a temporary folder"), Limits::default());
    let cancel = CancellationToken::new();
    let probe = probe(&toolbox(), source, &limits, &cancel).await.expect("a good clip");
    let offset = Rational::new(i64::from(Timeline::OFFSET_SECONDS), 1).expect("a number of seconds");
    let spec = RemuxSpec {
        source,
        probe: &probe,
        limits: &limits,
        segment_seconds: 4,
        offset,
        folder: folder.path(),
    };
    let started = Instant::now();
    let copied = Box::pin(remux_to_segments(&toolbox(), &spec, &cancel)).await.expect("a copy");
    assert!(matches!(copied, Remux::Done(_)), "the clip does not fit: {copied:?}");
    started.elapsed().as_secs_f64()
}

/// The CPU time of all programs that this process has started and seen end.
fn children_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The program's name may have spaces; what follows its parenthesis has none.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(13).take(2).filter_map(|it| it.parse().ok()).collect();
    ticks.iter().sum::<f64>() / rustix::param::clock_ticks_per_second() as f64
}

fn told(what: &str, seconds: f64) -> f64 {
    eprintln!("{what} {seconds:.2} s");
    seconds
}
