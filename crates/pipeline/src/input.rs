//! Where the bytes of a run come from.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::Url;

/// An input as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// What lies beside a complete upload, at [`crate::keys::upload_sidecar`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedUpload {
    pub bytes: u64,
    /// In lowercase hexadecimal digits.
    pub sha256: String,
    /// As the caller named the file. Never a part of a key.
    #[serde(default)]
    pub name: Option<String>,
}

/// As records, logs and people may see it.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Url(address) => f.write_str(&without_secrets(address)),
            Self::S3(address) => f.write_str(address),
            Self::Upload(id) => write!(f, "upload {id}"),
        }
    }
}

/// An address without what may let somebody in: user, password, and the query, which may be a signature.
pub(crate) fn without_secrets(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else {
        // A relative one, or none at all.
        return address.split(['?', '#']).next().unwrap_or_default().to_owned();
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
    }
}
