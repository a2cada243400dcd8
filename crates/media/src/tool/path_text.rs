//! Paths in JSON. A path is any bytes and JSON is text, so one that is no text is spelled in hexadecimal digits behind a
//! zero byte, which no path can contain.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In the form in which it is written and read.
struct PathText(PathBuf);

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        spelled(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        meant(&text).map(Self).ok_or_else(|| serde::de::Error::custom("a path is not as known"))
    }
}

fn spelled(path: &Path) -> String {
    let digits = || path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    path.to_str().map_or_else(|| format!("\0{}", digits()), str::to_owned)
}

fn meant(text: &str) -> Option<PathBuf> {
    let Some(digits) = text.strip_prefix('\0') else { return Some(text.into()) };
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes.collect::<Option<Vec<u8>>>().map(|bytes| OsString::from_vec(bytes).into())
}

pub(super) mod one {
    use super::{Deserialize, Deserializer, PathBuf, PathText, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(path: &PathBuf, to: S) -> Result<S::Ok, S::Error> {
        PathText(path.clone()).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        PathText::deserialize(from).map(|text| text.0)
    }
}

pub(super) mod many {
    use super::{Deserialize, Deserializer, PathBuf, PathText, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| PathText(path.clone())))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        Vec::<PathText>::deserialize(from).map(|texts| texts.into_iter().map(|text| text.0).collect())
    }
}

pub(super) mod maybe {
    use super::{Deserialize, Deserializer, PathBuf, PathText, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        path.clone().map(PathText).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Option::<PathText>::deserialize(from).map(|text| text.map(|text| text.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_survives_being_written_and_read() {
        for bytes in [&b"/plain/x.mp4"[..], b"/\xff\xfe/x.mp4", "/a b/\u{e9}\n.mp4".as_bytes(), b""] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));

            assert_eq!(meant(&spelled(&path)), Some(path));
        }
        assert_eq!(meant("\0zz"), None);
    }
}
