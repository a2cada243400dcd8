//! Instants as the queue stores them: whole milliseconds of UTC.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An instant in UTC, to the millisecond. Prints and serialises as RFC 3339.
///
/// ```
/// use telecine_queue::Timestamp;
/// let at = Timestamp::from_ms(1_700_000_000_000);
/// assert_eq!(at.to_string(), "2023-11-14T22:13:20Z");
/// assert_eq!("2023-11-14T22:13:20Z".parse(), Ok(at));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
pub struct Timestamp(i64);

/// The instants that RFC 3339 can print: 0000-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z.
const FIRST_MS: i64 = -62_167_219_200_000;
const LIMIT_MS: i64 = 253_402_300_799_999;

impl Timestamp {
    /// This process's wall clock. On Postgres the database's own clock decides instead.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_ms(since.as_millis().try_into().unwrap_or(LIMIT_MS))
    }

    pub fn from_ms(ms: i64) -> Self {
        Self(ms.clamp(FIRST_MS, LIMIT_MS))
    }

    pub fn as_ms(self) -> i64 {
        self.0
    }

    /// This instant moved later, stopping at the last that can be printed.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self::from_ms(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(LIMIT_MS)))
    }

    /// How long after `earlier` this is; zero when it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub(crate) fn to_datetime(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .expect("a timestamp is kept within what RFC 3339 can print")
    }
}

impl From<OffsetDateTime> for Timestamp {
    fn from(at: OffsetDateTime) -> Self {
        Self::from_ms((at.unix_timestamp_nanos() / 1_000_000).try_into().unwrap_or(LIMIT_MS))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_datetime().format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        OffsetDateTime::parse(text, &Rfc3339)
            .map(Self::from)
            .map_err(|_| format!("`{text}` is not an RFC 3339 time such as 2026-01-31T12:00:00Z"))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
