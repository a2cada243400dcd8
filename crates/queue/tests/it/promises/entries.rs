use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use telecine_queue::{Entry, NewEntry, QueueError};

use crate::ground::{Ground, eventually};

fn endpoint(key: &str, url: &str) -> NewEntry {
    NewEntry::new("endpoint", key, json!({ "url": url }))
}

pub(super) async fn an_entry_is_kept_changed_and_deleted(ground: Arc<Ground>) {
    let queue = ground.open().await;

    assert_eq!(queue.entry("endpoint", "one").await.expect("entry"), None);
    assert_eq!(queue.put_entry(endpoint("one", "a"), None).await.expect("put"), 1);
    let first = queue.entry("endpoint", "one").await.expect("entry").expect("it is there");
    assert_eq!(queue.put_entry(endpoint("one", "b"), None).await.expect("put"), 2);
    let other = ground.open().await;
    let second = other.entry("endpoint", "one").await.expect("entry").expect("another process sees it");

    let told = |entry: &Entry| (entry.version, entry.body["url"].clone());
    assert_eq!((told(&first), told(&second)), ((1, json!("a")), (2, json!("b"))));
    assert_eq!((second.kind.as_str(), second.key.as_str()), ("endpoint", "one"));
    assert!(second.updated_at >= first.updated_at);
    assert_eq!(queue.entry("key", "one").await.expect("entry"), None, "another kind is another entry");
    assert!(queue.delete_entry("endpoint", "one").await.expect("delete"));
    assert!(!queue.delete_entry("endpoint", "one").await.expect("delete"), "it is gone");
    assert_eq!(other.entry("endpoint", "one").await.expect("entry"), None);
    assert_eq!(queue.put_entry(endpoint("one", "c"), Some(0)).await.expect("new again"), 1);
}

pub(super) async fn an_edit_of_an_entry_names_the_version_it_saw(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let put = async |url, expected| queue.put_entry(endpoint("one", url), expected).await;

    let too_early = put("early", Some(1)).await;
    assert_eq!(put("a", Some(0)).await.expect("new"), 1);
    assert_eq!(put("b", Some(1)).await.expect("seen"), 2);
    let late = put("late", Some(1)).await;
    let again = put("again", Some(0)).await;
    let far = put("far", Some(u64::MAX)).await;
    assert_eq!(put("forced", None).await.expect("any"), 3);
    assert!(queue.delete_entry("endpoint", "one").await.expect("delete"));
    let deleted = put("deleted", Some(3)).await;

    assert!(matches!(too_early, Err(QueueError::Stale { expected: 1, found: 0, .. })), "{too_early:?}");
    assert!(matches!(late, Err(QueueError::Stale { expected: 1, found: 2, .. })), "{late:?}");
    assert!(matches!(again, Err(QueueError::Stale { expected: 0, found: 2, .. })), "{again:?}");
    assert!(matches!(far, Err(QueueError::Stale { expected: u64::MAX, found: 2, .. })), "{far:?}");
    assert!(matches!(deleted, Err(QueueError::Stale { expected: 3, found: 0, .. })), "{deleted:?}");
    assert_eq!(queue.entry("endpoint", "one").await.expect("entry"), None, "who comes late makes nothing");
}

/// Of those who saw the same version one wins, also where they are processes of their own.
pub(super) async fn of_edits_at_once_one_wins(ground: Arc<Ground>) {
    const WRITERS: u64 = 4;
    const EDITS: u64 = 15;
    let counter = |value: u64| NewEntry::new("counter", "one", json!(value));
    let first = ground.open().await;

    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let ground = Arc::clone(&ground);
            tokio::spawn(async move {
                let queue = ground.open().await;
                for _ in 0..EDITS {
                    eventually("the edit counts", || async {
                        let seen = queue.entry("counter", "one").await.expect("entry");
                        let (version, value) = seen
                            .map_or((0, 0), |entry| (entry.version, entry.body.as_u64().expect("a number")));
                        match queue.put_entry(counter(value + 1), Some(version)).await {
                            Ok(_) => Some(()),
                            Err(QueueError::Stale { .. }) => None,
                            Err(other) => panic!("{other:?}"),
                        }
                    })
                    .await;
                }
                queue.close().await;
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no panic");
    }

    let last = first.entry("counter", "one").await.expect("entry").expect("it is there");
    assert_eq!((last.version, &last.body), (WRITERS * EDITS, &json!(WRITERS * EDITS)), "no edit was lost");
}

pub(super) async fn entries_are_listed_by_kind_in_the_order_of_their_keys(ground: Arc<Ground>) {
    let queue = ground.open().await;
    // By bytes: neither upper case nor an accent stands where a language would put it.
    let keys = ["B", "a", "a-1", "a.1", "a_1", "b", "z", "é", "日本"];
    for key in keys.iter().rev() {
        queue.put_entry(endpoint(key, key), Some(0)).await.expect("put");
        queue.put_entry(NewEntry::new("key", *key, json!(null)), None).await.expect("put");
    }
    let page = async |after: Option<&str>, limit| {
        let entries = queue.entries("endpoint", after, limit).await.expect("entries");
        assert!(
            entries.iter().all(|entry| entry.kind == "endpoint" && entry.body["url"] == json!(entry.key))
        );
        entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };

    assert_eq!(page(None, 100).await, keys);
    assert_eq!(page(None, 2).await, keys[..2]);
    assert_eq!(page(Some("a"), 3).await, keys[2..5]);
    assert_eq!(page(Some("aa"), 100).await, keys[5..], "a key that is not there is a place all the same");
    assert_eq!(page(Some("日本"), 100).await, [""; 0]);
    assert_eq!(queue.entries("other", None, 100).await.expect("entries"), []);
    let mut walked = BTreeSet::new();
    let mut after: Option<String> = None;
    while let Some(last) = page(after.as_deref(), 2)
        .await
        .into_iter()
        .inspect(|key| {
            assert!(walked.insert(key.clone()), "{key} came twice");
        })
        .last()
    {
        after = Some(last);
    }
    assert_eq!(walked.len(), keys.len());
}

pub(super) async fn an_entry_that_no_database_takes_is_refused(ground: Arc<Ground>) {
    let queue = ground.open().await;
    let largest = "x".repeat(telecine_queue::MAX_JSON_BYTES - 2);
    let put = async |kind: &str, key: &str, body| queue.put_entry(NewEntry::new(kind, key, body), None).await;

    assert_eq!(put("kind", "key", json!(largest)).await.expect("it just fits"), 1);
    let stored = queue.entry("kind", "key").await.expect("entry").expect("it is there");
    assert_eq!(stored.body, json!(largest));
    for (kind, key, body) in [
        ("", "key", json!(1)),
        ("kind", "", json!(1)),
        ("kind", "a\nb", json!(1)),
        ("kind", "key", json!("a\0b")),
        ("kind", "key", json!(largest + "y")),
    ] {
        let refused = put(kind, key, body).await;
        assert!(matches!(refused, Err(QueueError::Invalid { .. })), "{kind:?} {key:?} {refused:?}");
    }
    // To ask for what can never be there is no failure of the database.
    let asked = queue.entry("kind", "a\0b").await;
    assert!(matches!(asked, Ok(None) | Err(QueueError::Invalid { .. })), "{asked:?}");
    assert_eq!(queue.entry("kind", "key").await.expect("entry"), Some(stored));
}
