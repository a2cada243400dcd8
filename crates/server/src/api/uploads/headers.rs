//! What tus says in headers: the version, lengths and offsets, metadata, checksums.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::problem::{Code, Problem};

pub(super) const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
pub(super) const EXTENSIONS: HeaderValue =
    HeaderValue::from_static("creation,creation-with-upload,expiration,checksum,termination");
pub(super) const CHECKSUM_ALGORITHMS: HeaderValue = HeaderValue::from_static("sha1,sha256");

pub(super) const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
pub(super) const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
pub(super) const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
pub(super) const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
pub(super) const TUS_CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("tus-checksum-algorithm");
pub(super) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
pub(super) const UPLOAD_CONCAT: HeaderName = HeaderName::from_static("upload-concat");
pub(super) const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
pub(super) const UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
pub(super) const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
pub(super) const METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");
/// The hash that the whole file has to have, in hexadecimal digits.
pub(super) const TELECINE_SHA256: HeaderName = HeaderName::from_static("telecine-sha256");

/// The type of the bytes of an upload.
pub(super) const OFFSET_STREAM: &str = "application/offset+octet-stream";

/// A file's name may be shown to people; longer ones say nothing more.
const MAX_NAME_CHARS: usize = 255;

/// Whoever speaks no version that we speak is told so before anything else is looked at.
pub(super) fn require_version(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(TUS_RESUMABLE) {
        Some(told) if told == VERSION => Ok(()),
        Some(_) => {
            Err(Problem::new(Code::UnsupportedVersion, "tus 1.0.0 is spoken here, and no other version"))
        }
        None => Err(Problem::new(Code::UnsupportedVersion, "send `Tus-Resumable: 1.0.0`")),
    }
}

/// A header as text, where it is there.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let told = headers.get(name).map(HeaderValue::to_str).transpose();
    told.map_err(|_| Problem::invalid(name.as_str(), "this header is plain ASCII"))
}

/// A header that counts bytes.
pub(super) fn bytes(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, Problem> {
    let Some(told) = text(headers, name)? else { return Ok(None) };
    let is_number = !told.is_empty() && told.bytes().all(|byte| byte.is_ascii_digit());
    let number = told.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| Problem::invalid(name.as_str(), "this is a number of bytes"))
}

/// The type of the body, without its parameters and in lower case.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let told = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    told.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// What a client says of its file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// As it was sent, to be given back.
    pub(super) sent: Option<String>,
    pub(super) name: Option<String>,
    pub(super) sha256: Option<String>,
}

impl Metadata {
    /// `filename ZmlsbS5tcDQ=,sha256 …,key`: what we know of it, and the rest only to be given back.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let Some(sent) = text(headers, &UPLOAD_METADATA)? else {
            return Ok(Self { sha256: told_sha256(headers)?, ..Self::default() });
        };
        let invalid = |why: &str| Problem::invalid(UPLOAD_METADATA.as_str(), why);
        let mut known: Vec<(&str, String)> = Vec::new();
        for pair in sent.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            if known.iter().any(|(other, _)| *other == key) {
                return Err(invalid("a key is there twice"));
            }
            let value = BASE64_STANDARD.decode(value.trim());
            let value = value.map_err(|_| invalid("each value is Base64, after its key and a space"))?;
            known.push((key, String::from_utf8_lossy(&value).into_owned()));
        }
        let of = |key: &str| known.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str());
        let sha256 = match of("sha256") {
            Some(told) => Some(sha256_of(UPLOAD_METADATA.as_str(), told)?),
            None => told_sha256(headers)?,
        };
        let name = of("filename").or(of("name")).and_then(file_name);
        Ok(Self { sent: (!sent.is_empty()).then(|| sent.to_owned()), name, sha256 })
    }
}

/// The hash that the whole file has to have, where a header tells one.
pub(super) fn told_sha256(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let told = text(headers, &TELECINE_SHA256)?;
    told.map(|told| sha256_of(TELECINE_SHA256.as_str(), told)).transpose()
}

pub(super) fn sha256_of(path: &str, told: &str) -> Result<String, Problem> {
    let told = told.trim().to_ascii_lowercase();
    if told.len() == 64 && told.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(told);
    }
    Err(Problem::invalid(path, "a SHA-256 is 64 hexadecimal digits"))
}

/// A name to be shown: without the folders before it, and without what a terminal or a page could obey.
pub(super) fn file_name(told: &str) -> Option<String> {
    let last = told.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// What one request's bytes have to hash to.
#[derive(Clone, Debug)]
pub(super) struct Checksum {
    hash: Hash,
    wanted: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Hash {
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Checksum {
    /// `Upload-Checksum: sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=`
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let Some(told) = text(headers, &UPLOAD_CHECKSUM)? else { return Ok(None) };
        let invalid = |why: &str| Problem::invalid(UPLOAD_CHECKSUM.as_str(), why);
        let (algorithm, wanted) =
            told.split_once(' ').ok_or_else(|| invalid("this is an algorithm, a space, and Base64"))?;
        let (hash, length) = match algorithm {
            "sha1" => (Hash::Sha1(Sha1::new()), 20),
            "sha256" => (Hash::Sha256(Sha256::new()), 32),
            _ => return Err(invalid("sha1 and sha256 are known here")),
        };
        let wanted = BASE64_STANDARD.decode(wanted.trim()).ok().filter(|wanted| wanted.len() == length);
        let wanted = wanted.ok_or_else(|| invalid("the checksum is not one of that algorithm, in Base64"))?;
        Ok(Some(Self { hash, wanted }))
    }

    pub(super) fn update(&mut self, part: &[u8]) {
        match &mut self.hash {
            Hash::Sha1(hash) => hash.update(part),
            Hash::Sha256(hash) => hash.update(part),
        }
    }

    pub(super) fn holds(self) -> bool {
        match self.hash {
            Hash::Sha1(hash) => hash.finalize().as_slice() == self.wanted,
            Hash::Sha256(hash) => hash.finalize().as_slice() == self.wanted,
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn metadata_is_read_for_what_is_known_and_kept_as_it_was_sent() {
        let sent = "filename Li4vZmlsbS5tcDQ=, is_confidential,sha256 ".to_owned()
            + &BASE64_STANDARD.encode("AB".repeat(32));

        let metadata = Metadata::of(&with(UPLOAD_METADATA, &sent)).unwrap();

        assert_eq!(metadata.name.as_deref(), Some("film.mp4"));
        assert_eq!(metadata.sha256, Some("ab".repeat(32)));
        assert_eq!(metadata.sent, Some(sent));
        for wrong in ["filename ?", "a YQ==,a YQ==", "sha256 YQ=="] {
            assert!(Metadata::of(&with(UPLOAD_METADATA, wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_checksum_is_of_a_known_algorithm_and_of_its_length() {
        let of = |told: &str| Checksum::of(&with(UPLOAD_CHECKSUM, told));
        let mut sha1 = of("sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=").unwrap().unwrap();

        sha1.update(b"hello ");
        sha1.update(b"world");

        assert!(sha1.holds());
        for wrong in ["md5 YQ==", "sha1", "sha1 YQ==", "sha256 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", "sha1 ?"] {
            assert_eq!(of(wrong).unwrap_err().code(), Code::InvalidRequest, "{wrong}");
        }
    }

    #[test]
    fn a_length_is_digits_and_nothing_else() {
        let of = |told: &str| bytes(&with(UPLOAD_LENGTH, told), &UPLOAD_LENGTH);

        assert_eq!(of("12").unwrap(), Some(12));
        assert_eq!(bytes(&HeaderMap::new(), &UPLOAD_LENGTH).unwrap(), None);
        for wrong in ["", "-1", "+1", "1.5", "0x10", "99999999999999999999999"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
