//! Workers are killed; nothing is lost, nothing is left behind, and the bytes are those of a quiet day.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use telecine_pipeline::records::{OutputRecord, SegmentRecord, read_all};
use telecine_pipeline::{Input, Recipe, Submission, submit};
use telecine_queue::{Queue, RunId, RunState};

use crate::clips;
use crate::postgres_server::PostgresServer;
use crate::studio::{hls, pictures, recipe, trial};
use crate::worker::{Place, SLOTS, Worker};

const KILLS: usize = 10;
const ENCODED: &str = "segment encoded";
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let server = server.clone();
    vec![
        trial("crash::sqlite::ten_kills_change_nothing".into(), || ten_kills_change_nothing(None)),
        trial("crash::postgres::ten_kills_change_nothing".into(), move || {
            ten_kills_change_nothing(Some(server))
        }),
    ]
}

/// A database, a store and a film in a folder.
struct Stage {
    folder: tempfile::TempDir,
    queue: Arc<dyn Queue>,
    place: Place,
}

impl Stage {
    async fn set(database: Option<&PostgresServer>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let database = match database {
            Some(server) => server.new_database(),
            None => format!("sqlite:{}", at("queue.db").display()),
        };
        let queue = telecine_queue::open(&database).await.unwrap();
        let place = Place {
            database,
            store: at("store"),
            scratch: at("scratch"),
            inputs: at("inputs"),
            log: at("log"),
        };
        for made in [&place.store, &place.scratch, &place.inputs] {
            std::fs::create_dir(made).unwrap();
        }
        Self { folder, queue, place }
    }

    async fn submit(&self, recipe: &Recipe, film: &Path) -> RunId {
        let submission = Submission::new(recipe.clone(), Input::Path(film.to_owned()));
        submit(&*self.queue, submission).await.unwrap().run
    }

    async fn wait(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < until, "{what} never came; see {}", self.place.log.display());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stored(&self, run: &RunId) -> usize {
        read_all::<SegmentRecord>(&*self.queue, run).await.unwrap().len()
    }

    async fn state(&self, run: &RunId) -> RunState {
        self.queue.get_run(run).await.unwrap().unwrap().state
    }

    /// Every published file with its hash, which is that of its bytes.
    async fn published(&self, run: &RunId) -> BTreeMap<String, String> {
        let outputs = read_all::<OutputRecord>(&*self.queue, run).await.unwrap();
        let files = outputs.into_iter().flat_map(|(_, output)| {
            let step = output.step;
            output.files.into_iter().map(move |file| (format!("{step}/{}", file.path), file))
        });
        let checked = files.map(|(path, file)| {
            let bytes = std::fs::read(self.place.store.join(&file.key)).unwrap();
            assert_eq!(bytes.len() as u64, file.bytes, "{path}");
            (path, sha256(&bytes))
        });
        checked.collect()
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

async fn ten_kills_change_nothing(server: Option<PostgresServer>) {
    let quiet = Stage::set(server.as_ref()).await;
    let film = quiet.place.inputs.join("film.mp4");
    clips::film(60, &film);
    let recipe = recipe(vec![hls(), pictures()]);
    let worker = Worker::start(&quiet.place);
    let run = quiet.submit(&recipe, &film).await;
    quiet
        .wait("the end", async || {
            quiet.state(&run).await != RunState::Running && quiet.state(&run).await != RunState::Queued
        })
        .await;
    assert_eq!(quiet.state(&run).await, RunState::Succeeded);
    worker.leave();
    let expected = quiet.published(&run).await;

    let stormy = Stage::set(server.as_ref()).await;
    let same_film = stormy.place.inputs.join("film.mp4");
    std::fs::copy(&film, &same_film).unwrap();
    let mut worker = Worker::start(&stormy.place);
    let run = stormy.submit(&recipe, &same_film).await;
    let mut moments: Vec<usize> = (1..60).collect();
    fastrand::shuffle(&mut moments);
    moments.truncate(KILLS);
    moments.sort_unstable();
    for stored in &moments {
        // Right behind a commit, or between an encoder's end and the commit that tells of it.
        match fastrand::bool() {
            true => stormy.wait("another segment", async || stormy.stored(&run).await >= *stored).await,
            false => stormy.wait("another encode", async || stormy.place.count(ENCODED) >= *stored).await,
        }
        worker.kill();
        worker = Worker::start(&stormy.place);
    }
    stormy
        .wait("the end", async || stormy.queue.get_run(&run).await.unwrap().unwrap().finished_at.is_some())
        .await;
    worker.leave();

    assert_eq!(stormy.state(&run).await, RunState::Succeeded, "killed at {moments:?}");
    assert_eq!(stormy.published(&run).await, expected, "the same files with the same bytes");
    let prefix = stormy.place.store.join("_").join(run.as_str());
    let is_published = |file: &Path| {
        file.strip_prefix(&prefix).is_ok_and(|path| expected.contains_key(&path.display().to_string()))
    };
    let again = stormy.place.count(ENCODED) - 60;
    assert!(again <= KILLS * SLOTS as usize, "{again} segments were encoded again");
    let stored: Vec<PathBuf> = files_below(&stormy.place.store);
    let unpublished: Vec<&PathBuf> = stored.iter().filter(|file| !is_published(file)).collect();
    assert!(unpublished.is_empty() && stored.len() == expected.len(), "unpublished: {unpublished:?}");
    assert_eq!(files_below(&stormy.place.scratch), Vec::<PathBuf>::new(), "nothing is in scratch");
    println!("{again} of 60 segments were encoded again in {KILLS} kills at {moments:?}");
    drop(stormy.folder);
}
