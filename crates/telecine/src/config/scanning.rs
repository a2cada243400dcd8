//! Whether and by what inputs are scanned for viruses.

use anyhow::{Result, anyhow, bail};
use telecine_pipeline::{Clamd, ClamdAddress, ScanPolicy, Scanning, UnscannedPolicy};

use super::Key;
use super::meaning::{Reader, milliseconds, within};

/// clamd scans nothing of 2 GiB or more.
const MAX_MB: u32 = 2_047;

pub(super) fn of(reader: &Reader<'_>) -> Result<Scanning> {
    let max_bytes = reader.required(Key::ClamdMaxMb, megabytes)?;
    let timeout = reader.required(Key::ClamdTimeoutMs, milliseconds)?;
    let address =
        reader.optional(Key::Clamd, |text| text.parse::<ClamdAddress>().map_err(|why| anyhow!(why)))?;
    let clamd = address.map(|address| Clamd { address, max_bytes, within: timeout });
    let scan = reader.required(Key::Scan, |text| {
        ScanPolicy::named(text).ok_or_else(|| anyhow!("must be required, optional or off, not `{text}`"))
    })?;
    let unscanned = reader.required(Key::Unscanned, |text| {
        UnscannedPolicy::named(text).ok_or_else(|| anyhow!("must be refuse or allow, not `{text}`"))
    })?;
    if scan == ScanPolicy::Required && clamd.is_none() {
        bail!(
            "scan is required ({}), and no scanner is configured\n\
             next: set clamd, as in clamd = \"unix:/run/clamav/clamd.ctl\"",
            reader.origin(Key::Scan)
        );
    }
    Ok(Scanning { clamd, scan, unscanned, attempts: None })
}

fn megabytes(text: &str) -> Result<u64> {
    within(text, 1, MAX_MB).map(|megabytes| u64::from(megabytes) << 20)
}
