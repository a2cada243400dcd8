//! Variants of a picture: one decode, any number of sizes and formats.
//!
//! libvips runs in a program of its own, `telecine-vips`: this process starts without the library, and a crash of a
//! decoder stays outside. The program looks at the header first and refuses what passes the limits before it decodes.

mod job;
mod placement;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::capability::Piece;
use crate::ending::require_whole;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::recipe::{ImageFormat, ImageSpec};
use crate::sniff::{Class, Format};
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
    let file_bytes = tokio::fs::metadata(&input).await;
    let file_bytes = file_bytes.map_err(|error| MediaError::io(STEP, "the input cannot be read", &error))?;
    limits.check_file_bytes(file_bytes.len())?;
    require_whole(&input, format, STEP).await?;

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let job = VipsJob { input, format, spec: spec.clone(), limits: limits.clone(), threads };
    let answer = ask(toolbox, &job, &scratch, cancel).await?;
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

async fn ask(
    toolbox: &Toolbox,
    job: &VipsJob,
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
        .readable(&job.input)
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
