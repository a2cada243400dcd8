//! What a program has made: looked at, hashed, stored and told of.
//!
//! The keys of one attempt's files have a hash of all of them in their path. Programs need not make the same bytes twice,
//! and so no attempt that came too late can write over what another has published; files still find each other by
//! relative paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde_json::{Map, Value, json};
use telecine_queue::NotRecorded;

use super::Attempt;
use super::answer::{Answer, AnsweredOutput, invalid};
use crate::blobs::{hash_bytes, hash_opened};
use crate::failure::{Attempted, Failed, scratch_failed};
use crate::records::{OutputRecord, StoredFile};

/// Of all outputs of one program: their records must hold them.
const MAX_FILES: usize = 1_000;
const MAX_DEPTH: usize = 8;
const MAX_PATH_BYTES: usize = 200;
const HASH_DIGITS: usize = 12;

/// A file to be stored.
struct MadeFile {
    file: PathBuf,
    bytes: u64,
    sha256: String,
}

/// Stores what the answer names, and only then tells of it.
pub(super) async fn publish(
    attempt: &Attempt<'_>,
    step: &str,
    out: &Path,
    answer: Answer,
) -> Attempted<Value> {
    // The program could have put a link in its place, to a folder that it may not read itself.
    if !out.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(refused("", "it is a folder no longer"));
    }
    let said = format!("{step}.facts.json");
    let outputs = outputs_of(step, out, &said, answer)?;
    let named: Vec<&String> = outputs.iter().flat_map(|output| &output.files).collect();
    let paths: BTreeSet<&String> = named.iter().copied().collect();
    if paths.len() != named.len() {
        return Err(invalid("a file is named more than once"));
    }
    if paths.len() > MAX_FILES {
        return Err(invalid(format!("{} files are more than {MAX_FILES}", paths.len())));
    }
    let facts = outputs.iter().find(|output| output.files.contains(&said)).map(|output| &output.facts);
    let mut made = BTreeMap::new();
    for path in paths {
        let file = match facts {
            Some(facts) if *path == said => written(attempt, facts)?,
            _ => looked_at(attempt, out, path).await?,
        };
        made.insert(path.clone(), file);
    }
    require_small(attempt, made.values().map(|file| file.bytes).sum())?;
    let stored = stored(attempt, step, &made).await?;
    let answer = json!({ "outputs": outputs.len(), "files": made.len() });
    for output in outputs {
        tell(attempt, step, output, &stored).await?;
    }
    Ok(answer)
}

/// The outputs of an answer. Facts of the step itself are those of the output that is called as the step; where there is
/// none, they are one: a file called `said`.
fn outputs_of(step: &str, out: &Path, said: &str, answer: Answer) -> Attempted<Vec<AnsweredOutput>> {
    let Answer { outputs, facts } = answer;
    let mut outputs = match outputs {
        Some(listed) => listed,
        None => match all_files(out)? {
            files if files.is_empty() => Vec::new(),
            files => {
                let (name, kind) = (step.to_owned(), Some("files".to_owned()));
                vec![AnsweredOutput { name, kind, files, facts: Map::new() }]
            }
        },
    };
    let mut names = BTreeSet::new();
    for output in &outputs {
        if !names.insert(output.name.clone()) {
            return Err(invalid(format!("two outputs are called {}", output.name)));
        }
        if output.files.is_empty() {
            return Err(invalid(format!("the output {} has no files", output.name)));
        }
    }
    if facts.is_empty() {
        return Ok(outputs);
    }
    match outputs.iter_mut().find(|output| output.name == step) {
        Some(own) => {
            let nearer = std::mem::replace(&mut own.facts, facts);
            own.facts.extend(nearer);
        }
        None => outputs.push(AnsweredOutput {
            name: step.to_owned(),
            kind: Some("facts".to_owned()),
            files: vec![said.to_owned()],
            facts,
        }),
    }
    Ok(outputs)
}

/// Every file in the folder, by its path in it; anything that is neither a file nor a folder is refused.
fn all_files(out: &Path) -> Attempted<Vec<String>> {
    let unreadable = |error: io::Error| scratch_failed("out/ cannot be read", &error);
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(out.join(&folder)).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = folder.join(entry.file_name());
            let shown =
                path.to_str().ok_or_else(|| refused(&path.to_string_lossy(), "its name is no text"))?;
            match entry.file_type().map_err(unreadable)? {
                kind if kind.is_file() => files.push(shown.to_owned()),
                kind if kind.is_dir() && path.components().count() < MAX_DEPTH => folders.push(path),
                kind if kind.is_dir() => return Err(refused(shown, "it lies too deep")),
                _ => return Err(refused(shown, "it is no regular file")),
            }
            if files.len() > MAX_FILES {
                return Err(invalid(format!("there are more than {MAX_FILES} files in out/")));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A regular file below `out/`, reached without a link.
async fn looked_at(attempt: &Attempt<'_>, out: &Path, path: &str) -> Attempted<MadeFile> {
    if let Some(fault) = path_fault(path) {
        return Err(refused(path, fault));
    }
    let opened = opened_below(out, path).map_err(|error| refused(path, error.to_string()))?;
    let meta = opened.metadata().map_err(|error| scratch_failed("a file cannot be read", &error))?;
    if !meta.is_file() {
        return Err(refused(path, "it is no regular file"));
    }
    require_small(attempt, meta.len())?;
    let (sha256, bytes) = hash_opened(opened).await?;
    Ok(MadeFile { file: out.join(path), bytes, sha256 })
}

fn opened_below(out: &Path, path: &str) -> io::Result<File> {
    let folder = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(out, folder, Mode::empty())?;
    // A pipe must not be waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(&folder, path, flags, Mode::empty(), below)?.into())
}

/// What is no path below `out/`, or could not be a part of a key and of an address as it is.
fn path_fault(path: &str) -> Option<&'static str> {
    let is_proper = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+=@,~".contains(&byte))
    };
    if path.len() > MAX_PATH_BYTES || path.split('/').count() > MAX_DEPTH {
        return Some("its path is too long or too deep");
    }
    let fault = "a path has parts of a-z, A-Z, 0-9 and . _ - + = @ , ~ that do not begin with a dot";
    (!path.split('/').all(is_proper)).then_some(fault)
}

fn refused(path: &str, why: impl std::fmt::Display) -> Failed {
    let shown: String = path.chars().take(MAX_PATH_BYTES).collect();
    Failed::for_good(
        "exec_output_invalid",
        format!("the file {shown:?} in out/: {why}"),
        "leave regular files in out/ and name them by their paths in it",
    )
}

fn require_small(attempt: &Attempt<'_>, bytes: u64) -> Attempted<()> {
    let most = attempt.shop.limits.file_bytes;
    if bytes <= most {
        return Ok(());
    }
    let message = format!("the program made {bytes} bytes of output, of which {most} are allowed");
    Err(Failed::for_good(
        "exec_output_too_large",
        message,
        "raise max_input_mb, or let the program write less",
    ))
}

/// Facts as a file, outside of the program's folder.
fn written(attempt: &Attempt<'_>, facts: &Map<String, Value>) -> Attempted<MadeFile> {
    let text = serde_json::to_vec_pretty(facts).map_err(|error| Failed::unexpected(error.to_string()))?;
    let file = attempt.subfolder("said")?.join("facts.json");
    std::fs::write(&file, &text).map_err(|error| scratch_failed("the facts cannot be written", &error))?;
    Ok(MadeFile { file, bytes: text.len() as u64, sha256: hash_bytes(&text) })
}

async fn stored(
    attempt: &Attempt<'_>,
    step: &str,
    made: &BTreeMap<String, MadeFile>,
) -> Attempted<BTreeMap<String, StoredFile>> {
    let listed: String = made.iter().map(|(path, file)| format!("{} {path}\n", file.sha256)).collect();
    let hash = &hash_bytes(listed.as_bytes())[..HASH_DIGITS];
    let mut stored = BTreeMap::new();
    for (path, MadeFile { file, bytes, sha256 }) in made {
        let key_path = format!("{hash}/{path}");
        let storing = attempt.store(step, &key_path, file, *bytes, sha256);
        let file = attempt.cancel.run_until_cancelled(Box::pin(storing)).await;
        let file = file.unwrap_or_else(|| Err(Failed::for_now("cancelled", "the job was stopped", "")))?;
        stored.insert(path.clone(), StoredFile { path: path.clone(), ..file });
    }
    Ok(stored)
}

async fn tell(
    attempt: &Attempt<'_>,
    step: &str,
    output: AnsweredOutput,
    stored: &BTreeMap<String, StoredFile>,
) -> Attempted<()> {
    let AnsweredOutput { name, kind, files, facts } = output;
    let key = if name == step { name.clone() } else { format!("{step}/{name}") };
    let document = OutputRecord {
        kind: kind.unwrap_or_else(|| "files".to_owned()),
        name,
        step: step.to_owned(),
        main: files.first().cloned().unwrap_or_default(),
        files: files.iter().filter_map(|path| stored.get(path).cloned()).collect(),
        facts: Value::Object(facts),
    };
    attempt.leave_output(key, &document);
    attempt.context.flushed().await.map_err(|why| match why {
        NotRecorded::Invalid { reason } => invalid(format!("it cannot be kept: {reason}")),
        NotRecorded::ClaimOver => Failed::for_now("cancelled", why.to_string(), ""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_folder_and_fits_into_a_key() {
        for path in ["a.json", "a/b/c-1_2.tar.gz", "A+b=c@d,e~f"] {
            assert_eq!(path_fault(path), None, "{path}");
        }
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        for path in
            ["", "/a", "a//b", "a/", "../a", "a/../b", ".", "a/.b", "a b", "a#1", "ä", "a\n", "a\\b", &long]
        {
            assert!(path_fault(path).is_some(), "{path}");
        }
        assert!(path_fault("1/2/3/4/5/6/7/8/9").is_some());
    }

    #[test]
    fn no_link_leads_to_a_file() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("out");
        std::fs::create_dir_all(out.join("deep")).unwrap();
        std::fs::write(root.path().join("secret"), "x").unwrap();
        std::fs::write(out.join("deep/file"), "x").unwrap();
        std::os::unix::fs::symlink(root.path().join("secret"), out.join("link")).unwrap();
        std::os::unix::fs::symlink(root.path(), out.join("folder")).unwrap();
        std::os::unix::fs::symlink("deep/file", out.join("inner")).unwrap();

        assert!(opened_below(&out, "deep/file").is_ok());
        for path in ["link", "folder/secret", "inner", "../secret", "/etc/passwd", "none"] {
            assert!(opened_below(&out, path).is_err(), "{path}");
        }
        assert!(opened_below(&out.join("folder"), "secret").is_err());
    }

    #[test]
    fn facts_belong_to_the_output_that_is_called_as_the_step() {
        let out = tempfile::tempdir().unwrap();
        std::fs::write(out.path().join("b"), "").unwrap();
        std::fs::write(out.path().join("a"), "").unwrap();
        let outputs = |answer: Value| {
            let answer: Answer = serde_json::from_value(answer).unwrap();
            outputs_of("label", out.path(), "label.facts.json", answer).unwrap()
        };

        let all = outputs(json!({ "facts": { "n": 1 } }));
        assert_eq!((all[0].name.as_str(), all[0].files.as_slice()), ("label", &["a".into(), "b".into()][..]));
        assert_eq!(all[0].facts["n"], 1);

        let apart = outputs(json!({ "facts": { "n": 1 }, "outputs": [{ "name": "x", "files": ["a"] }] }));
        assert_eq!(apart[1].files, ["label.facts.json"]);

        let listed = json!([{ "name": "label", "files": ["a"], "facts": { "n": 2 } }]);
        let own = outputs(json!({ "facts": { "n": 1, "m": 1 }, "outputs": listed }));
        assert_eq!((own.len(), &own[0].facts["n"], &own[0].facts["m"]), (1, &json!(2), &json!(1)));
    }
}
