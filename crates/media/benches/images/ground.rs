//! What is measured on: real photos, a film made of them, and the programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use telecine_media::{Confinement, Toolbox};
use tempfile::TempDir;

use crate::figure::repository;

pub(crate) struct Ground {
    pub(crate) toolbox: Toolbox,
    pub(crate) folder: TempDir,
    /// 24 megapixels.
    pub(crate) photo: PathBuf,
    /// 12 s of 1080p30 at some 16 Mbit/s with cuts at 3, 6 and 9 s.
    pub(crate) film: PathBuf,
}

impl Ground {
    pub(crate) fn prepare() -> Self {
        build_helper();
        let folder = tempfile::tempdir().unwrap();
        let photos = photos(folder.path());
        let (photo, film) = (folder.path().join("photo.jpg"), folder.path().join("film.mp4"));
        eprintln!("making a photo of 24 megapixels and a film of 12 s");
        let grow = "scale=6000:6000:force_original_aspect_ratio=increase,crop=6000:4000";
        ffmpeg(Command::new("ffmpeg").arg("-i").arg(&photos[2]).args(["-vf", grow, "-q:v", "3"]).arg(&photo));
        make_film(&photos, &film);
        Self { toolbox: Toolbox::from_path(Confinement::None), folder, photo, film }
    }
}

/// Real ones where they can be fetched; drawn ones elsewhere, which is told.
fn photos(folder: &Path) -> Vec<PathBuf> {
    let fetched = Command::new(repository().join("scripts/fetch-samples")).output().unwrap();
    if fetched.status.success() {
        let samples = PathBuf::from(String::from_utf8(fetched.stdout).unwrap().trim());
        let names = [
            "pic2/IMG_20191224_234846.jpg",
            "pic2/IMG_20200124_231153.jpg",
            "pic2/IMG_20200608_111614.jpg",
            "pic1/IMG_20200827_231612.jpg",
        ];
        return names.iter().map(|name| samples.join(name)).collect();
    }
    eprintln!("no photos can be fetched; drawn ones are used, which compress better");
    let draw = |n: u32| {
        let path = folder.join(format!("drawn-{n}.jpg"));
        let source = format!("mandelbrot=size=4000x3000:start_scale={}", 3.0 / f64::from(n + 1));
        let mut command = Command::new("ffmpeg");
        command.args(["-f", "lavfi", "-i", &source, "-vf", "noise=alls=8", "-frames:v", "1", "-q:v", "3"]);
        ffmpeg(command.arg(&path));
        path
    };
    (0..4).map(draw).collect()
}

/// Pans over the photos with a sensor's noise.
fn make_film(photos: &[PathBuf], film: &Path) {
    let mut command = Command::new("ffmpeg");
    for photo in photos {
        command.args(["-loop", "1", "-framerate", "30", "-t", "3", "-i"]).arg(photo);
    }
    let pan = |n: usize| {
        let (x, y) = [("n*2", "n"), ("300-n", "n*2"), ("n*2", "300-n"), ("200-n", "n")][n];
        format!("[{n}]scale=2400:-2,crop=1920:1080:x='{x}':y='{y}',noise=alls=6:allf=t,setsar=1[p{n}];")
    };
    let pans: String = (0..4).map(pan).collect();
    let graph = format!("{pans}[p0][p1][p2][p3]concat=n=4:v=1,format=yuv420p");
    command.args(["-filter_complex", &graph, "-c:v", "libx264", "-preset", "veryfast", "-g", "60"]);
    ffmpeg(command.args(["-b:v", "16M", "-maxrate", "20M", "-bufsize", "20M"]).arg(film));
}

fn ffmpeg(command: &mut Command) {
    let done = command.args(["-v", "error", "-nostdin", "-y"]).output().expect("make setup installs ffmpeg");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn build_helper() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--release", "--locked", "-p", "telecine-vips"]);
    assert!(command.current_dir(repository()).status().unwrap().success());
}
