//! Where the bytes of a run come from.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Url(address) | Self::S3(address) => f.write_str(address),
            Self::Upload(id) => write!(f, "upload {id}"),
        }
    }
}
