//! Disks and stores that are full or away.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_pipeline::Blobs;

use super::{Tus, id_of, noise, sha256, staged};
use crate::clips;
use crate::s3_server::S3Server;
use crate::small_disk::SmallDisk;
use crate::support::{Served, problem, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("uploads::a_full_disk_is_told_and_nothing_is_spoilt", a_full_disk_is_told),
        trial("uploads::what_the_store_does_not_take_waits_for_it", what_the_store_does_not_take_waits),
        trial("uploads::a_bucket_has_it_when_it_is_back", a_bucket_has_it_when_it_is_back),
        trial("uploads::what_cannot_be_read_keeps_nothing_else_from_expiring", what_cannot_be_read),
        trial("uploads::what_cannot_be_stored_keeps_nothing_else_from_expiring", what_cannot_be_stored),
        trial(
            "uploads::what_was_whole_when_its_server_ended_is_stored_by_the_next",
            the_next_server_stores_it,
        ),
    ]
}

async fn a_full_disk_is_told() {
    let Some(disk) = SmallDisk::mount("2m") else { return };
    let served = Served::with(|_, options| options.uploads.folder = Some(disk.path.join("uploads"))).await;
    let (tus, bytes) = (Tus::of(&served), noise(1_500_000));
    let too_large = tus.request(reqwest::Method::POST, "/v1/uploads").header("Upload-Length", 3_000_000);
    let refused = problem(too_large.send().await.unwrap()).await;
    assert_eq!(
        (&refused["status"], &refused["code"]),
        (&507.into(), &"storage_full".into()),
        "before any byte"
    );
    let path = tus.create(bytes.len()).await;
    disk.fill(500_000);

    let full = problem(tus.patch(&path, 0, &bytes).send().await.unwrap()).await;
    let offset = tus.offset(&path).await as usize;
    let form = served.post("/v1/uploads").header("Content-Type", "video/mp4").body(bytes.clone());
    let form = problem(form.send().await.unwrap()).await;
    disk.empty();

    assert_eq!((&full["code"], &form["code"]), (&"storage_full".into(), &"storage_full".into()));
    assert!(offset < bytes.len(), "{offset}");
    tus.add(&path, offset, &bytes[offset..]).await;
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    served.stop().await;
}

async fn what_the_store_does_not_take_waits() {
    let served = Served::start().await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    // No folder can be made where a file is.
    let in_the_way = served.folder.path().join("store/_uploads");
    std::fs::write(&in_the_way, "").unwrap();
    let path = tus.create(bytes.len()).await;

    let refused = tus.patch(&path, 0, &bytes).send().await.unwrap();
    assert_eq!(problem(refused).await["code"], "unavailable");
    assert_eq!(tus.head(&path).await.status(), 503, "it must not be taken for complete");
    assert_eq!(tus.document(&path).await["state"], "storing");
    std::fs::remove_file(&in_the_way).unwrap();

    assert_eq!(tus.offset(&path).await, 1000);
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    assert_eq!(staged(&served), Vec::<String>::new());
    served.stop().await;
}

async fn a_bucket_has_it_when_it_is_back() {
    let bucket = S3Server::start();
    let served = Served::with(|shop, _| shop.blobs = bucket.open("media")).await;
    clips::film(2, &served.file("film.mp4"));
    let (tus, film) = (Tus::of(&served), std::fs::read(served.file("film.mp4")).unwrap());
    let path = tus.create(film.len()).await;
    tus.add(&path, 0, &film[..1000]).await;
    bucket.kill();

    let refused = tus.patch(&path, 1000, &film[1000..]).send().await.unwrap();
    assert_eq!(problem(refused).await["code"], "unavailable");
    bucket.launch();
    served.until(async || tus.head(&path).await.status() == 200).await;

    assert_eq!(tus.offset(&path).await, film.len() as u64);
    assert_eq!(tus.document(&path).await["sha256"], sha256(&film));
    let run = json!({"recipe": "thumbnail", "input": {"upload": id_of(&path)}});
    let run: Value = served.post("/v1/runs").json(&run).send().await.unwrap().json().await.unwrap();
    let address = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    let now = async || -> Value { served.get(&address).send().await.unwrap().json().await.unwrap() };
    served.until(async || !now().await["finished_at"].is_null()).await;
    assert_eq!(now().await["status"], "succeeded");
    served.stop().await;
}

async fn what_cannot_be_read() {
    let served =
        Served::with(|_, options| options.uploads.keep_unfinished = Duration::from_millis(300)).await;
    let tus = Tus::of(&served);
    let folder = served.shop.scratch.root().join("uploads");
    tus.create(1000).await;
    // As an operator's editor, a failing disk or a restored backup leaves things.
    std::fs::write(folder.join("torn.json"), "{").unwrap();
    std::fs::write(folder.join("torn.data"), "").unwrap();
    std::fs::create_dir(folder.join("lost+found")).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_hours(3);
    std::fs::File::open(folder.join("lost+found")).unwrap().set_modified(old).unwrap();

    tus.create(1000).await;

    served.until(async || staged(&served).len() == 3).await;
    let mut left = staged(&served);
    left.sort();
    assert_eq!(left, ["lost+found", "torn.data", "torn.json"]);
    served.stop().await;
}

async fn what_cannot_be_stored() {
    let served =
        Served::with(|_, options| options.uploads.keep_unfinished = Duration::from_millis(300)).await;
    let (tus, bytes) = (Tus::of(&served), noise(1000));
    let in_the_way = served.folder.path().join("store/_uploads");
    std::fs::write(&in_the_way, "").unwrap();
    for _ in 0..4 {
        let whole = tus.create(bytes.len()).await;
        assert_eq!(tus.patch(&whole, 0, &bytes).send().await.unwrap().status(), 503);
        tus.create(bytes.len()).await;
    }

    // Two files each of those that wait for the store.
    served.until(async || staged(&served).len() == 8).await;

    std::fs::remove_file(&in_the_way).unwrap();
    served.until(async || staged(&served).is_empty()).await;
    served.stop().await;
}

async fn the_next_server_stores_it() {
    let folder = tempfile::tempdir().unwrap();
    let (uploads, store) = (folder.path().join("uploads"), folder.path().join("store"));
    let arranged = || {
        Served::with(|shop, options| {
            shop.blobs = Blobs::in_folder(&store).unwrap();
            options.uploads.folder = Some(uploads.clone());
        })
    };
    let first = arranged().await;
    let (tus, bytes) = (Tus::of(&first), noise(1000));
    std::fs::write(store.join("_uploads"), "").unwrap();
    let path = tus.create(bytes.len()).await;
    assert_eq!(tus.patch(&path, 0, &bytes).send().await.unwrap().status(), 503);
    first.stop().await;
    std::fs::remove_file(store.join("_uploads")).unwrap();

    let second = arranged().await;
    let tus = Tus::of(&second);

    second.until(async || tus.document(&path).await["state"] == "complete").await;
    assert_eq!(tus.document(&path).await["sha256"], sha256(&bytes));
    second.stop().await;
}
