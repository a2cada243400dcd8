//! A store that is a bucket, or a part of one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::client::{HttpClient, HttpConnector};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as StorePath;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use tokio::sync::OnceCell;
use url::Url;

use super::StoreError;
use super::wire::WatchedConnector;

/// No tenant's folder can have this name.
const PROBE: &str = "_store/conditional-puts";
const SMALL: &[u8] = b"telecine asks here whether the store refuses to overwrite\n";

/// What a bucket says of a file when a player reads it from there.
const CONTENT_TYPES: [(&str, &str); 17] = [
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("mpd", "application/dash+xml"),
    ("m4s", "video/iso.segment"),
    ("mp4", "video/mp4"),
    ("m4a", "audio/mp4"),
    ("mp3", "audio/mpeg"),
    ("opus", "audio/ogg"),
    ("webm", "video/webm"),
    ("vtt", "text/vtt"),
    ("jpg", "image/jpeg"),
    ("png", "image/png"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("gif", "image/gif"),
    ("json", "application/json"),
    ("dat", "application/octet-stream"),
    ("txt", "text/plain; charset=utf-8"),
];

/// How a bucket is reached.
#[derive(Clone)]
pub struct StoreOptions {
    /// `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, …
    pub variables: BTreeMap<String, String>,
    pub connect_timeout: Duration,
    /// How long the server may be silent, before its answer and within it. A part of an upload has to arrive in it too.
    pub idle_timeout: Duration,
    /// A request that fails is tried again for so long, and so often.
    pub retry_for: Duration,
    pub retries: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            variables: BTreeMap::new(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            retry_for: Duration::from_secs(20),
            retries: 4,
        }
    }
}

impl StoreOptions {
    /// With the `AWS_…` variables of this process.
    pub fn from_env() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, value)| name.starts_with("AWS_") && !value.is_empty())
            .collect();
        Self { variables, ..Self::default() }
    }

    fn variable(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.variables.get(*name)).map(String::as_str)
    }
}

/// Without the values, some of which are secrets.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("connect_timeout", &self.connect_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("retry_for", &self.retry_for)
            .field("retries", &self.retries)
            .finish()
    }
}

pub(super) struct Bucket {
    pub(super) s3: AmazonS3,
    /// For requests that the store's client does not know.
    pub(super) http: HttpClient,
    pub(super) name: String,
    /// Ends in no slash; empty for the whole bucket.
    pub(super) prefix: String,
    pub(super) options: StoreOptions,
    refuses_to_overwrite: OnceCell<bool>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.name, self.prefix)
    }
}

impl Bucket {
    /// `s3://bucket/prefix`. Nothing is asked of the server yet.
    pub(super) fn open(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        let (name, prefix) = split_url(url)?;
        // Whoever was first has installed the same one, or another that does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = Endpoint::of(options, &name)?;
        let typed = CONTENT_TYPES.iter().fold(ClientOptions::new(), |typed, (suffix, mime)| {
            typed.with_content_type_for_suffix(*suffix, *mime)
        });
        let client = typed
            .with_timeout_disabled()
            .with_connect_timeout(options.connect_timeout)
            .with_read_timeout(options.idle_timeout)
            .with_allow_http(endpoint.as_ref().is_some_and(|endpoint| endpoint.url.scheme() == "http"));
        let invalid = |error: Error| StoreError::invalid(format!("{url}: {error}"));
        let http = WatchedConnector::default().connect(&client).map_err(invalid)?;
        let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(RetryConfig {
            backoff: BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() },
            max_retries: options.retries,
            retry_timeout: options.retry_for,
        });
        // AWS's own variable turns checksums off, for stores that refuse what they do not know.
        if options.variable(&["AWS_REQUEST_CHECKSUM_CALCULATION"]) != Some("when_required") {
            builder = builder.with_checksum_algorithm(Checksum::SHA256);
        }
        for (name, value) in &options.variables {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint.url.as_str());
        }
        builder = builder.with_bucket_name(&name).with_http_connector(WatchedConnector::default());
        let s3 = builder.build().map_err(invalid)?;
        let options = options.clone();
        Ok(Self { s3, http, name, prefix, options, refuses_to_overwrite: OnceCell::new() })
    }

    pub(super) fn path(&self, key: &str) -> Result<StorePath, StoreError> {
        let whole = match (self.prefix.as_str(), key) {
            ("", key) => key.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}/{key}"),
        };
        StorePath::parse(whole).map_err(|error| StoreError::invalid(error.to_string()))
    }

    /// The key of what lies there.
    pub(super) fn key(&self, path: &StorePath) -> String {
        let whole = path.as_ref();
        let rest = whole.strip_prefix(&self.prefix).map(|rest| rest.trim_start_matches('/'));
        rest.unwrap_or(whole).to_owned()
    }

    /// Names of folders directly below one, behind one of them, in order.
    pub(super) async fn folders(
        &self,
        below: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let path = self.path(below)?;
        let base = if path.as_ref().is_empty() { String::new() } else { format!("{path}/") };
        // The character behind `/`: all that lies in the folder comes before it.
        let offset = after.map(|after| format!("{base}{after}0"));
        let mut options = PaginatedListOptions {
            offset: offset.clone(),
            delimiter: Some("/".into()),
            max_keys: Some(limit),
            ..PaginatedListOptions::default()
        };
        let mut names = Vec::new();
        loop {
            let prefix = (!base.is_empty()).then_some(base.as_str());
            let listed = self.s3.list_paginated(prefix, options.clone()).await;
            let listed = listed.map_err(|error| StoreError::of(below, &error))?;
            let found =
                listed.result.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned));
            // Not every server knows where to begin.
            names.extend(
                found.filter(|name| offset.as_ref().is_none_or(|offset| format!("{base}{name}/") > *offset)),
            );
            options.page_token = listed.page_token;
            if options.page_token.is_none() || names.len() >= limit {
                break;
            }
        }
        names.sort_by_cached_key(|name| format!("{name}/"));
        names.truncate(limit);
        Ok(names)
    }

    /// Stores it unless there is something under the key; says whether it did.
    pub(super) async fn put_new(&self, key: &str, bytes: Bytes) -> Result<bool, StoreError> {
        let path = self.path(key)?;
        if self.refuses_to_overwrite().await? {
            return self.create(key, &path, bytes).await;
        }
        // Two who do this at once may both think that they were first; the later one's bytes stay.
        match self.s3.head(&path).await {
            Ok(_) => Ok(false),
            Err(Error::NotFound { .. }) => {
                let put = self.s3.put(&path, PutPayload::from_bytes(bytes)).await;
                put.map(|_| true).map_err(|error| StoreError::of(key, &error))
            }
            Err(error) => Err(StoreError::of(key, &error)),
        }
    }

    async fn create(&self, key: &str, path: &StorePath, bytes: Bytes) -> Result<bool, StoreError> {
        match self.s3.put_opts(path, PutPayload::from_bytes(bytes), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(StoreError::of(key, &error)),
        }
    }

    /// Some servers ignore `If-None-Match` and overwrite: found out once, by trying.
    pub(super) async fn refuses_to_overwrite(&self) -> Result<bool, StoreError> {
        let probe = || async {
            let path = self.path(PROBE)?;
            for _ in 0..2 {
                match self.create(PROBE, &path, Bytes::from_static(SMALL)).await {
                    Ok(true) => (),
                    Ok(false) => return Ok(true),
                    // The server knows of no such thing and says so.
                    Err(StoreError::Invalid { reason }) => {
                        tracing::debug!(reason, "the store refuses conditional puts");
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
            }
            tracing::warn!(store = ?self, "the store overwrites though it is asked not to");
            Ok(false)
        };
        self.refuses_to_overwrite.get_or_try_init(probe).await.copied()
    }

    /// Whether there are credentials at all.
    pub(super) async fn require_credentials(&self) -> Result<(), StoreError> {
        let found = self.s3.credentials().get_credential().await;
        found.map(drop).map_err(|error| StoreError::Denied {
            key: format!("s3://{}", self.name),
            reason: format!(
                "no credentials: AWS_ACCESS_KEY_ID is not set, and nobody else has any ({})",
                StoreError::of("", &error)
            ),
        })
    }
}

/// The bucket and what comes after it.
pub(super) fn split_url(url: &str) -> Result<(String, String), StoreError> {
    let invalid = || StoreError::invalid(format!("{url} is not of the form s3://bucket/prefix"));
    let rest = url.strip_prefix("s3://").ok_or_else(invalid)?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if bucket.is_empty() || !bucket.chars().all(is_name) {
        return Err(invalid());
    }
    let prefix = prefix.trim_matches('/');
    StorePath::parse(prefix).map_err(|_| invalid())?;
    Ok((bucket.to_owned(), prefix.to_owned()))
}

/// Where the server is, if it is not AWS.
struct Endpoint {
    url: Url,
}

impl Endpoint {
    fn of(options: &StoreOptions, bucket: &str) -> Result<Option<Self>, StoreError> {
        let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let Some(text) = options.variable(&names) else { return Ok(None) };
        let mut url = Url::parse(text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
            .ok_or_else(|| StoreError::invalid("the store's endpoint is no http or https address"))?;
        if !url.username().is_empty() || url.password().is_some() {
            let reason =
                "credentials belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not in the endpoint";
            return Err(StoreError::invalid(reason));
        }
        let is_by_host = options
            .variable(&["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"])
            .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"));
        let host = url.host_str().unwrap_or_default().to_owned();
        if is_by_host && !host.starts_with(&format!("{bucket}.")) {
            url.set_host(Some(&format!("{bucket}.{host}")))
                .map_err(|error| StoreError::invalid(format!("the store's endpoint: {error}")))?;
        }
        Ok(Some(Self { url }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> StoreOptions {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        StoreOptions { variables: variables.collect(), ..StoreOptions::default() }
    }

    #[test]
    fn an_address_is_a_bucket_and_a_prefix() {
        let split = |url: &str| split_url(url).map_err(|error| error.code());

        assert_eq!(split("s3://films"), Ok(("films".into(), String::new())));
        assert_eq!(split("s3://films/a/b/"), Ok(("films".into(), "a/b".into())));
        for wrong in ["films", "s3://", "s3:///a", "s3://a b", "s3://films/../x", "s3://user:key@films"] {
            assert_eq!(split(wrong), Err("storage_invalid"), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_is_nobodys_business() {
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        for url in ["s3://films", "s3://films/deep/er"] {
            let bucket = Bucket::open(url, &options(&keys)).unwrap();

            let path = bucket.path("acme/run/source").unwrap();

            assert_eq!(bucket.key(&path), "acme/run/source");
        }
    }

    #[test]
    fn an_endpoint_is_as_the_usual_variables_say() {
        let endpoint = |variables: &[(&str, &str)]| {
            let found = Endpoint::of(&options(variables), "films");
            found.map(|found| found.map(|it| it.url.to_string())).map_err(|error| error.code())
        };
        let here = ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000");

        assert_eq!(endpoint(&[]), Ok(None));
        assert_eq!(endpoint(&[here]), Ok(Some("http://127.0.0.1:9000/".into())));
        assert_eq!(
            endpoint(&[here, ("AWS_ENDPOINT_URL_S3", "https://s3.example")]),
            Ok(Some("https://s3.example/".into()))
        );
        let by_host = ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true");
        assert_eq!(
            endpoint(&[("AWS_ENDPOINT_URL", "https://s3.example"), by_host]),
            Ok(Some("https://films.s3.example/".into()))
        );
        assert_eq!(endpoint(&[("AWS_ENDPOINT_URL", "ftp://a")]), Err("storage_invalid"));
        assert_eq!(endpoint(&[("AWS_ENDPOINT_URL", "http://u:p@a")]), Err("storage_invalid"));
    }

    #[test]
    fn no_secret_is_ever_printed() {
        let secret = options(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")]);
        let bucket = Bucket::open("s3://films/x", &secret).unwrap();

        assert!(!format!("{secret:?} {bucket:?}").contains("hush"));
    }
}
