//! Where the bytes of a run come from.

use std::fmt;
use std::path::PathBuf;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use url::Url;

use crate::keys;
use crate::request::is_web_address;

/// An input as a caller names it: `{"url": "https://…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A file of this machine, in a folder that the configuration allows.
    Path(PathBuf),
    /// Pulled over HTTP from a public address.
    Url(String),
    /// `s3://bucket/key`.
    S3(String),
    /// An upload that is complete, by its id.
    Upload(String),
}

const KINDS: [&str; 4] = ["upload", "url", "s3", "path"];
const LONGEST_NAME: usize = 1_000;

impl Input {
    /// As the caller calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::Url(_) => "url",
            Self::S3(_) => "s3",
            Self::Upload(_) => "upload",
        }
    }

    /// What no input can look like, whatever is configured.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let is_plain =
            |text: &str| text.chars().count() <= LONGEST_NAME && !text.chars().any(char::is_control);
        let (is_right, message) = match self {
            Self::Upload(id) => (keys::upload("", id).is_some(), "this is no id of an upload"),
            Self::Url(address) => {
                (is_web_address(address), "an http or https address of at most 2048 characters")
            }
            Self::S3(address) => {
                let parts = address.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
                let is_whole = parts.is_some_and(|(bucket, key)| !bucket.is_empty() && !key.is_empty());
                (is_whole && is_plain(address), "an address such as s3://bucket/key")
            }
            Self::Path(path) => {
                let is_right = path.is_absolute() && path.to_str().is_some_and(is_plain);
                (is_right, "the absolute path of a file")
            }
        };
        (!is_right).then_some((self.kind(), message))
    }
}

/// One key and its value, and nothing else.
impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOf;

        impl<'de> Visitor<'de> for OneOf {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("exactly one of `upload`, `url`, `s3` and `path`")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Input, M::Error> {
                let none = || M::Error::custom("name exactly one of `upload`, `url`, `s3` and `path`");
                let kind: String = map.next_key()?.ok_or_else(none)?;
                let input = match kind.as_str() {
                    "upload" => Input::Upload(map.next_value()?),
                    "url" => Input::Url(map.next_value()?),
                    "s3" => Input::S3(map.next_value()?),
                    "path" => Input::Path(map.next_value()?),
                    other => return Err(M::Error::unknown_field(other, &KINDS)),
                };
                match map.next_key::<String>()? {
                    None => Ok(input),
                    Some(_) => Err(none()),
                }
            }
        }
        deserializer.deserialize_map(OneOf)
    }
}

#[cfg(feature = "openapi")]
mod schema {
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, Type};
    use utoipa::{PartialSchema, ToSchema};

    use super::Input;

    impl ToSchema for Input {}

    impl PartialSchema for Input {
        fn schema() -> RefOr<Schema> {
            let kinds = [
                ("upload", "^[0-9A-Za-z_-]{1,64}$", 64, "An upload that is complete, by its id."),
                (
                    "url",
                    "^https?://[^\\s\\x00-\\x1f\\x7f-\\x9f]+$",
                    2_048,
                    "Pulled over HTTP from a public address.",
                ),
                (
                    "s3",
                    "^s3://[^/\\x00-\\x1f\\x7f-\\x9f]+/[^\\x00-\\x1f\\x7f-\\x9f]+$",
                    1_000,
                    "An object in a bucket that the configuration allows.",
                ),
                (
                    "path",
                    "^/[^\\x00-\\x1f\\x7f-\\x9f]*$",
                    1_000,
                    "A file of the server, in a folder that the configuration allows.",
                ),
            ];
            let one = kinds.into_iter().fold(OneOfBuilder::new(), |all, (kind, pattern, longest, about)| {
                let value = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .pattern(Some(pattern))
                    .max_length(Some(longest))
                    .description(Some(about));
                all.item(
                    ObjectBuilder::new()
                        .property(kind, value)
                        .required(kind)
                        .additional_properties(Some(AdditionalProperties::FreeForm(false))),
                )
            });
            one.description(Some("Where the bytes come from: exactly one of these.")).into()
        }
    }
}

/// What lies beside a complete upload, at [`crate::keys::upload_sidecar`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedUpload {
    pub bytes: u64,
    /// In lowercase hexadecimal digits.
    pub sha256: String,
    /// As the caller named the file. Never a part of a key.
    #[serde(default)]
    pub name: Option<String>,
    /// What a scanner found in it. Its bytes are gone then, and no run takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infected: Option<String>,
}

/// As records, logs and people may see it.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Url(address) => f.write_str(&without_secrets(address)),
            Self::S3(address) => f.write_str(address),
            Self::Upload(id) => write!(f, "upload:{id}"),
        }
    }
}

/// An address without what may let somebody in: user, password, and the query, which may be a signature.
pub(crate) fn without_secrets(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else {
        // A relative one, or none at all: what stands for a user in that cannot be told.
        return match address.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://…"),
            None => address.split(['?', '#']).next().unwrap_or_default().to_owned(),
        };
    };
    // Addresses without a host have neither.
    let _ = (url.set_username(""), url.set_password(None));
    let had_query = url.query().is_some();
    url.set_query(None);
    url.set_fragment(None);
    if had_query { format!("{url}?…") } else { url.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let shown = |address: &str| Input::Url(address.to_owned()).to_string();

        assert_eq!(shown("https://user:pass@a.example/film.mp4"), "https://a.example/film.mp4");
        assert_eq!(shown("https://a.example/film.mp4?sig=abc#x"), "https://a.example/film.mp4?…");
        assert_eq!(shown("/film.mp4?sig=abc"), "/film.mp4");
        assert_eq!(shown("http://user:pass@[::1]:99999/x?sig=abc"), "http://…");
    }
}
