//! Programs, codecs, and whether the sandbox holds.

use std::borrow::Cow;

use telecine_media::sandbox::{self, Kernel, KernelFeature, SelfTest};
use telecine_media::{Capabilities, Confinement, MediaError, Piece, Program, Toolbox};
use tokio_util::sync::CancellationToken;

use super::Check;

const INSTALL: &str = "install it: on Debian, `apt-get install ffmpeg libvips-tools`";

/// Without these nothing can be encoded.
const NEEDED: &[Piece] =
    &[encoder("libx264"), encoder("aac"), filter("scale"), filter("split"), filter("format")];

/// Without these some outputs cannot be made.
const WANTED: &[Piece] = &[
    encoder("libx265"),
    encoder("libsvtav1"),
    encoder("libopus"),
    encoder("libmp3lame"),
    encoder("libwebp_anim"),
    filter("zscale"),
    filter("tonemap"),
    filter("loudnorm"),
    filter("thumbnail"),
    filter("tile"),
    filter("select"),
    filter("overlay"),
    filter("colorchannelmixer"),
    filter("scdet"),
    filter("blackframe"),
    filter("bwdif"),
    filter("ebur128"),
    foreign("VipsForeignSaveWebpFile"),
    foreign("VipsForeignSaveJpegFile"),
    foreign("VipsForeignLoadHeifFile"),
];

const fn encoder(name: &'static str) -> Piece {
    Piece::Encoder(Cow::Borrowed(name))
}

const fn filter(name: &'static str) -> Piece {
    Piece::Filter(Cow::Borrowed(name))
}

const fn foreign(name: &'static str) -> Piece {
    Piece::VipsForeign(Cow::Borrowed(name))
}

pub(super) async fn checks(sandbox: bool) -> Vec<Check> {
    let kernel = Kernel::detect();
    let confinement = if sandbox { Confinement::launcher() } else { Confinement::None };
    let toolbox = Toolbox::from_path(confinement.clone());
    let mut checks = programs(&toolbox).await;
    checks.push(landlock(&kernel, sandbox));
    checks.push(seccomp(&kernel, sandbox));
    checks.push(cgroup(&kernel));
    checks.push(threads(&kernel));
    checks.push(if sandbox { escape(confinement).await } else { no_sandbox() });
    checks
}

async fn programs(toolbox: &Toolbox) -> Vec<Check> {
    // Under the very sandbox that work will run in: what does not start there is of no use.
    let capabilities = match Capabilities::detect(toolbox, &CancellationToken::new()).await {
        Ok(capabilities) => capabilities,
        Err(error) => return vec![Check::fail("programs", told(&error), error.hint())],
    };
    vec![
        program(Program::Ffmpeg, capabilities.ffmpeg_version.as_deref()),
        program(Program::Ffprobe, capabilities.ffprobe_version.as_deref()),
        program(Program::Vips, capabilities.vips_version.as_deref()),
        program(
            Program::VipsHelper,
            capabilities.has_vips_helper.then_some("beside this program, or in PATH"),
        ),
        needed(&capabilities),
        wanted(&capabilities),
    ]
}

fn program(program: Program, version: Option<&str>) -> Check {
    match (program, version) {
        (_, Some(version)) => Check::ok(program.name(), version),
        (Program::Ffmpeg | Program::Ffprobe, None) => {
            Check::fail(program.name(), "it is not in PATH", INSTALL)
        }
        (Program::VipsHelper, None) => Check::warn(
            program.name(),
            "it is neither beside this program nor in PATH: pictures cannot be made",
            "put it there; `cargo build --release` makes both",
        ),
        (Program::Vips, None) => {
            Check::warn(program.name(), "it is not in PATH: pictures cannot be made", INSTALL)
        }
    }
}

fn needed(capabilities: &Capabilities) -> Check {
    match missing(capabilities, NEEDED) {
        None => Check::ok("codecs needed", "H.264, AAC and the basic filters are there"),
        Some(names) => Check::fail(
            "codecs needed",
            format!("missing: {names}"),
            "install a build of FFmpeg that has them",
        ),
    }
}

fn wanted(capabilities: &Capabilities) -> Check {
    match missing(capabilities, WANTED) {
        None => Check::ok("codecs wanted", "H.265, AV1, Opus, MP3, WebP, HEIC, HDR, loudness: all there"),
        Some(names) => Check::warn(
            "codecs wanted",
            format!("missing: {names}"),
            "outputs that need them are refused; install builds of FFmpeg and libvips that have them",
        ),
    }
}

fn missing(capabilities: &Capabilities, pieces: &[Piece]) -> Option<String> {
    let names: Vec<String> =
        pieces.iter().filter(|piece| !capabilities.has(piece)).map(ToString::to_string).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn landlock(kernel: &Kernel, sandbox: bool) -> Check {
    let Some(abi) = kernel.landlock_abi else {
        return absent("landlock", KernelFeature::Landlock, sandbox);
    };
    let detail = format!("version {abi} (Linux {})", kernel.release);
    match kernel.locked_once().as_slice() {
        [] => Check::ok("landlock", detail),
        once => Check::warn(
            "landlock",
            format!("{detail}; only the filter on system calls closes: {}", once.join(", ")),
            "nothing must be done; Linux 6.12 or later puts a second lock on these",
        ),
    }
}

fn seccomp(kernel: &Kernel, sandbox: bool) -> Check {
    if kernel.seccomp {
        return Check::ok("seccomp", "system calls can be filtered");
    }
    absent("seccomp", KernelFeature::Seccomp, sandbox)
}

/// Fatal only where the sandbox is asked for.
fn absent(name: &'static str, feature: KernelFeature, sandbox: bool) -> Check {
    let detail = "this kernel does not offer it";
    if sandbox {
        Check::fail(name, detail, feature.next_step())
    } else {
        Check::warn(name, detail, feature.next_step())
    }
}

fn cgroup(kernel: &Kernel) -> Check {
    let next =
        "the sandbox bounds time and file sizes, not memory: give workers a memory limit by other means";
    match (kernel.cgroup_v2, kernel.cgroup_v2_memory) {
        (_, true) => Check::ok("cgroup v2", "a service manager can bound the memory of workers"),
        (true, false) => Check::warn("cgroup v2", "mounted, but without the memory controller", next),
        (false, false) => Check::warn("cgroup v2", "not mounted", next),
    }
}

fn threads(kernel: &Kernel) -> Check {
    if kernel.bounds_threads {
        return Check::ok("threads", "a tool that is taken over cannot start any number of them");
    }
    Check::warn(
        "threads",
        "root may start any number of them, and so may a tool that is taken over",
        "run as another user, or in a cgroup with `pids.max` (systemd: TasksMax, containers: --pids-limit)",
    )
}

async fn escape(confinement: Confinement) -> Check {
    const NAME: &str = "sandbox";
    let tested = async {
        let cannot = |error: std::io::Error| {
            Check::fail(NAME, error.to_string(), "make the temporary folder writable")
        };
        let folder = tempfile::tempdir().map_err(cannot)?;
        let binary = std::env::current_exe().map_err(cannot)?;
        let cancel = CancellationToken::new();
        sandbox::self_test(confinement, &binary, folder.path(), &cancel)
            .await
            .map_err(|error| Check::fail(NAME, told(&error), error.hint()))
    };
    match tested.await {
        Ok(test) => judged(NAME, &test),
        Err(check) => check,
    }
}

fn judged(name: &'static str, test: &SelfTest) -> Check {
    if test.holds() {
        let tried: Vec<&str> = test.attempts.iter().map(|attempt| attempt.name.as_str()).collect();
        return Check::ok(name, format!("a confined child could not: {}", tried.join(", ")));
    }
    let open = test.attempts.iter().filter(|attempt| !attempt.refused);
    let open: Vec<&str> = open.map(|attempt| attempt.name.as_str()).collect();
    Check::fail(
        name,
        format!("a confined child could: {}", open.join(", ")),
        "do not process strangers' files here, and report this with the kernel's version",
    )
}

fn no_sandbox() -> Check {
    Check::warn(
        "sandbox",
        "off: a hostile file that takes over ffmpeg has every right of this user",
        "leave out --no-sandbox and `sandbox = false`",
    )
}

/// With what the program said, if it said anything.
fn told(error: &MediaError) -> String {
    match error.stderr_tail().lines().last() {
        Some(line) => format!("{error}: {line}"),
        None => error.to_string(),
    }
}
