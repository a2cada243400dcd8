//! How the API is served: where, to whom, within which bounds.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use telecine_server::{ScanOptions, ServerOptions, TranscodeOptions, UploadOptions};

use super::Key;
use super::meaning::{Reader, days, folder, milliseconds, on_or_off, within};

const MAX_RATE: u32 = 1_000_000;
const MAX_CONNECTIONS: u32 = 1_000_000;
const MAX_JSON_KB: u32 = 16 * 1024;
const MAX_MB: u32 = 1 << 24;
const MAX_HOURS: u32 = 24 * 365;
const MAX_TRANSCODES: u32 = 1_000;
const MAX_SCANS: u32 = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) listen: SocketAddr,
    pub(crate) options: ServerOptions,
}

impl Serving {
    pub(super) fn of(reader: &Reader<'_>) -> Result<Self> {
        let options = ServerOptions {
            trust_loopback: reader.required(Key::TrustLoopback, on_or_off)?,
            trust_until_first_key: !reader.is_set(Key::TrustLoopback),
            public_url: reader.optional(Key::PublicUrl, public_url)?,
            cors_origins: reader.optional(Key::CorsOrigins, origins)?.unwrap_or_default(),
            max_json_bytes: reader.required(Key::MaxJsonKb, |text| within(text, 1, MAX_JSON_KB))? as usize
                * 1024,
            header_within: reader.required(Key::HeaderTimeoutMs, milliseconds)?,
            body_idle: reader.required(Key::BodyTimeoutMs, milliseconds)?,
            max_connections: reader.required(Key::MaxConnections, |text| within(text, 1, MAX_CONNECTIONS))?
                as usize,
            keep_history: reader.required(Key::KeepHistoryDays, days)?,
            metrics_public: reader.required(Key::MetricsPublic, on_or_off)?,
            requests_per_second: reader.required(Key::RequestsPerSecond, |text| within(text, 0, MAX_RATE))?,
            uploads: UploadOptions {
                folder: Some(reader.required(Key::Uploads, folder)?),
                max_bytes: reader.optional(Key::MaxUploadMb, megabytes)?,
                keep_unfinished: Duration::from_hours(
                    reader
                        .required(Key::KeepUnfinishedUploadsHours, |text| within(text, 1, MAX_HOURS))?
                        .into(),
                ),
            },
            transcode: TranscodeOptions {
                slots: reader.required(Key::TranscodeSlots, |text| within(text, 0, MAX_TRANSCODES))? as usize,
                max_bytes: reader.required(Key::MaxTranscodeMb, megabytes)?,
                within: reader.required(Key::TranscodeTimeoutMs, milliseconds)?,
            },
            scan: ScanOptions {
                slots: reader.required(Key::ScanSlots, |text| within(text, 0, MAX_SCANS))? as usize,
                max_bytes: reader.required(Key::MaxScanMb, megabytes)?,
            },
            ..ServerOptions::default()
        };
        Ok(Self { listen: reader.required(Key::Listen, address)?, options })
    }
}

/// `127.0.0.1:8700`, `[::]:8700`, `localhost:8700`.
pub(super) fn address(text: &str) -> Result<SocketAddr> {
    let by_name = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let by_name = by_name.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    text.parse().ok().or(by_name).ok_or_else(|| {
        anyhow!("must be an address and a port such as 127.0.0.1:8700 or 0.0.0.0:8700, not `{text}`")
    })
}

/// A base address, without the slash that would be doubled in every address made of it.
pub(super) fn public_url(text: &str) -> Result<String> {
    let is_plain =
        |rest: &str| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['@', '?', '#', ' ']);
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    ensure!(rest.is_some_and(is_plain), "must be an address such as https://media.example, not `{text}`");
    Ok(text.trim_end_matches('/').to_owned())
}

/// `https://app.example,http://localhost:3000`: as browsers send them.
fn origins(text: &str) -> Result<Vec<String>> {
    let check = |origin: &str| {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        let is_plain = |host: &str| !host.is_empty() && !host.contains(['/', '*', '@', '?', '#', ' ']);
        ensure!(
            host.is_some_and(is_plain),
            "must name origins such as https://app.example, each in full and without a path, not `{origin}`"
        );
        Ok(origin.to_lowercase())
    };
    text.split(',').map(|origin| check(origin.trim())).collect()
}

fn megabytes(text: &str) -> Result<u64> {
    within(text, 1, MAX_MB).map(|megabytes| u64::from(megabytes) << 20)
}
