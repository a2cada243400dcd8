//! `package`: verify all that a film consists of, write its manifests, and publish the master playlist last.

use async_trait::async_trait;
use serde_json::{Value, json};
use telecine_media::{Packaging, Presentation};

use super::{Attempt, StepPayload, Work};
use crate::blobs::hash_bytes;
use crate::failure::{Attempted, Failed};
use crate::film::{Film, OFFSET};
use crate::keys;
use crate::records::{OutputRecord, StoredFile, WarningRecord};

pub(super) struct Package;

const MASTER: &str = "master.m3u8";
const DASH: &str = "manifest.mpd";

#[async_trait]
impl Work for Package {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let StepPayload { step } = attempt.payload()?;
        let film = Film::read(attempt, &step).await?;
        let local = film.localise(attempt).await?;
        attempt.context.progress(0.5);
        let verified = film.verify(attempt, &step, &local).await?;
        attempt.context.progress(0.9);
        let presentation =
            verified.presentation(OFFSET, film.frame_rate(), |_, file| local.path_of(&file.path));
        let mut files = film.files();
        let manifests = manifests(&film, &presentation);
        let main = manifests.last().map(|(path, _)| path.clone());
        let main = main.ok_or_else(|| Failed::unexpected("the plan wants no manifest"))?;
        for (path, text) in manifests {
            files.push(publish(attempt, &step, &path, text).await?);
        }
        let facts = json!({
            "duration_us": verified.duration_us,
            "frames": verified.frames,
            "rungs": film.rung_names(),
            "has_audio": film.has_sound(),
            "damaged_frames": film.damaged_frames(),
            "damaged_sound_us": film.damaged_sound_us(),
        });
        warn_of_damage(attempt, &step, &film);
        let output =
            OutputRecord { name: step.clone(), kind: "hls".into(), step: step.clone(), main, files, facts };
        let answer = json!({ "files": output.files.len(), "duration_us": verified.duration_us });
        attempt.leave_output(step, &output);
        Ok(answer)
    }
}

/// A film with a scratch is published, and its owner told.
fn warn_of_damage(attempt: &Attempt<'_>, step: &str, film: &Film) {
    let (frames, sound_us) = (film.damaged_frames(), film.damaged_sound_us());
    if frames == 0 && sound_us == 0 {
        return;
    }
    let code = "input_damaged".to_owned();
    let message = format!(
        "{frames} frames and {:.3} s of sound of the input cannot be decoded, and were filled",
        sound_us as f64 / 1e6
    );
    attempt.leave(format!("{step}/{code}"), &WarningRecord { step: step.to_owned(), code, message });
}

/// Every manifest with its path, the one that names the others last.
fn manifests(film: &Film, presentation: &Presentation) -> Vec<(String, String)> {
    let mut made = Vec::new();
    if film.wants(Packaging::Dash) {
        made.push((DASH.to_owned(), presentation.dash_manifest()));
    }
    if film.wants(Packaging::Hls) {
        for rung in &presentation.video {
            made.push((rung.playlist_uri.clone(), presentation.hls_video(rung)));
            if let (Some(uri), Some(text)) = (&rung.keyframes_uri, presentation.hls_keyframes(rung)) {
                made.push((uri.clone(), text));
            }
        }
        if let (Some(audio), Some(text)) = (&presentation.audio, presentation.hls_audio()) {
            made.push((audio.playlist_uri.clone(), text));
        }
        made.push((MASTER.to_owned(), presentation.hls_master()));
    }
    made
}

async fn publish(attempt: &Attempt<'_>, step: &str, path: &str, text: String) -> Attempted<StoredFile> {
    let key = keys::output(&attempt.job.tenant, attempt.run, step, path);
    let (bytes, sha256) = (text.len() as u64, hash_bytes(text.as_bytes()));
    attempt.shop.blobs.put_bytes(&key, text.into()).await?;
    Ok(StoredFile { path: path.to_owned(), key, bytes, sha256 })
}
