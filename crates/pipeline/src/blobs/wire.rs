//! What a bucket's server answers, as types.
//!
//! The store's client keeps the status of a failed request to itself and gives its text away. So its HTTP is wrapped:
//! an answer that is no success becomes a [`Refusal`], which stays in the chain of causes, and the checksum that a put
//! is answered with is compared with the one that was sent.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use serde::Deserialize;

const SHA256: &str = "x-amz-checksum-sha256";
/// More of a message helps nobody.
const MESSAGE_CHARS: usize = 300;

/// An answer that is no success, as the server words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} {code}: {message}")]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// `SlowDown`, `InvalidAccessKeyId`, …; empty where the answer has none.
    pub(super) code: String,
    pub(super) message: String,
}

/// The server has stored something else than was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sent with the checksum {sent}, stored with {stored}")]
pub(super) struct OtherBytes {
    sent: String,
    stored: String,
}

/// Connects as usual, and wraps what it connected.
#[derive(Debug, Default)]
pub(super) struct WatchedConnector(ReqwestConnector);

impl HttpConnector for WatchedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watched(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Watched(HttpClient);

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let sent = request.headers().get(SHA256).cloned();
        let response = self.0.execute(request).await?;
        let status = response.status().as_u16();
        match status {
            400..=599 => refused(status, response).await,
            _ => {
                let stored = response.headers().get(SHA256);
                match (sent, stored) {
                    (Some(sent), Some(stored)) if sent != stored => Err(HttpError::new(
                        HttpErrorKind::Unknown,
                        OtherBytes { sent: printed(&sent), stored: printed(stored) },
                    )),
                    _ => Ok(response),
                }
            }
        }
    }
}

fn printed(header: &object_store::HeaderValue) -> String {
    String::from_utf8_lossy(header.as_bytes()).into_owned()
}

async fn refused(status: u16, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let body = body.bytes().await?;
    let said = ErrorBody::parse(&body);
    let is_of_client = matches!(status, 404 | 409 | 412) && said.code != "NoSuchBucket";
    if is_of_client {
        // The client gives these a meaning of its own.
        return Ok(HttpResponse::from_parts(parts, body.into()));
    }
    // What kind of error it is decides whether the client asks again.
    let kind = match status {
        408 | 429 | 500 | 502..=504 => HttpErrorKind::Request,
        _ => HttpErrorKind::Unknown,
    };
    let message = if said.message.is_empty() {
        parts.status.canonical_reason().unwrap_or("no reason given").to_owned()
    } else {
        said.message.chars().take(MESSAGE_CHARS).collect()
    };
    Err(HttpError::new(kind, Refusal { status, code: said.code, message }))
}

/// The body of a failed request to S3.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorBody {
    code: String,
    message: String,
}

impl ErrorBody {
    /// Proxies and answers to HEAD have no such body.
    fn parse(body: &[u8]) -> Self {
        std::str::from_utf8(body).ok().and_then(|text| quick_xml::de::from_str(text).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_says_is_read_and_its_secrets_are_left() {
        let body = br#"<?xml version="1.0" encoding="UTF-8"?><Error><Code>SignatureDoesNotMatch</Code>
            <Message>The signature we calculated &amp; yours differ</Message>
            <StringToSign>AWS4-HMAC-SHA256 secret</StringToSign></Error>"#;

        let said = ErrorBody::parse(body);

        assert_eq!(said.code, "SignatureDoesNotMatch");
        assert_eq!(said.message, "The signature we calculated & yours differ");
        assert_eq!(ErrorBody::parse(b"<html><body>Bad Gateway</body></html>").code, "");
    }
}
