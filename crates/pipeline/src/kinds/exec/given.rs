//! What a program is given: a document, and the files that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};
use telecine_media::Probe;

use super::{Attempt, ExecSpec};
use crate::blobs::StoreError;
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::keys;
use crate::recipe::Step;
use crate::records::{OutputRecord, StoredFile, read_all};
use crate::source::Source;

/// Files that are fetched from a bucket side by side.
const FETCHES: usize = 8;

/// Keeps the files for as long as it lives.
pub(super) struct Given {
    document: Vec<u8>,
    readable: Vec<PathBuf>,
    _source: Source,
}

#[derive(Serialize)]
struct GivenInput<'a> {
    path: &'a Path,
    sha256: &'a str,
    bytes: u64,
    probe: Option<&'a Probe>,
}

#[derive(Serialize)]
struct GivenOutput {
    name: String,
    kind: String,
    /// The file to begin with.
    main: Option<PathBuf>,
    files: Vec<GivenFile>,
    facts: Value,
}

#[derive(Serialize)]
struct GivenFile {
    path: PathBuf,
    bytes: u64,
    sha256: String,
}

impl Given {
    pub(super) async fn gather(attempt: &Attempt<'_>, step: &Step, spec: &ExecSpec) -> Attempted<Self> {
        let (input, source) = attempt.input().await?;
        let outputs = read_all::<OutputRecord>(&*attempt.shop.queue, attempt.run).await?;
        let needed: Vec<OutputRecord> = outputs
            .into_iter()
            .map(|(_, output)| output)
            .filter(|output| step.needs.contains(&output.step))
            .collect();
        let stopped = attempt.cancel.run_until_cancelled(Box::pin(localised(attempt, &needed))).await;
        let local =
            stopped.unwrap_or_else(|| Err(Failed::for_now("cancelled", "the job was stopped", "")))?;
        let given_input = GivenInput {
            path: source.path(),
            sha256: &input.sha256,
            bytes: input.bytes,
            probe: input.probe.as_ref(),
        };
        let document = json!({
            "run": attempt.run,
            "step": step.name,
            "attempt": attempt.job.attempt,
            "input": given_input,
            "needs": described(&step.needs, needed, &local),
            "params": spec.params,
        });
        let readable = readable(attempt, &step.needs, &local).chain([source.path().to_owned()]).collect();
        Ok(Self { document: document.to_string().into_bytes(), readable, _source: source })
    }

    pub(super) fn document(&self) -> &[u8] {
        &self.document
    }

    /// Outside of the program's own folder.
    pub(super) fn readable(&self) -> &[PathBuf] {
        &self.readable
    }
}

/// Where the file of each key is.
type LocalFiles = BTreeMap<String, PathBuf>;

/// All files of the steps that are needed: where they are, or in copies as many as scratch holds.
async fn localised(attempt: &Attempt<'_>, needed: &[OutputRecord]) -> Attempted<LocalFiles> {
    let of_output = |output: &OutputRecord| -> Vec<(String, StoredFile)> {
        output.files.iter().map(|file| (output.step.clone(), file.clone())).collect()
    };
    let files: BTreeMap<String, (String, StoredFile)> =
        needed.iter().flat_map(of_output).map(|(step, file)| (file.key.clone(), (step, file))).collect();
    let is_elsewhere = |file: &&StoredFile| attempt.shop.blobs.local_path(&file.key).is_none();
    let fetched: u64 = files.values().map(|(_, file)| file).filter(is_elsewhere).map(|file| file.bytes).sum();
    let left = attempt.shop.scratch.left_bytes();
    if fetched > left {
        let message = format!("the steps it needs made {fetched} bytes; {left} are left in scratch");
        return Err(Failed::for_now("scratch_full", message, "free some space in the scratch folder"));
    }
    let fetching = stream::iter(files.into_iter().map(|(key, (step, file))| async move {
        let path = local(attempt, &step, &file).await?;
        Ok::<_, Failed>((key, path))
    }));
    fetching.buffer_unordered(FETCHES).try_collect().await
}

async fn local(attempt: &Attempt<'_>, step: &str, file: &StoredFile) -> Attempted<PathBuf> {
    let (blobs, key) = (&attempt.shop.blobs, &file.key);
    let (path, is_whole) = match blobs.local_path(key) {
        // The length alone: reading a whole film to hash it would cost more than most programs.
        Some(path) => {
            let found = blobs.head(key).await?.ok_or_else(|| StoreError::NotFound { key: key.clone() })?;
            (path, found.bytes == file.bytes)
        }
        None => {
            let copy = attempt.folder.path().join("needs").join(step).join(&file.path);
            let folder = copy.parent().unwrap_or(&copy);
            let made = tokio::fs::create_dir_all(folder).await;
            made.map_err(|error| scratch_failed("no folder can be made", &error))?;
            let fetched = blobs.fetch(key, &copy).await?;
            (copy, fetched.sha256 == file.sha256)
        }
    };
    if is_whole {
        return Ok(path);
    }
    let message = format!("{key} has other bytes than were stored");
    Err(Failed::for_good("verification_failed", message, "check the store, then retry the step that made it"))
}

/// By step, in the words of the document.
fn described<'a>(
    needs: &'a [String],
    needed: Vec<OutputRecord>,
    local: &LocalFiles,
) -> BTreeMap<&'a str, Value> {
    let mut by_step: BTreeMap<&str, Vec<GivenOutput>> =
        needs.iter().map(|step| (step.as_str(), Vec::new())).collect();
    for output in needed {
        let path_of = |file: &StoredFile| local.get(&file.key).cloned();
        let given = GivenOutput {
            main: output.files.iter().find(|file| file.path == output.main).and_then(path_of),
            files: output.files.iter().filter_map(|file| given_file(file, path_of(file)?)).collect(),
            name: output.name,
            kind: output.kind,
            facts: output.facts,
        };
        if let Some(outputs) = by_step.get_mut(output.step.as_str()) {
            outputs.push(given);
        }
    }
    by_step.into_iter().map(|(step, outputs)| (step, json!({ "outputs": outputs }))).collect()
}

fn given_file(file: &StoredFile, path: PathBuf) -> Option<GivenFile> {
    Some(GivenFile { path, bytes: file.bytes, sha256: file.sha256.clone() })
}

/// The folders of those steps in a store that is a folder, or of their copies; a film has too many files to name each.
fn readable(attempt: &Attempt<'_>, needs: &[String], local: &LocalFiles) -> impl Iterator<Item = PathBuf> {
    let (blobs, of_run) = (&attempt.shop.blobs, keys::of_run(&attempt.job.tenant, attempt.run));
    let in_store = needs.iter().filter_map(|step| blobs.local_path(&format!("{of_run}/{step}")));
    let folders: Vec<PathBuf> = in_store.chain([attempt.folder.path().join("needs")]).collect();
    let is_apart = |file: &&PathBuf| !folders.iter().any(|folder| file.starts_with(folder));
    let apart: Vec<PathBuf> = local.values().filter(is_apart).cloned().collect();
    folders.into_iter().chain(apart)
}
