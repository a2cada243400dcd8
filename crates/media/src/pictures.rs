//! Pictures of a video: all that a recipe asks for out of one decode in one process, each able to fail alone.
//!
//! The decoded frames are split. What looks at every frame (scene cuts) looks at few pixels of it; what needs good
//! pixels selects its few frames before it scales them. So the branches together cost a few per cent of the decode.
//! When the process fails, the parts are tried again one by one, so that a bad one takes no other along.

mod branch;
mod collect;
mod look;
mod pass;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::capability::Piece;
use crate::error::{At, InputProblem, MediaError, Result};
use crate::limits::Limits;
use crate::probe::{Probe, VideoStream};
use crate::recipe::PicturesSpec;
use crate::tool::Toolbox;

use branch::{Branch, Part};
use look::Look;
use pass::{Frames, Pass, Ran};

const STEP: &str = "pictures";

/// What came of each picture that was asked for; `None` is what was not. Times count from the start of the film.
#[derive(Debug, Default)]
pub struct Pictures {
    pub poster: Option<Result<Poster>>,
    pub storyboard: Option<Result<Storyboard>>,
    pub preview: Option<Result<Preview>>,
    pub scenes: Option<Result<Vec<SceneCut>>>,
    pub frames: Option<Result<Vec<SampledFrame>>>,
    /// Of all processes that it took.
    pub cpu: Duration,
    /// How many it took.
    pub processes: u32,
}

/// A JPEG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Poster {
    pub path: PathBuf,
    pub width: u32,
    pub height: u32,
    pub at_us: u64,
    /// No frame that was looked at shows anything: this one is as dark as the rest.
    pub is_black: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Storyboard {
    /// JPEGs, in order.
    pub sprites: Vec<PathBuf>,
    /// WebVTT that names the sprites without a folder.
    pub vtt: PathBuf,
    pub tiles: Vec<Tile>,
}

/// One picture of a storyboard, which stands from its frame's own time to that of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tile {
    pub at_us: u64,
    pub sprite: usize,
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

/// An animated WebP that plays in a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    pub path: PathBuf,
    pub width: u32,
    pub height: u32,
    pub frames: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SceneCut {
    /// Of the first frame of the new scene.
    pub at_us: u64,
    /// How much of a cut it is, 0 to 100.
    pub score: f64,
}

/// A JPEG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SampledFrame {
    pub at_us: u64,
    pub path: PathBuf,
}

/// Makes the pictures in `scratch`. An `Err` means that none could even be tried.
pub async fn make_pictures(
    toolbox: &Toolbox,
    input: &Path,
    probe: &Probe,
    spec: &PicturesSpec,
    limits: &Limits,
    scratch: &Path,
    cancel: &CancellationToken,
) -> Result<Pictures> {
    let Some(video) = probe.video() else {
        let at = At::new(STEP, "there is no video to take pictures of");
        return Err(MediaError::bad_input(InputProblem::NoSuchStream, at));
    };
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| MediaError::io(STEP, "a folder has no path", &error))
    };
    let (input, scratch) = (absolute(input)?, absolute(scratch)?);
    let mut work = Work {
        pass: Pass { toolbox, input: &input, probe, video, limits, scratch: &scratch, cancel },
        look: Look::of(probe, video),
        spec,
        made: Pictures::default(),
    };
    work.all().await?;
    Ok(work.made)
}

/// Whether pictures are brought to the colours of every screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    Converted,
    Kept,
}

/// What the pictures need of the installation, those of a second try too.
pub(crate) fn pieces(
    spec: &PicturesSpec,
    probe: &Probe,
    video: &VideoStream,
    colours: Colours,
) -> BTreeSet<Piece> {
    let mut look = Look::of(probe, video);
    if colours == Colours::Kept {
        look.conversion = None;
    }
    let of_part = |part: Part| {
        let later = Branch::later_tries(part, &look, spec).into_iter().map(|(branch, _)| branch);
        std::iter::once(Branch::first_try(part, &look, spec)).chain(later).collect::<Vec<_>>()
    };
    let branches: Vec<Branch> = Part::wanted(spec).into_iter().flat_map(of_part).collect();
    if branches.is_empty() {
        return BTreeSet::new();
    }
    let encoders = branches.iter().filter_map(|branch| branch.encoder());
    let encoders = encoders.map(|name| Piece::Encoder(name.to_owned().into()));
    Piece::filters_of(&pass::graph(video, &branches)).into_iter().chain(encoders).collect()
}

struct Work<'a> {
    pass: Pass<'a>,
    look: Look<'a>,
    spec: &'a PicturesSpec,
    made: Pictures,
}

impl Work<'_> {
    async fn all(&mut self) -> Result<()> {
        let parts = Part::wanted(self.spec);
        if parts.is_empty() {
            return Ok(());
        }
        let together = self.together(&parts).await;
        if let Err(error @ MediaError::Cancelled { .. }) = together {
            return Err(error);
        }
        if let Err(error) = &together {
            tracing::warn!(%error, "pictures are tried one by one");
        }
        for part in parts.iter().copied() {
            let branch = Branch::first_try(part, &self.look, self.spec);
            let first = match &together {
                Ok(ran) => collect::part(self, part, &branch, ran),
                // With nobody to be dragged down by, the same try would fail in the same way.
                Err(_) if parts.len() == 1 => Err(None),
                Err(_) => self.apart(part, &branch, Frames::All).await,
            };
            self.settle(part, first, together.as_ref().err()).await?;
        }
        Ok(())
    }

    /// One decode for all. Films of which only few frames are wanted are not decoded whole.
    async fn together(&mut self, parts: &[Part]) -> Result<Ran> {
        let branches: Vec<Branch> =
            parts.iter().map(|part| Branch::first_try(*part, &self.look, self.spec)).collect();
        let frames = match parts {
            [Part::Poster] if self.spec.poster.as_ref().is_some_and(|poster| poster.at_ms.is_none()) => {
                self.look.poster_window()
            }
            // Fields are woven with those of the frames around, which must not be seconds away.
            [Part::Storyboard] | [Part::Poster, Part::Storyboard] if !self.pass.video.is_interlaced => {
                Frames::Key
            }
            _ => Frames::All,
        };
        match self.run(&branches, frames).await {
            Err(MediaError::Missing { pieces, .. }) if self.can_do_without(&pieces) => {
                tracing::warn!("colours are shown as they are: this FFmpeg cannot convert them");
                self.look.conversion = None;
                let branches: Vec<Branch> =
                    parts.iter().map(|part| Branch::first_try(*part, &self.look, self.spec)).collect();
                self.run(&branches, frames).await
            }
            ran => ran,
        }
    }

    fn can_do_without(&self, missing: &[Piece]) -> bool {
        let converts =
            |piece: &Piece| matches!(piece, Piece::Filter(name) if name == "zscale" || name == "tonemap");
        self.look.conversion.is_some() && missing.iter().all(converts)
    }

    async fn run(&mut self, branches: &[Branch], frames: Frames) -> Result<Ran> {
        self.made.processes += 1;
        let ran = self.pass.run(branches, frames).await?;
        self.made.cpu += ran.cpu;
        Ok(ran)
    }

    /// One part with a decode of its own.
    async fn apart(
        &mut self,
        part: Part,
        branch: &Branch,
        frames: Frames,
    ) -> Result<Collected, Option<MediaError>> {
        let ran = self.run(std::slice::from_ref(branch), frames).await?;
        collect::part(self, part, branch, &ran)
    }

    /// Keeps what the first try gave, or what later ones give that ask for less.
    async fn settle(
        &mut self,
        part: Part,
        first: Result<Collected, Option<MediaError>>,
        together: Option<&MediaError>,
    ) -> Result<()> {
        let mut outcome = first;
        for (branch, frames) in Branch::later_tries(part, &self.look, self.spec) {
            match &outcome {
                Ok(_) => break,
                Err(Some(MediaError::Cancelled { step })) => {
                    return Err(MediaError::Cancelled { step: step.clone() });
                }
                Err(_) => outcome = self.apart(part, &branch, frames).await,
            }
        }
        let nothing = || {
            let detail = together.map_or_else(|| "no frame came out".to_owned(), ToString::to_string);
            let tail = together.map(MediaError::stderr_tail).unwrap_or_default();
            let at = At::new(STEP, format!("{}: {detail}", part.name())).with_stderr(tail);
            MediaError::bad_input(InputProblem::Corrupt, at)
        };
        let outcome = outcome.map_err(|error| error.unwrap_or_else(nothing));
        self.keep(part, outcome);
        Ok(())
    }

    fn keep(&mut self, part: Part, outcome: Result<Collected>) {
        if let Err(error) = &outcome {
            tracing::warn!(part = part.name(), %error, "a picture could not be made");
        }
        let made = &mut self.made;
        match (part, outcome) {
            (_, Ok(Collected::Poster(poster))) => made.poster = Some(Ok(poster)),
            (_, Ok(Collected::Storyboard(storyboard))) => made.storyboard = Some(Ok(storyboard)),
            (_, Ok(Collected::Preview(preview))) => made.preview = Some(Ok(preview)),
            (_, Ok(Collected::Scenes(scenes))) => made.scenes = Some(Ok(scenes)),
            (_, Ok(Collected::Frames(frames))) => made.frames = Some(Ok(frames)),
            (Part::Poster, Err(error)) => made.poster = Some(Err(error)),
            (Part::Storyboard, Err(error)) => made.storyboard = Some(Err(error)),
            (Part::Preview, Err(error)) => made.preview = Some(Err(error)),
            (Part::Scenes, Err(error)) => made.scenes = Some(Err(error)),
            (Part::Frames, Err(error)) => made.frames = Some(Err(error)),
        }
    }
}

/// What one part left.
#[derive(Debug)]
enum Collected {
    Poster(Poster),
    Storyboard(Storyboard),
    Preview(Preview),
    Scenes(Vec<SceneCut>),
    Frames(Vec<SampledFrame>),
}
