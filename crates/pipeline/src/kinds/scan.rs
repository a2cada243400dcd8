//! `scan`: has an input looked at by a virus scanner before anything else reads it. What it does not let through goes no
//! further: the rest of the run waits for it, and is skipped.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attempt, SCAN, Work};
use crate::blobs::StoreError;
use crate::failure::{Attempted, Failed};
use crate::keys;
use crate::records::{ScanRecord, TAKEN, TakenRecord, WarningRecord};
use crate::scan::{ScanRules, Verdict, quarantine};
use crate::source::{Readers, Source, stoppable};

pub(super) struct Scan;

#[async_trait]
impl Work for Scan {
    async fn attempt(&self, attempt: &Attempt<'_>) -> Attempted<Value> {
        let rules: ScanRules = attempt.payload()?;
        let taken: TakenRecord = attempt.read(TAKEN).await?;
        let source = match Source::taken_in(attempt, &taken, Readers::ScannerAlone).await {
            Ok(source) => source,
            Err(failed) if failed.code == StoreError::NOT_FOUND => return Err(gone(attempt).await?),
            Err(failed) => return Err(failed),
        };
        let looking = attempt.shop.scanning.look_at(source.path(), Some(&taken.sha256));
        let looked = stoppable(attempt, looking).await;
        if let Ok(Verdict::Infected { signature }) = &looked {
            tracing::warn!(run.id = %attempt.run, signature, sha256 = taken.sha256, "an input is infected");
            let meta = attempt.meta().await?;
            quarantine(attempt, &meta.input, &taken, &source, signature).await?;
            let found = ScanRecord { status: "infected".into(), signature: Some(signature.clone()) };
            attempt.leave(TAKEN, &found);
        }
        let passed = rules.judge(looked)?;
        if let Some((code, message)) = passed.warning {
            let warning = WarningRecord { step: SCAN.into(), code: code.into(), message };
            attempt.leave(format!("{SCAN}/{code}"), &warning);
        }
        attempt.leave(TAKEN, &ScanRecord { status: passed.status.into(), signature: None });
        source.keep(attempt, taken)?;
        Ok(json!({ "status": passed.status }))
    }
}

/// Of a run that is retried: why there is nothing left to scan.
async fn gone(attempt: &Attempt<'_>) -> Attempted<Failed> {
    let (note, _) = keys::quarantined(&attempt.job.tenant, attempt.run);
    Ok(match attempt.shop.blobs.exists(&note).await? {
        true => {
            Failed::for_good("infected", "the input is infected and in quarantine", "submit another file")
        }
        false => Failed::for_good(
            "input_not_found",
            "what the run had taken in was removed since",
            "submit the input again",
        ),
    })
}
