//! Variants of a picture: one decode, any number of sizes and formats.
//!
//! libvips runs in a program of its own, `telecine-vips`: this process starts without the library, and a crash of a
//! decoder stays outside. The program looks at the header first and refuses what passes the limits before it decodes.

mod job;
mod placement;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::capability::Piece;
use crate::ending::require_whole;
use crate::error::{At, InputProblem, Interruption, MediaError, Result};
use crate::limits::Limits;
use crate::recipe::{ImageFormat, ImageSpec};
use crate::sniff::{Class, Format, require_regular};
use crate::tool::{Output, Program, ToolLimits, Toolbox};

pub use job::{ImageOutput, ImageSet, Refusal, VipsAnswer, VipsJob};
pub use placement::Placement;

const STEP: &str = "images";
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// Makes every variant of a picture in `scratch`, which also holds them when it returns.
///
/// `format` is what [`crate::sniff_file`] said. The paths of the outputs are absolute.
pub async fn make_images(
    toolbox: &Toolbox,
    input: &Path,
    format: Format,
    spec: &ImageSpec,
    limits: &Limits,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<ImageSet> {
    if format.class() != Class::Image {
        let at = At::new(STEP, format!("{} is not a picture", format.mime()));
        return Err(MediaError::bad_input(InputProblem::NoSuchStream, at));
    }
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| MediaError::io(STEP, "a folder has no path", &error))
    };
    let (input, scratch) = (absolute(input)?, absolute(scratch)?);
    limits.check_file_bytes(require_regular(&input, STEP).await?)?;
    require_whole(&input, format, STEP).await?;

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let name = Name::of(&input, &scratch)?;
    let job =
        VipsJob { input: name.path.clone(), format, spec: spec.clone(), limits: limits.clone(), threads };
    let answer = ask(toolbox, &job, &input, &scratch, cancel).await;
    let answer = answer.map_err(|error| explained(error, &scratch))?;
    drop(name);
    let mut set = match answer {
        VipsAnswer::Made(set) => set,
        VipsAnswer::Refused { why, detail } => {
            return Err(MediaError::bad_input(why.into(), At::new(STEP, detail)));
        }
    };
    for output in &mut set.outputs {
        output.path = scratch.join(&output.path);
    }
    Ok(set)
}

/// What the variants of a picture of that type need of libvips.
pub(crate) fn pieces(spec: &ImageSpec, source: Format) -> BTreeSet<Piece> {
    let savers = spec.variants.iter().flat_map(|variant| &variant.formats).map(|format| saver(*format));
    loader(source).into_iter().chain(savers).map(|name| Piece::VipsForeign(name.into())).collect()
}

fn loader(format: Format) -> Option<&'static str> {
    match format {
        Format::Jpeg => Some("VipsForeignLoadJpegFile"),
        Format::Png => Some("VipsForeignLoadPngFile"),
        Format::Webp => Some("VipsForeignLoadWebpFile"),
        Format::Gif => Some("VipsForeignLoadNsgifFile"),
        Format::Avif | Format::Heic => Some("VipsForeignLoadHeifFile"),
        _ => None,
    }
}

fn saver(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Jpeg => "VipsForeignSaveJpegFile",
        ImageFormat::Png => "VipsForeignSavePngFile",
        ImageFormat::Webp => "VipsForeignSaveWebpFile",
        ImageFormat::Avif => "VipsForeignSaveHeifFile",
        ImageFormat::Gif => "VipsForeignSaveCgifFile",
    }
}

/// What libvips calls the input: it takes text alone. A name that is none gets a link in scratch while it is read.
struct Name {
    path: PathBuf,
    link: Option<PathBuf>,
}

impl Name {
    fn of(input: &Path, scratch: &Path) -> Result<Self> {
        const LINK: &str = "input.link";
        if input.to_str().is_some() {
            return Ok(Self { path: input.to_owned(), link: None });
        }
        let link = scratch.join(LINK);
        std::os::unix::fs::symlink(input, &link)
            .map_err(|error| MediaError::io(STEP, "the input cannot be linked to", &error))?;
        // The program works in that folder, whose own name may be no text either.
        Ok(Self { path: LINK.into(), link: Some(link) })
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            let _ = std::fs::remove_file(link);
        }
    }
}

/// With less room than this left, nothing can be written.
const FULL_BYTES: u64 = 1 << 20;

/// libvips writes through mapped memory: where the disk is full, that ends in a crash and not in an error.
fn explained(error: MediaError, scratch: &Path) -> MediaError {
    let MediaError::Interrupted { cause, at } = error else { return error };
    let free = rustix::fs::statvfs(scratch).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let is_full = free.is_ok_and(|bytes| bytes < FULL_BYTES);
    let could_be = matches!(cause, Interruption::Crashed | Interruption::Failed);
    let cause = if is_full && could_be { Interruption::DiskFull } else { cause };
    MediaError::Interrupted { cause, at }
}

async fn ask(
    toolbox: &Toolbox,
    job: &VipsJob,
    input: &Path,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<VipsAnswer> {
    let unexpected = |what: &str, error: serde_json::Error| {
        MediaError::unexpected(At::new(STEP, format!("{what}: {error}")))
    };
    let text = serde_json::to_string(job).map_err(|error| unexpected("a path cannot be passed on", error))?;
    let tool = toolbox
        .tool(Program::VipsHelper, STEP)?
        .arg(text)
        // Large buffers go back to the system when they are freed: 113 MB at the most for a photo of 24 megapixels
        // instead of 145.
        .env("MALLOC_MMAP_THRESHOLD_", "1048576")
        .scratch(scratch)
        .readable(input)
        .stdout(Output::Capture { max_bytes: ANSWER_MAX_BYTES })
        .limits(ToolLimits {
            wall: Duration::from_secs(600),
            cpu: Some(Duration::from_secs(600)),
            ..ToolLimits::default()
        });
    let finished = tool.start(cancel)?.finish().await?;
    serde_json::from_slice(&finished.stdout).map_err(|error| unexpected("an answer is not as known", error))
}

impl From<Refusal> for InputProblem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooLarge => Self::TooLarge,
            Refusal::Truncated => Self::Truncated,
            Refusal::Corrupt => Self::Corrupt,
            Refusal::Unsupported => Self::Unsupported,
        }
    }
}
