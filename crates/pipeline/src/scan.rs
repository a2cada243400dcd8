//! Whether an input may be read at all: what a virus scanner says of it, and what a run makes of that.
//!
//! ```text
//!   ingest ──► scan ──► ingest.plan ──► …      with a scan: nothing but the scanner reads the bytes before it has spoken
//!   ingest ───────────────────────────► …      without
//! ```
//! How strict a run is follows from its recipe and, where that says nothing, from the deployment. Whatever is not known to
//! be clean is refused unless somebody has said otherwise.

mod clamd;
mod quarantine;

use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::failure::{Attempted, Failed, scratch_failed};
use crate::recipe::Recipe;

pub use clamd::{Clamd, ClamdAddress, NoVerdict, Scanned, Sending};
pub(crate) use quarantine::{quarantine, sweep_quarantine};

const PART_BYTES: usize = 64 << 10;
const UNAVAILABLE: &str = "scan_unavailable";
/// It took the file and gave no verdict, which may be the file's doing. Told to nobody: what it comes to is for the rules.
const UNANSWERED: &str = "scan_unanswered";

/// Whether inputs are scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanPolicy {
    /// Without a verdict nothing goes on.
    Required,
    /// A scanner that does not answer is only a warning.
    Optional,
    #[default]
    Off,
}

/// What becomes of an input that the scanner did not look at as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnscannedPolicy {
    #[default]
    Refuse,
    /// It goes on with a warning.
    Allow,
}

impl ScanPolicy {
    pub const NAMES: [&str; 3] = ["required", "optional", "off"];

    pub fn named(name: &str) -> Option<Self> {
        match name {
            "required" => Some(Self::Required),
            "optional" => Some(Self::Optional),
            "off" => Some(Self::Off),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Off => "off",
        }
    }
}

impl UnscannedPolicy {
    pub const NAMES: [&str; 2] = ["refuse", "allow"];

    pub fn named(name: &str) -> Option<Self> {
        match name {
            "refuse" => Some(Self::Refuse),
            "allow" => Some(Self::Allow),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Allow => "allow",
        }
    }
}

/// What a scanner says of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Verdict {
    Clean,
    /// With the name of what was found.
    Infected {
        signature: String,
    },
    /// It was not looked at as a whole. Never to be taken for clean.
    Unscanned {
        reason: String,
    },
}

impl Verdict {
    pub fn status(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Infected { .. } => "infected",
            Self::Unscanned { .. } => "unscanned",
        }
    }
}

/// How strict one run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRules {
    pub scan: ScanPolicy,
    pub unscanned: UnscannedPolicy,
}

/// What a deployment scans inputs with, and how strict it is where a recipe says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanning {
    pub clamd: Option<Clamd>,
    pub scan: ScanPolicy,
    pub unscanned: UnscannedPolicy,
    /// Attempts after which a run gives up on a scanner that does not answer; `None`: it waits for a week or so.
    pub attempts: Option<u16>,
}

impl Scanning {
    pub fn rules_for(&self, recipe: &Recipe) -> ScanRules {
        ScanRules {
            scan: recipe.scan.unwrap_or(self.scan),
            unscanned: recipe.unscanned.unwrap_or(self.unscanned),
        }
    }

    /// The recipe with what this deployment wants in the place of what it leaves open: whoever works on the run obeys it,
    /// whatever is configured there. Refused where a scan is required that nobody here can do.
    pub fn settled(&self, recipe: Recipe) -> Result<Recipe, Failed> {
        let rules = self.rules_for(&recipe);
        if rules.scan == ScanPolicy::Required && self.clamd.is_none() {
            let message = format!("{} requires a virus scan, and no scanner is configured", recipe.name);
            let hint = "set clamd, as in clamd = \"unix:/run/clamav/clamd.ctl\", or scan = \"optional\" in the recipe";
            return Err(Failed::for_good(UNAVAILABLE, message, hint));
        }
        match rules.scan {
            ScanPolicy::Off => Ok(recipe),
            // No worker of this deployment can be expected to have one: nobody would ever take the scan.
            ScanPolicy::Optional if self.clamd.is_none() => {
                Ok(Recipe { scan: Some(ScanPolicy::Off), ..recipe })
            }
            ScanPolicy::Required | ScanPolicy::Optional => {
                Ok(Recipe { scan: Some(rules.scan), unscanned: Some(rules.unscanned), ..recipe })
            }
        }
    }

    /// What the scanner says of a file; an error is retryable where another try may help.
    pub(crate) async fn look_at(&self, file: &Path, expected: Option<&str>) -> Attempted<Verdict> {
        // Without one no scan is claimed here, and that must not pass for a scanner that is away.
        let clamd = self.clamd.as_ref().ok_or_else(|| Failed::unexpected("no scanner is configured here"))?;
        let scanned = scan_file(clamd, file).await?;
        match expected {
            Some(sha256) if scanned.sha256 != sha256 => {
                let message = "the input was changed while it was scanned";
                Err(Failed::for_good("input_changed", message, "submit the file when it is complete"))
            }
            _ => Ok(scanned.verdict),
        }
    }
}

impl ScanRules {
    /// What a run makes of a verdict, or of none: goes on, with a warning perhaps, or fails.
    pub(crate) fn judge(self, looked: Attempted<Verdict>) -> Attempted<Passed> {
        match looked {
            Ok(Verdict::Clean) => Ok(Passed { status: "clean", warning: None }),
            Ok(Verdict::Infected { signature }) => {
                let hint = "do not open it; if it is known to be harmless, tell the operator of the scanner";
                Err(Failed::for_good("infected", format!("the scanner found {signature} in the input"), hint))
            }
            Ok(Verdict::Unscanned { reason }) => self.judge_unscanned(reason),
            // Tried again, it may find nobody there, whom it has brought down itself.
            Err(failed) if failed.code == UNANSWERED && self.scan == ScanPolicy::Optional => {
                self.judge_unscanned(failed.message)
            }
            Err(failed) if failed.code == UNANSWERED => Err(Failed { code: UNAVAILABLE.into(), ..failed }),
            Err(failed) if failed.code == UNAVAILABLE && self.scan == ScanPolicy::Optional => {
                Ok(Passed::with_warning(UNAVAILABLE, failed.message))
            }
            Err(failed) => Err(failed),
        }
    }

    fn judge_unscanned(self, reason: String) -> Attempted<Passed> {
        let hint = "raise the scanner's limits and clamd_max_mb, or set unscanned = \"allow\" in the recipe";
        match self.unscanned {
            UnscannedPolicy::Allow => Ok(Passed::with_warning("unscanned", reason)),
            UnscannedPolicy::Refuse => Err(Failed::for_good("unscanned", reason, hint)),
        }
    }
}

/// An input that may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// As documents show it.
    pub(crate) status: &'static str,
    /// What it goes on in spite of: a code and why.
    pub(crate) warning: Option<(&'static str, String)>,
}

impl Passed {
    fn with_warning(code: &'static str, message: String) -> Self {
        Self { status: "unscanned", warning: Some((code, message)) }
    }
}

async fn scan_file(clamd: &Clamd, file: &Path) -> Attempted<Scanned> {
    let unreadable = |error: std::io::Error| scratch_failed("the input cannot be read", &error);
    let mut file = tokio::fs::File::open(file).await.map_err(unreadable)?;
    let bytes = file.metadata().await.map_err(unreadable)?.len();
    let mut sending = clamd.begin(Some(bytes)).await.map_err(|error| no_verdict(UNAVAILABLE, &error))?;
    let unanswered = |error: NoVerdict| no_verdict(UNANSWERED, &error);
    let mut part = vec![0; PART_BYTES];
    loop {
        match file.read(&mut part).await.map_err(unreadable)? {
            0 => return sending.end().await.map_err(unanswered),
            read => sending.push(&part[..read]).await.map_err(unanswered)?,
        }
    }
}

fn no_verdict(code: &str, error: &NoVerdict) -> Failed {
    Failed::for_now(code, error.to_string(), "check that clamd runs; the run goes on by itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(scan: ScanPolicy, unscanned: UnscannedPolicy) -> ScanRules {
        ScanRules { scan, unscanned }
    }

    fn unheard(code: &str) -> Attempted<Verdict> {
        Err(Failed::for_now(code, "nobody answers", ""))
    }

    #[test]
    fn only_what_was_allowed_goes_on_without_being_clean() {
        use ScanPolicy::{Optional, Required};
        use UnscannedPolicy::{Allow, Refuse};
        let unscanned = || Ok(Verdict::Unscanned { reason: "too large".into() });
        let infected = || Ok(Verdict::Infected { signature: "Eicar".into() });
        let outcome = |rules: ScanRules, looked| match rules.judge(looked) {
            Ok(Passed { warning: None, .. }) => "clean".to_owned(),
            Ok(Passed { warning: Some((code, _)), .. }) => format!("goes on: {code}"),
            Err(failed) if failed.retryable => format!("for now: {}", failed.code),
            Err(failed) => format!("for good: {}", failed.code),
        };

        for scan in [Required, Optional] {
            for policy in [Refuse, Allow] {
                assert_eq!(outcome(rules(scan, policy), Ok(Verdict::Clean)), "clean");
                assert_eq!(outcome(rules(scan, policy), infected()), "for good: infected");
            }
            assert_eq!(outcome(rules(scan, Refuse), unscanned()), "for good: unscanned");
            assert_eq!(outcome(rules(scan, Allow), unscanned()), "goes on: unscanned");
        }
        for policy in [Refuse, Allow] {
            assert_eq!(outcome(rules(Required, policy), unheard(UNAVAILABLE)), "for now: scan_unavailable");
            assert_eq!(outcome(rules(Optional, policy), unheard(UNAVAILABLE)), "goes on: scan_unavailable");
            assert_eq!(outcome(rules(Required, policy), unheard(UNANSWERED)), "for now: scan_unavailable");
        }
    }
}
