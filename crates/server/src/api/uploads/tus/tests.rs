//! What two requests come to that meet between a look and a lock.

use telecine_media::{Confinement, Toolbox};
use telecine_pipeline::{Blobs, Recipes, Scratch, Workshop};

use super::super::stage::write_at;
use super::*;
use crate::app::ServerOptions;

async fn app(folder: &tempfile::TempDir) -> Arc<App> {
    let database = format!("sqlite:{}", folder.path().join("queue.db").display());
    let queue = telecine_queue::open(&database).await.unwrap();
    let blobs = Blobs::in_folder(&folder.path().join("store")).unwrap();
    let scratch = Scratch::open(&folder.path().join("scratch")).unwrap();
    let shop = Workshop::new(queue, Toolbox::from_path(Confinement::None), blobs, scratch);
    App::new(Arc::new(shop), Recipes::load(None).unwrap(), ServerOptions::default())
}

fn told(length: u64) -> Told {
    Told { tenant: "acme".into(), length, metadata: None, name: None, sha256: None, unverified_from: None }
}

/// Who appends has sent one byte too many after somebody saw it whole: what was added is cut off, and the lock let go.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_whole_when_it_was_seen_and_is_cut_when_it_is_held_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let app = app(&folder).await;
    let (stage, id) = (&app.uploads.stage, new_id());
    let held = stage.create(&id, told(5)).unwrap();
    write_at(held.file(), 0, &["abcde".into()]).unwrap();
    assert!(look(&app, "acme", &id).await.unwrap().unwrap().is_whole());
    held.cut(2).unwrap();
    drop(held);

    let stored = store_if_free(&app, "acme", &id).await.unwrap();

    assert_eq!(stored, None);
    assert!(whole::completed(app.blobs(), "acme", &id).await.unwrap().is_none());
    assert_eq!(look(&app, "acme", &id).await.unwrap().unwrap().offset, 2, "it goes on from there");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_whole_is_ever_stored() {
    let folder = tempfile::tempdir().unwrap();
    let app = app(&folder).await;
    let held = app.uploads.stage.create(&new_id(), told(5)).unwrap();
    write_at(held.file(), 0, &["abc".into()]).unwrap();

    let refused = store_held(&app, held).await.unwrap_err();

    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(app.blobs().list("_uploads").await.unwrap(), Vec::<String>::new());
}
