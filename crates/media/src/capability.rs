//! What the installed programs can do, asked once and kept as a value.

mod graph;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::error::{At, MediaError, Result};
use crate::sandbox::{Kernel, KernelFeature};
use crate::tool::{Output, Program, Toolbox};

const STEP: &str = "capabilities";
const LISTING_MAX_BYTES: usize = 4 << 20;

/// One thing that work may need of the installation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "type", content = "name", rename_all = "snake_case")]
pub enum Piece {
    Program(Program),
    /// An encoder of FFmpeg, e.g. `libx264`.
    Encoder(Cow<'static, str>),
    /// A filter of FFmpeg, e.g. `zscale`.
    Filter(Cow<'static, str>),
    /// A class of libvips that reads or writes a file type, e.g. `VipsForeignSaveWebpFile`.
    VipsForeign(Cow<'static, str>),
    /// What the sandbox needs of the kernel.
    Kernel(KernelFeature),
}

/// What was found. Listed does not mean that the hardware behind a hardware encoder is there.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Capabilities {
    pub ffmpeg_version: Option<String>,
    pub ffprobe_version: Option<String>,
    pub vips_version: Option<String>,
    pub has_vips_helper: bool,
    pub encoders: BTreeSet<String>,
    pub filters: BTreeSet<String>,
    pub vips_foreigns: BTreeSet<String>,
    pub kernel: Kernel,
    /// Encoders in hardware that were tried and gave frames; see [`Capabilities::try_hardware`].
    pub working_hardware: BTreeSet<String>,
}

impl Capabilities {
    /// Asks every program of the toolbox side by side. A program that is not there is a fact, not an error.
    pub async fn detect(toolbox: &Toolbox, cancel: &CancellationToken) -> Result<Self> {
        let ask = |program, args: &'static [&'static str]| answer(toolbox, program, args, cancel);
        let (ffmpeg, ffprobe, vips, encoders, filters, foreigns) = tokio::try_join!(
            ask(Program::Ffmpeg, &["-version"]),
            ask(Program::Ffprobe, &["-version"]),
            ask(Program::Vips, &["--version"]),
            ask(Program::Ffmpeg, &["-hide_banner", "-encoders"]),
            ask(Program::Ffmpeg, &["-hide_banner", "-filters"]),
            ask(Program::Vips, &["-l", "foreign"]),
        )?;
        Ok(Self {
            ffmpeg_version: ffmpeg.as_deref().and_then(ffmpeg_version),
            ffprobe_version: ffprobe.as_deref().and_then(ffmpeg_version),
            has_vips_helper: toolbox.has(Program::VipsHelper),
            vips_version: vips.as_deref().and_then(vips_version),
            encoders: encoders.as_deref().map(listed_encoders).unwrap_or_default(),
            filters: filters.as_deref().map(listed_filters).unwrap_or_default(),
            vips_foreigns: foreigns.as_deref().map(listed_foreigns).unwrap_or_default(),
            kernel: Kernel::detect(),
            working_hardware: BTreeSet::new(),
        })
    }

    pub fn has(&self, piece: &Piece) -> bool {
        match piece {
            Piece::Program(Program::Ffmpeg) => self.ffmpeg_version.is_some(),
            Piece::Program(Program::Ffprobe) => self.ffprobe_version.is_some(),
            Piece::Program(Program::Vips) => self.vips_version.is_some(),
            Piece::Program(Program::VipsHelper) => self.has_vips_helper,
            Piece::Encoder(name) => self.encoders.contains(name.as_ref()),
            Piece::Filter(name) => self.filters.contains(name.as_ref()),
            Piece::VipsForeign(name) => self.vips_foreigns.contains(name.as_ref()),
            Piece::Kernel(feature) => self.kernel.has(*feature),
        }
    }

    /// Names every piece that is missing, not only the first.
    pub fn require(&self, pieces: &[Piece]) -> Result<()> {
        let missing: Vec<Piece> = pieces.iter().filter(|piece| !self.has(piece)).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(MediaError::missing(missing, At::new(STEP, "the installed programs cannot do this")))
    }
}

async fn answer(
    toolbox: &Toolbox,
    program: Program,
    args: &[&str],
    cancel: &CancellationToken,
) -> Result<Option<String>> {
    if !toolbox.has(program) {
        return Ok(None);
    }
    let tool =
        toolbox.tool(program, STEP)?.args(args).stdout(Output::Capture { max_bytes: LISTING_MAX_BYTES });
    let finished = tool.start(cancel)?.finish().await?;
    Ok(Some(String::from_utf8_lossy(&finished.stdout).into_owned()))
}

/// `ffmpeg version 5.1.9-0+deb12u1 Copyright …`
fn ffmpeg_version(text: &str) -> Option<String> {
    text.split_whitespace().skip_while(|word| *word != "version").nth(1).map(str::to_owned)
}

/// `vips-8.14.1`
fn vips_version(text: &str) -> Option<String> {
    text.split_whitespace().next()?.strip_prefix("vips-").map(str::to_owned)
}

/// ` V....D libx264              H.264 / AVC …`: the line that ends the legend is ` ------`.
fn listed_encoders(text: &str) -> BTreeSet<String> {
    let lines = text.lines().skip_while(|line| !line.trim_start().starts_with("---")).skip(1);
    lines.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// ` ... zscale            V->V       Apply resizing …`: lines of the legend have no arrow in the third place.
fn listed_filters(text: &str) -> BTreeSet<String> {
    let named = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let name = words.next()?;
        words.next()?.contains("->").then(|| name.to_owned())
    };
    text.lines().filter_map(named).collect()
}

/// `      VipsForeignSaveWebpFile (webpsave), save image to …`
fn listed_foreigns(text: &str) -> BTreeSet<String> {
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    words.filter(|word| word.starts_with("VipsForeign")).map(str::to_owned).collect()
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => write!(f, "the program {program}"),
            Self::Encoder(name) => write!(f, "ffmpeg's encoder {name}"),
            Self::Filter(name) => write!(f, "ffmpeg's filter {name}"),
            Self::VipsForeign(name) => write!(f, "libvips' {name}"),
            Self::Kernel(feature) => write!(f, "the kernel's {feature}"),
        }
    }
}
