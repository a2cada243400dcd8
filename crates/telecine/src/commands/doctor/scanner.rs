//! The virus scanner, where one is configured.

use telecine_pipeline::{Clamd, NoVerdict, ScanPolicy, Verdict};

use super::Check;
use crate::config::{Config, Key};

const NAME: &str = "clamd";
const MIB: u64 = 1 << 20;

pub(super) async fn check(config: &Config) -> Option<Check> {
    let clamd = config.scanning.clamd.as_ref()?;
    let shown = config.shown(Key::Clamd);
    let version = match clamd.version().await {
        Ok(version) => version,
        Err(error) => {
            let detail = format!("{shown}: {error}");
            let next = "start clamd, or correct `clamd` (TELECINE_CLAMD)";
            return Some(match config.scanning.scan {
                ScanPolicy::Required => Check::fail(NAME, detail, next),
                ScanPolicy::Optional | ScanPolicy::Off => Check::warn(NAME, detail, next),
            });
        }
    };
    let detail = format!("{}, at {shown}", told(&version));
    let most = format!("clamd_max_mb = {}", clamd.max_bytes / MIB);
    Some(match takes_all(clamd).await {
        Ok(Verdict::Clean) => Check::ok(NAME, format!("{detail}; it takes {most}")),
        Ok(Verdict::Infected { signature }) => Check::warn(
            NAME,
            format!("{detail}; it finds {signature} in zeros"),
            "look at clamd's own signatures: every file would be refused",
        ),
        Ok(Verdict::Unscanned { .. }) => Check::warn(
            NAME,
            format!("{detail}; it takes less than {most}"),
            "raise StreamMaxLength, MaxFileSize and MaxScanSize in clamd.conf, or lower clamd_max_mb",
        ),
        Err(error) => Check::warn(NAME, format!("{detail}; {error}"), "see clamd's log"),
    })
}

/// `ClamAV 1.4.6/27500/Mon Nov 16 09:10:11 2026`: the program, its signatures and their age.
fn told(version: &str) -> String {
    match version.splitn(3, '/').collect::<Vec<_>>().as_slice() {
        [program, signatures, date] => format!("{program}, signatures {signatures} of {date}"),
        _ => format!("{version}, without signatures of its maker"),
    }
}

/// Whether as many bytes as are sent to it at the most are taken. What it looks at of them, clamd does not tell.
async fn takes_all(clamd: &Clamd) -> Result<Verdict, NoVerdict> {
    let mut sending = clamd.begin(Some(clamd.max_bytes)).await?;
    let zeros = vec![0; MIB as usize];
    while sending.bytes() < clamd.max_bytes {
        sending.push(&zeros).await?;
    }
    Ok(sending.end().await?.verdict)
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn the_age_of_signatures_is_told() {
        let official = told("ClamAV 1.4.6/27500/Mon Nov 16 09:10:11 2026");

        assert_eq!(official, "ClamAV 1.4.6, signatures 27500 of Mon Nov 16 09:10:11 2026");
        assert_eq!(told("ClamAV 1.4.6"), "ClamAV 1.4.6, without signatures of its maker");
    }
}
