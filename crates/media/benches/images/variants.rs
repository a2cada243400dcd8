//! A photo of 24 megapixels to five sizes in JPEG and WebP: against sharp in its best chain, and ImageMagick.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use telecine_media::{Format, ImageSpec, ImageVariant, Limits, Program, VipsJob, make_images};
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, median, repository};
use crate::ground::Ground;

const WIDTHS: [u32; 5] = [2560, 1920, 1280, 640, 320];
const ROUNDS: usize = 5;
const MEMORY_MAX_MB: f64 = 150.0;

pub(crate) async fn figures(ground: &Ground) -> Vec<Figure> {
    let mut ours = Vec::new();
    let mut chains: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let has_sharp = install_sharp();
    for round in 1..=ROUNDS {
        eprintln!("variants, round {round} of {ROUNDS}");
        ours.push(make(ground).await);
        if has_sharp {
            for (chain, seconds) in sharp(ground) {
                chains.entry(chain).or_default().push(seconds);
            }
        }
    }
    let ours = median(ours);
    let mut figures =
        vec![Figure::at_most("images_24mp_peak_memory", peak_memory_mb(ground), "MB", MEMORY_MAX_MB, 1.0)];
    let best = chains.into_iter().map(|(name, seconds)| (median(seconds), name));
    if let Some((seconds, chain)) = best.min_by(|(a, _), (b, _)| a.total_cmp(b)) {
        eprintln!("sharp is fastest as {chain}");
        figures.push(Figure::at_most("images_24mp_vs_sharp", ours, "s", seconds, 1.1));
    }
    if let Some(seconds) = image_magick(ground) {
        figures.push(Figure::at_most("images_24mp_vs_imagemagick", ours, "s", seconds, 1.0 / 8.0));
    }
    figures
}

fn spec() -> ImageSpec {
    ImageSpec { variants: WIDTHS.map(ImageVariant::of_width).into(), ..ImageSpec::default() }
}

/// With the start of the process, hashes and the thumbhash, as in a job.
async fn make(ground: &Ground) -> f64 {
    let scratch = tempfile::tempdir().unwrap();
    let (limits, cancel, spec) = (Limits::default(), CancellationToken::new(), spec());
    let started = Instant::now();
    let set =
        make_images(&ground.toolbox, &ground.photo, Format::Jpeg, &spec, &limits, scratch.path(), &cancel)
            .await;
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(set.unwrap().outputs.len(), 10);
    seconds
}

/// The kernel's own high-water mark, looked at until the program is gone.
fn peak_memory_mb(ground: &Ground) -> f64 {
    let scratch = tempfile::tempdir().unwrap();
    let (spec, limits) = (spec(), Limits::default());
    let job = VipsJob { input: ground.photo.clone(), format: Format::Jpeg, spec, limits, threads: 2 };
    let mut command = Command::new(ground.toolbox.path(Program::VipsHelper).unwrap());
    command.arg(serde_json::to_string(&job).unwrap()).current_dir(scratch.path()).stdout(Stdio::null());
    command.env("MALLOC_MMAP_THRESHOLD_", "1048576");
    let mut child = command.spawn().unwrap();
    let mut peak_kb = 0.0_f64;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak_kb = kb.unwrap_or(peak_kb).max(peak_kb);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    peak_kb / 1024.0
}

fn sharp(ground: &Ground) -> BTreeMap<String, f64> {
    let widths = WIDTHS.map(|width| width.to_string()).join(",");
    let mut command = Command::new("node");
    command.arg("variants.mjs").arg(&ground.photo).arg(ground.folder.path().join("sharp")).arg(widths);
    let done = command.current_dir(sharp_folder()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn install_sharp() -> bool {
    if sharp_folder().join("node_modules/sharp").exists() {
        return true;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--no-audit", "--no-fund"]).current_dir(sharp_folder());
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let installed = done.is_ok_and(|status| status.success());
    if !installed {
        eprintln!("left out: sharp cannot be installed (npm ci in {})", sharp_folder().display());
    }
    installed
}

fn sharp_folder() -> PathBuf {
    repository().join("bench/peers/sharp")
}

/// One command for each output, as scripts do.
fn image_magick(ground: &Ground) -> Option<f64> {
    let programs = ["/usr/bin/magick", "/usr/bin/convert"];
    let Some(program) = programs.into_iter().find(|program| Path::new(program).exists()) else {
        eprintln!("left out: ImageMagick is not installed");
        return None;
    };
    eprintln!("ImageMagick");
    let started = Instant::now();
    for width in WIDTHS {
        for extension in ["jpg", "webp"] {
            let output = ground.folder.path().join(format!("magick-{width}.{extension}"));
            let mut command = Command::new(program);
            command.arg(&ground.photo).args(["-auto-orient", "-resize", &format!("{width}x")]);
            command.args(["-strip", "-quality", "80", "-interlace", "Plane"]).arg(output);
            assert!(command.status().unwrap().success());
        }
    }
    Some(started.elapsed().as_secs_f64())
}
