//! A film between its encoders and its audience: segments and sound as the records tell of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use telecine_media::{
    Delivery, MadeRendition, Packaging, Plan, Promise, PromisedRung, PromisedSound, Rational, SegmentHashes,
    Timeline, TrackKind, Verified, mp4_summary, verify,
};

use crate::blobs::{StoreError, hash_file};
use crate::failure::{Attempted, Failed};
use crate::keys;
use crate::kinds::Attempt;
use crate::records::{PlanRecord, SegmentRecord, SoundRecord, StoredFile, read_all};

/// The one constant by which all timestamps are shifted.
pub(crate) const OFFSET: Rational = Rational::whole(Timeline::OFFSET_SECONDS as i64);
/// The name of the sound among renditions.
pub(crate) const SOUND: &str = "audio";
/// Segments that are fetched from a bucket side by side.
const FETCHES: usize = 8;

/// What the records of a run say of one film.
#[derive(Clone, Debug)]
pub(crate) struct Film {
    plan: Plan,
    segments: Vec<SegmentRecord>,
    sound: Option<SoundRecord>,
}

/// A film whose files are all on this machine.
#[derive(Debug)]
pub(crate) struct LocalFilm {
    pub(crate) rungs: Vec<MadeRendition>,
    pub(crate) sound: Option<MadeRendition>,
    /// What each file is.
    stored: BTreeMap<PathBuf, StoredFile>,
}

/// The stored segments of a film, by number.
async fn stored_segments(attempt: &Attempt<'_>, step: &str) -> Attempted<BTreeMap<u32, SegmentRecord>> {
    let all = read_all::<SegmentRecord>(&*attempt.shop.queue, attempt.run).await?;
    let of_step = all.into_iter().map(|(_, record)| record).filter(|record| record.step == step);
    Ok(of_step.map(|record| (record.segment, record)).collect())
}

/// How long the segments of a step's film should be.
pub(crate) async fn seconds_of_segment(attempt: &Attempt<'_>, step: &str) -> Attempted<u32> {
    let meta = attempt.meta().await?;
    let wanted = meta.recipe.step(step).and_then(|step| step.does.media()).and_then(|recipe| recipe.video);
    wanted.map(|video| video.segment_seconds).ok_or_else(|| Failed::unexpected("the step makes no film"))
}

pub(crate) async fn store_sound(
    attempt: &Attempt<'_>,
    step: &str,
    init: &Path,
    segments: &[PathBuf],
) -> Attempted<(StoredFile, Vec<StoredFile>)> {
    let init = attempt.store_hashed(step, init, |sha256| keys::init_path(SOUND, sha256)).await?;
    let mut stored = Vec::with_capacity(segments.len());
    for (number, file) in segments.iter().enumerate() {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let path = |sha256: &str| keys::segment_path(SOUND, number, sha256, "m4s");
        stored.push(attempt.store_hashed(step, file, path).await?);
    }
    Ok((init, stored))
}

pub(crate) fn channels_of(kind: TrackKind) -> u32 {
    match kind {
        TrackKind::Audio { channels, .. } => channels,
        TrackKind::Video { .. } => 0,
    }
}

impl Film {
    /// All of it must be stored: whoever calls this waited for those who make it.
    pub(crate) async fn read(attempt: &Attempt<'_>, step: &str) -> Attempted<Self> {
        let PlanRecord { plan } = attempt.read(step).await?;
        let stored = stored_segments(attempt, step).await?;
        let sound = match &plan.sound {
            Some(_) => Some(attempt.read::<SoundRecord>(step).await?),
            None => None,
        };
        let film = Self { segments: stored.into_values().collect(), sound, plan };
        film.require_contiguous()?;
        Ok(film)
    }

    fn require_contiguous(&self) -> Attempted<()> {
        let is_contiguous = self.segments.iter().enumerate().all(|(n, it)| n as u64 == u64::from(it.segment));
        let planned = match &self.plan.video {
            Some(video) if video.delivery == Delivery::Encode => Some(video.grid.segments as usize),
            // A copy has as many as the source's key frames allow.
            Some(_) => None,
            None => Some(0),
        };
        if is_contiguous && planned.is_none_or(|planned| planned == self.segments.len()) {
            return Ok(());
        }
        Err(Failed::unexpected(format!("{} of {planned:?} segments are stored", self.segments.len())))
    }

    /// The film with its highest rung alone.
    pub(crate) fn of_best_rung(mut self) -> Self {
        if let Some(video) = &mut self.plan.video {
            video.rungs.truncate(1);
            let best = video.rungs.first().map(|rung| rung.name.clone()).unwrap_or_default();
            for segment in &mut self.segments {
                segment.files.retain(|file| file.rung == best);
            }
        }
        self
    }

    pub(crate) fn wants(&self, packaging: Packaging) -> bool {
        self.plan.packaging.contains(&packaging)
    }

    pub(crate) fn has_sound(&self) -> bool {
        self.sound.is_some()
    }

    pub(crate) fn rung_names(&self) -> Vec<&str> {
        self.plan.video.iter().flat_map(|video| &video.rungs).map(|rung| rung.name.as_str()).collect()
    }

    pub(crate) fn frame_rate(&self) -> Rational {
        self.plan.video.as_ref().map_or(Rational::ONE, |video| video.timeline.fps)
    }

    /// Every file of it, each once.
    pub(crate) fn files(&self) -> Vec<StoredFile> {
        let of_rungs =
            self.segments.iter().flat_map(|segment| &segment.files).flat_map(|it| [&it.init, &it.file]);
        let of_sound =
            self.sound.iter().flat_map(|sound| std::iter::once(&sound.init).chain(&sound.segments));
        let by_key: BTreeMap<&str, &StoredFile> =
            of_rungs.chain(of_sound).map(|file| (file.key.as_str(), file)).collect();
        by_key.into_values().cloned().collect()
    }

    /// Brings every file to this machine, where the store is elsewhere. What came from there has the bytes that were stored;
    /// whether what lies here still has them, only [`Film::verify`] knows, who reads it.
    pub(crate) async fn localise(&self, attempt: &Attempt<'_>) -> Attempted<LocalFilm> {
        let folder = attempt.subfolder("film")?;
        let fetched = stream::iter(self.files().into_iter().enumerate().map(|(number, file)| {
            let copy = folder.join(format!("{number:06}"));
            async move { Ok::<_, Failed>((localised(attempt, &file, copy).await?, file)) }
        }));
        let local: Vec<(PathBuf, StoredFile)> = fetched.buffer_unordered(FETCHES).try_collect().await?;
        let by_key: BTreeMap<&str, &PathBuf> =
            local.iter().map(|(path, file)| (file.key.as_str(), path)).collect();
        let at =
            |file: &StoredFile| by_key.get(file.key.as_str()).map(|path| (*path).clone()).unwrap_or_default();
        let rung = |name: &&str| {
            let files: Vec<_> =
                self.segments.iter().flat_map(|it| &it.files).filter(|it| it.rung == *name).collect();
            let init = files.first().map(|it| at(&it.init)).unwrap_or_default();
            MadeRendition {
                name: (*name).to_owned(),
                init,
                segments: files.iter().map(|it| at(&it.file)).collect(),
                hashes: files.iter().map(|it| hashes(&it.file, &it.init)).collect(),
            }
        };
        let sound = |sound: &SoundRecord| MadeRendition {
            name: SOUND.to_owned(),
            init: at(&sound.init),
            segments: sound.segments.iter().map(at).collect(),
            hashes: sound.segments.iter().map(|file| hashes(file, &sound.init)).collect(),
        };
        Ok(LocalFilm {
            rungs: self.rung_names().iter().map(rung).collect(),
            sound: self.sound.as_ref().map(sound),
            stored: local.into_iter().collect(),
        })
    }

    /// Proves that what is stored is what was planned.
    pub(crate) async fn verify(
        &self,
        attempt: &Attempt<'_>,
        step: &str,
        local: &LocalFilm,
    ) -> Attempted<Verified> {
        let video = self.plan.video.as_ref();
        let rungs = video.into_iter().flat_map(|video| &video.rungs).map(|rung| PromisedRung {
            name: rung.name.clone(),
            width: rung.size.width,
            height: rung.size.height,
        });
        let promise = Promise {
            rungs: rungs.collect(),
            segment_frames: self.segments.iter().map(|segment| segment.frames).collect(),
            frame_rate: video
                .filter(|video| video.delivery == Delivery::Encode)
                .map(|video| video.timeline.fps),
            offset: OFFSET,
            sound: self.promised_sound(attempt, step).await?,
            damaged_frames: self.damaged_frames(),
            end_tolerance_frames: 0,
        };
        let (_, source) = attempt.input().await?;
        // Only sources with atoms have one.
        let summary = mp4_summary(source.path()).await.ok();
        let toolbox = &attempt.toolbox;
        let sound = local.sound.as_ref();
        match verify(toolbox, &promise, &local.rungs, sound, summary.as_ref(), &attempt.cancel).await {
            Ok(verified) => Ok(verified),
            Err(error) => {
                // Files that lie here were not read before.
                if attempt.shop.blobs.is_folder() {
                    local.require_unchanged(attempt).await?;
                }
                Err(error.into())
            }
        }
    }
}

impl Film {
    /// Frames that are not what the source showed, because it could not be decoded.
    pub(crate) fn damaged_frames(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.damaged_frames)).sum()
    }

    /// How much of the sound is silence, because it could not be decoded.
    pub(crate) fn damaged_sound_us(&self) -> u64 {
        self.sound.as_ref().map_or(0, |sound| sound.damaged_us)
    }

    /// By the plan, and not by what is stored: beside pictures it has their segments, alone it has its own.
    async fn promised_sound(&self, attempt: &Attempt<'_>, step: &str) -> Attempted<Option<PromisedSound>> {
        let Some(sound) = &self.plan.sound else { return Ok(None) };
        let duration_us = sound.duration_us;
        let segments = if self.plan.video.is_some() {
            self.segments.len()
        } else {
            let length_us = (u64::from(seconds_of_segment(attempt, step).await?) * 1_000_000).max(1);
            usize::try_from(duration_us.div_ceil(length_us)).unwrap_or(usize::MAX)
        };
        Ok(Some(PromisedSound { segments, duration_us }))
    }
}

impl LocalFilm {
    /// Where a file lies in its step's folder.
    pub(crate) fn path_of(&self, file: &Path) -> String {
        self.stored.get(file).map(|file| file.path.clone()).unwrap_or_default()
    }

    /// Reads every file: one that has other bytes than were stored is removed.
    async fn require_unchanged(&self, attempt: &Attempt<'_>) -> Attempted<()> {
        for (path, file) in &self.stored {
            if hash_file(path).await?.0 != file.sha256 {
                return Err(damaged(attempt, file).await?);
            }
        }
        Ok(())
    }
}

fn hashes(file: &StoredFile, init: &StoredFile) -> SegmentHashes {
    SegmentHashes { sha256: file.sha256.clone(), init_sha256: init.sha256.clone() }
}

async fn localised(attempt: &Attempt<'_>, file: &StoredFile, copy: PathBuf) -> Attempted<PathBuf> {
    let blobs = &attempt.shop.blobs;
    let (path, is_same) = match blobs.local_path(&file.key) {
        Some(path) => {
            let found = blobs.head(&file.key).await?;
            let found = found.ok_or_else(|| StoreError::NotFound { key: file.key.clone() })?;
            (path, found.bytes == file.bytes)
        }
        None => {
            let fetched = blobs.fetch(&file.key, &copy).await?;
            (copy, fetched.sha256 == file.sha256)
        }
    };
    if is_same { Ok(path) } else { Err(damaged(attempt, file).await?) }
}

/// Removes a file with other bytes than were stored, so that a retry makes it again instead of finding it.
async fn damaged(attempt: &Attempt<'_>, file: &StoredFile) -> Attempted<Failed> {
    attempt.shop.blobs.delete(&file.key).await?;
    let message = format!("{} has other bytes than were stored", file.key);
    Ok(Failed::for_good(
        "verification_failed",
        message,
        "check the store's disks, then retry the step that made it: `telecine runs retry RUN --step STEP`",
    ))
}
