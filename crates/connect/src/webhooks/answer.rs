//! What an endpoint's answer means.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

/// Kept of an answer's body, for the log.
const KEPT_BYTES: usize = 1_024;
/// A body is read for no longer: the head has said all that counts.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// An endpoint that asks for more time is asked again by then.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// The head of an answer, and the beginning of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) text: String,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Delivered,
    /// The endpoint wants nothing, ever again.
    Gone,
    /// The endpoint asks for time.
    Later(Duration),
    Failed {
        code: String,
        message: String,
    },
}

impl Answer {
    pub(super) async fn of(response: Response) -> Self {
        let status = response.status();
        let retry_after = retry_after(response.headers(), SystemTime::now());
        Self { status, retry_after, text: beginning(response).await }
    }

    pub(super) fn verdict(&self) -> Verdict {
        match (self.status, self.retry_after) {
            (status, _) if status.is_success() => Verdict::Delivered,
            (StatusCode::GONE, _) => Verdict::Gone,
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(after)) => {
                Verdict::Later(after)
            }
            (status, _) if status.is_redirection() => Verdict::Failed {
                code: "redirected".into(),
                message: format!("the endpoint answered {status}, and redirects are not followed"),
            },
            (status, _) => Verdict::Failed {
                code: format!("http_{}", status.as_u16()),
                message: format!("the endpoint answered {status}"),
            },
        }
    }
}

/// In seconds, or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let told = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match told.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(told).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(after.min(LONGEST_WAIT))
}

/// Whatever goes wrong here changes nothing: the status has come.
async fn beginning(mut response: Response) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        while let Ok(Some(part)) = response.chunk().await {
            bytes.extend_from_slice(&part[..part.len().min(KEPT_BYTES - bytes.len())]);
            if bytes.len() >= KEPT_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(READ_WITHIN, reading).await;
    printable(&String::from_utf8_lossy(&bytes))
}

/// What strangers send is looked at in terminals and logs.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn verdict(status: u16, retry_after: Option<u64>) -> Verdict {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, retry_after: retry_after.map(Duration::from_secs), text: String::new() }.verdict()
    }

    #[test]
    fn only_2xx_is_success() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, Some(3)), Verdict::Delivered);
        }
        for status in [300, 301, 302, 304, 307, 308, 400, 401, 404, 408, 429, 500, 502, 503, 504] {
            assert!(matches!(verdict(status, None), Verdict::Failed { .. }), "{status}");
        }
        assert_eq!(verdict(410, None), Verdict::Gone);
    }

    #[test]
    fn time_is_given_to_whoever_asks_for_it() {
        assert_eq!(verdict(429, Some(7)), Verdict::Later(Duration::from_secs(7)));
        assert_eq!(verdict(503, Some(7)), Verdict::Later(Duration::from_secs(7)));
        assert!(matches!(verdict(500, Some(7)), Verdict::Failed { .. }));
    }

    #[test]
    fn time_is_told_in_seconds_or_as_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let after = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, now)
        };

        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("99999999999"), Some(LONGEST_WAIT));
        assert_eq!((after("soon"), after("-1")), (None, None));
    }

    #[test]
    fn nothing_of_an_answer_steers_a_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\0c\r\nd"), "a[31mbc\nd");
    }
}
