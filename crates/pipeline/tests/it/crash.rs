//! Workers are killed; nothing is lost, nothing is left behind, and the bytes are those of a quiet day.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use telecine_pipeline::records::{FailureRecord, OutputRecord, SegmentRecord, read_all};
use telecine_pipeline::{Blobs, Input, Recipe, StoreOptions, Submission, submit};
use telecine_queue::{Queue, Run, RunId, RunState};

use crate::clips;
use crate::postgres_server::PostgresServer;
use crate::s3_server::{BUCKET, S3Server};
use crate::studio::{hls, pictures, recipe, trial};
use crate::worker::{Place, SLOTS, Worker};

const KILLS: usize = 10;
const ENCODED: &str = "segment encoded";
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn trials(server: &PostgresServer) -> Vec<Trial> {
    let (server, shared) = (server.clone(), server.clone());
    vec![
        trial("crash::sqlite::ten_kills_change_nothing".into(), || ten_kills_change_nothing(None)),
        trial("crash::postgres::ten_kills_change_nothing".into(), move || {
            ten_kills_change_nothing(Some(server))
        }),
        trial("crash::two_workers_share_a_film".into(), move || two_workers_share_a_film(shared)),
    ]
}

/// What is asked of a machine that does nothing else: where a film takes many times as long as its jobs say, whoever comes
/// later than they were to end stands behind it.
pub(crate) fn trials_alone() -> Vec<Trial> {
    vec![trial("crash::a_short_clip_passes_a_long_film".into(), a_short_clip_passes_a_long_film)]
}

/// A database, a store and inputs in a folder.
struct Stage {
    folder: tempfile::TempDir,
    queue: Arc<dyn Queue>,
    blobs: Blobs,
    place: Place,
}

impl Stage {
    async fn set(server: Option<&PostgresServer>) -> Self {
        Self::with_store(server, None).await
    }

    /// On SQLite, or on the server; in a folder, or in the bucket.
    async fn with_store(server: Option<&PostgresServer>, bucket: Option<&S3Server>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let database = match server {
            Some(server) => server.new_database(),
            None => format!("sqlite:{}", at("queue.db").display()),
        };
        let queue = telecine_queue::open(&database).await.unwrap();
        let (store, variables) = match bucket {
            Some(bucket) => (format!("s3://{BUCKET}/store"), bucket.options().variables),
            None => (at("store").display().to_string(), BTreeMap::new()),
        };
        let options = StoreOptions { variables: variables.clone(), ..StoreOptions::default() };
        let blobs = Blobs::open_with(&store, &options).unwrap();
        let place = Place {
            database,
            store,
            variables,
            scratch: at("scratch"),
            inputs: at("inputs"),
            log: at("log"),
        };
        std::fs::create_dir(&place.inputs).unwrap();
        Self { folder, queue, blobs, place }
    }

    /// Another place for a worker on the same database and store.
    fn beside(&self, name: &str) -> Place {
        let at = |part: &str| self.folder.path().join(format!("{name}-{part}"));
        Place { scratch: at("scratch"), log: at("log"), ..self.place.clone() }
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

    async fn ended(&self, run: &RunId) -> Run {
        let now = async || self.queue.get_run(run).await.unwrap().unwrap();
        self.wait("the end", async || now().await.finished_at.is_some()).await;
        now().await
    }

    async fn succeeds(&self, run: &RunId) -> Run {
        let ended = self.ended(run).await;
        let failures = read_all::<FailureRecord>(&*self.queue, run).await.unwrap();
        assert_eq!(ended.state, RunState::Succeeded, "{failures:?}");
        ended
    }

    /// Every published file with its hash, which is that of its bytes.
    async fn published(&self, run: &RunId) -> BTreeMap<String, String> {
        let mut published = BTreeMap::new();
        for (_, output) in read_all::<OutputRecord>(&*self.queue, run).await.unwrap() {
            for file in output.files {
                let bytes = self.blobs.get_bytes(&file.key).await.unwrap();
                assert_eq!(
                    (bytes.len() as u64, sha256(&bytes)),
                    (file.bytes, file.sha256.clone()),
                    "{file:?}"
                );
                published.insert(format!("{}/{}", output.step, file.path), file.sha256);
            }
        }
        published
    }

    /// What the store has of the run and nobody published.
    async fn unpublished(&self, run: &RunId) -> Vec<String> {
        let published = self.published(run).await;
        let prefix = format!("_/{run}");
        let keys = self.blobs.list(&prefix).await.unwrap();
        keys.into_iter().filter(|key| !published.contains_key(&key[prefix.len() + 1..])).collect()
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
    quiet.succeeds(&run).await;
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
    stormy.succeeds(&run).await;
    worker.leave();

    assert_eq!(
        stormy.published(&run).await,
        expected,
        "the same files with the same bytes, killed at {moments:?}"
    );
    let again = stormy.place.count(ENCODED) - 60;
    assert!(again <= KILLS * SLOTS as usize, "{again} segments were encoded again");
    assert_eq!(stormy.unpublished(&run).await, Vec::<String>::new());
    let cached = stormy.folder.path().join("store/_cache");
    let in_store = files_below(&stormy.folder.path().join("store"));
    let unlisted: Vec<&PathBuf> =
        in_store.iter().filter(|file| file.display().to_string().contains('#')).collect();
    let of_runs = in_store.iter().filter(|file| !file.starts_with(&cached)).count();
    assert!(unlisted.is_empty() && of_runs == expected.len(), "{of_runs} files, half of a put: {unlisted:?}");
    assert_eq!(files_below(&stormy.place.scratch), Vec::<PathBuf>::new(), "nothing is in scratch");
    println!("{again} of 60 segments were encoded again in {KILLS} kills at {moments:?}");
}

/// On Postgres and S3: the ranges of one film are shared, and nobody can tell who made which.
async fn two_workers_share_a_film(server: PostgresServer) {
    let alone = Stage::set(None).await;
    let film = alone.place.inputs.join("film.mp4");
    clips::film(30, &film);
    let recipe = recipe(vec![hls()]);
    let worker = Worker::start(&alone.place);
    let run = alone.submit(&recipe, &film).await;
    alone.succeeds(&run).await;
    worker.leave();
    let expected = alone.published(&run).await;

    let bucket = S3Server::start();
    let shared = Stage::with_store(Some(&server), Some(&bucket)).await;
    let same_film = shared.place.inputs.join("film.mp4");
    std::fs::copy(&film, &same_film).unwrap();
    let places = [shared.beside("one"), shared.beside("two")];
    let workers: Vec<Worker> = places.iter().map(Worker::start).collect();
    let run = shared.submit(&recipe, &same_film).await;
    shared.succeeds(&run).await;
    workers.into_iter().for_each(Worker::leave);

    assert_eq!(shared.published(&run).await, expected);
    let shares = places.each_ref().map(|place| place.count(ENCODED));
    assert!(shares.iter().all(|share| *share > 0) && shares.iter().sum::<usize>() == 30, "{shares:?}");
    assert_eq!(bucket.unfinished(), Vec::<String>::new());
    println!("two workers made {shares:?} segments");
}

/// The ranges of a film do not stand before a clip that came later.
async fn a_short_clip_passes_a_long_film() {
    let stage = Stage::set(None).await;
    let (film, clip) = (stage.place.inputs.join("film.mp4"), stage.place.inputs.join("clip.mp4"));
    clips::film(90, &film);
    clips::film(2, &clip);
    let worker = Worker::start(&stage.place);
    let long = stage.submit(&recipe(vec![hls()]), &film).await;
    stage.wait("the film is under way", async || stage.stored(&long).await > 0).await;

    let short = stage.submit(&recipe(vec![hls()]), &clip).await;
    let (short, long) = (stage.succeeds(&short).await, stage.succeeds(&long).await);
    worker.leave();

    let took = |run: &Run| run.finished_at.unwrap().since(run.created_at).as_secs_f64();
    println!(
        "the clip took {:.1} s, the film {:.1} s: {:.2}",
        took(&short),
        took(&long),
        took(&short) / took(&long)
    );
    assert!(short.finished_at < long.finished_at);
}
