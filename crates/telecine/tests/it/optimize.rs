//! The way of the plain media worker, whole: files in a bucket, requests on a topic, results on another, files in a bucket;
//! with a real broker, a real S3 server, a real virus scanner, and every program of ours and others.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rdkafka::message::Message;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::Digest;

use crate::clamd_server::{ClamdServer, STREAM_MB, eicar};
use crate::clips;
use crate::kafka::body;
use crate::kafka_server::{KafkaServer, Sent};
use crate::s3_server::{BUCKET, S3Server};
use crate::serve::Serving;
use crate::telecine::Place;
use crate::vips_helper::vips_helper;
use crate::worker::Worker;

const UPLOADS: &str = "uploads";
const MEDIA: &str = "media";

/// A client of buckets that has nothing in common with ours: curl, which signs by itself.
struct Curl {
    endpoint: String,
    signed_as: [String; 2],
}

impl Curl {
    fn of(variables: &BTreeMap<String, String>) -> Self {
        let of = |name: &str| variables[name].clone();
        let user = format!("{}:{}", of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY"));
        let signed_as = [format!("aws:amz:{}:s3", of("AWS_REGION")), user];
        Self { endpoint: of("AWS_ENDPOINT_URL"), signed_as }
    }

    fn ask(&self, path: &str, arguments: &[&str]) -> Vec<u8> {
        let [scheme, user] = &self.signed_as;
        let done = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--aws-sigv4", scheme, "--user", user])
            .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .args(arguments)
            .arg(format!("{}/{path}", self.endpoint))
            .output()
            .expect("curl is installed (make setup)");
        assert!(done.status.success(), "{path}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    }

    fn make_bucket(&self, bucket: &str) {
        self.ask(bucket, &["--request", "PUT"]);
    }

    fn put(&self, file: &Path, bucket: &str, key: &str) {
        self.ask(&format!("{bucket}/{key}"), &["--upload-file", file.to_str().expect("UTF-8")]);
    }

    fn get(&self, bucket: &str, key: &str) -> Vec<u8> {
        self.ask(&format!("{bucket}/{key}"), &[])
    }

    /// Every key of a bucket.
    fn keys(&self, bucket: &str) -> Vec<String> {
        let listed = String::from_utf8(self.ask(&format!("{bucket}?list-type=2"), &[])).expect("XML is text");
        assert!(listed.contains("<IsTruncated>false</IsTruncated>"), "{listed}");
        let keys = listed.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap_or_default());
        keys.map(str::to_owned).collect()
    }

    /// What a result tells, fetched into a folder under the same keys. Each has the bytes that are told.
    fn fetch(&self, result: &Value, folder: &Path) -> Vec<Value> {
        let variants = result["variants"].as_array().expect("a list").clone();
        for variant in &variants {
            let key = variant["key"].as_str().expect("a key");
            let bytes = self.get(MEDIA, key);
            let hash =
                sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            assert_eq!((&json!(bytes.len()), &json!(hash)), (&variant["bytes"], &variant["sha256"]), "{key}");
            let file = folder.join(key);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder can be made");
            std::fs::write(file, bytes).expect("a file can be written");
        }
        variants
    }
}

/// Two files that are whole, one that is damaged, one that is infected, and one that is asked for and is not there.
fn upload_and_ask(place: &Place, bucket: &Curl) -> Vec<Sent> {
    let (photo, film) = (place.path("photo.jpg"), place.path("film.mp4"));
    clips::photo(&photo);
    clips::film(2, &film);
    let whole = std::fs::read(&film).expect("it was made");
    place.write_bytes("damaged.mp4", &whole[..whole.len() / 2]);
    let infected = [std::fs::read(&photo).expect("it was made"), eicar()].concat();
    place.write_bytes("infected.jpg", &infected);
    for name in ["photo.jpg", "film.mp4", "damaged.mp4", "infected.jpg"] {
        bucket.put(&place.path(name), UPLOADS, &format!("in/{name}"));
    }
    let asked = [
        ("photo.jpg", "picture", "image"),
        ("film.mp4", "film", "video"),
        ("damaged.mp4", "damaged", "video"),
        ("nonesuch.jpg", "missing", "image"),
        ("infected.jpg", "infected", "image"),
    ];
    let request = |(name, media, kind): (&str, &str, &str)| {
        let key = format!("in/{name}");
        Sent::new(json!({"bucket": UPLOADS, "key": key, "userId": "u-7", "mediaId": media, "type": kind}))
    };
    asked.into_iter().map(request).collect()
}

#[test]
fn what_is_asked_for_on_a_topic_is_made_of_one_bucket_into_another_and_answered() {
    vips_helper();
    let (place, kafka, s3, clamd) =
        (Place::new(), KafkaServer::start(), S3Server::start(), ClamdServer::start());
    let variables = s3.options().variables;
    let bucket = Curl::of(&variables);
    bucket.make_bucket(UPLOADS);
    bucket.make_bucket(MEDIA);
    place.write(
        "telecine.toml",
        &format!(
            "store = \"s3://{BUCKET}/store\"\npublish = \"s3://{MEDIA}\"\ninput_buckets = [\"s3://{UPLOADS}\"]\n\
             scratch = \"scratch\"\npoll_ms = 200\nclamd = \"{}\"\nclamd_max_mb = {STREAM_MB}\n\n\
             [kafka]\nbrokers = \"{}\"\nformat = \"optimize\"\ncreate_topics = true\n",
            clamd.by_unix().address,
            kafka.address()
        ),
    );
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (&**name, &**value)).collect();
    let serve = Serving::start_with(&place, &["serve"], "error", &variables);
    let worker = Worker::start_with(&place, &[], &variables);

    let requests = upload_and_ask(&place, &bucket);
    let asked = requests.len();
    kafka.produce("optimize-request", requests);
    let results = kafka.read("optimize-response", asked);

    let results: BTreeMap<String, Value> = results
        .iter()
        .map(|result| (String::from_utf8_lossy(result.key().expect("a key")).into_owned(), body(result)))
        .collect();
    assert_eq!(results.len(), asked, "one for each media id, which is its key: {results:?}");
    for (media, result) in &results {
        assert_eq!((&result["mediaId"], &result["userId"]), (&json!(media), &json!("u-7")), "{result}");
        let is_whole = ["picture", "film"].contains(&media.as_str());
        assert_eq!((&result["success"], result["error"].is_null()), (&json!(is_whole), is_whole), "{result}");
    }
    let fetched = place.path("fetched");
    let told = bucket.fetch(&results["picture"], &fetched);
    is_every_picture(&told, &fetched);
    let told = bucket.fetch(&results["film"], &fetched);
    is_the_film(&told, &fetched);
    let codes = ["damaged", "missing", "infected"].map(|media| &results[media]["run"]["error"]["code"]);
    assert_eq!(codes, ["input_truncated", "input_not_found", "infected"], "{results:?}");
    let published = bucket.keys(MEDIA);
    let of = |prefix: &str| published.iter().filter(|key| key.starts_with(prefix)).count();
    assert_eq!(
        of("u-7/images/picture/") + of("u-7/videos/film/"),
        published.len(),
        "nothing of the others: {published:?}"
    );
    assert_eq!(kafka.count("optimize-request.dead"), 0, "each of them became a run");
    serve.signal(Signal::TERM);
    worker.signal(Signal::TERM);
    assert_eq!((serve.ends().0, worker.ends().0), (Some(0), Some(0)));
    kafka.kill();
}

/// Four widths in two formats and a thumbnail, each as large as it is told to be.
fn is_every_picture(told: &[Value], fetched: &Path) {
    assert_eq!(told.len(), 9, "{told:?}");
    for variant in told {
        let key = variant["key"].as_str().expect("a key");
        assert!(key.starts_with("u-7/images/picture/"), "{key}");
        let (width, height) = clips::size(&fetched.join(key));
        assert_eq!((&json!(width), &json!(height)), (&variant["width"], &variant["height"]), "{variant}");
    }
    let thumb = told.iter().find(|variant| variant["name"] == "thumb").expect("a thumbnail");
    assert_eq!((&thumb["width"], &thumb["format"]), (&json!(300), &json!("webp")), "{thumb}");
}

/// A film that plays by its playlist and as one file, to its end, and a poster.
fn is_the_film(told: &[Value], fetched: &Path) {
    let folder = fetched.join("u-7/videos/film");
    for variant in told {
        assert!(variant["key"].as_str().is_some_and(|key| key.starts_with("u-7/videos/film/")), "{variant}");
    }
    let frames = clips::frames(&folder.join("hls/master.m3u8"));
    assert!(!frames.is_empty() && frames.iter().all(|frames| *frames == 50), "{frames:?}");
    assert_eq!(clips::frames(&folder.join("video.mp4")), [50]);
    let poster = told.iter().find(|variant| variant["name"] == "poster").expect("a poster");
    let (width, height) = clips::size(&folder.join("poster.jpg"));
    assert_eq!((&json!(width), &json!(height)), (&poster["width"], &poster["height"]), "{poster}");
}
