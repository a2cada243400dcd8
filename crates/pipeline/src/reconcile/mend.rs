//! A run whose outputs are damaged: its steps are started over, if they can be.

use telecine_queue::{QueueError, Run};

use crate::failure::Attempted;
use crate::kinds::{self, watch_over};
use crate::lifetime::{Broom, is_deleted};
use crate::published::{Place, Promised, promised};
use crate::records::{BORROWED, BorrowedRecord, INPUT, InputRecord, TAKEN, TakenRecord, read};
use crate::retry::retry_unchanged;
use crate::source::{check_input, find_source};
use crate::submission::RunMeta;
use crate::workshop::Workshop;

use super::outputs::{Damage, Fault, fault_of, look};
use super::{Finding, Outcome, Trouble};

/// What can be done for a run.
enum Prospect {
    /// Start these steps over.
    StartOver(Vec<String>),
    /// Have what it published copied again.
    CopyAgain(Place),
    Wait(String),
    /// Nothing, and why.
    Lost(String),
}

/// Starts over what makes the damaged files, if that is asked for and possible; says what became of it.
pub(super) async fn mend(shop: &Workshop, really: bool, run: &Run, damage: &Damage) -> Attempted<Finding> {
    let (outcome, then) = match prospect(shop, run, damage).await? {
        Prospect::StartOver(steps) if really => start_over(shop, run, damage, &steps).await?,
        Prospect::StartOver(steps) => {
            (Outcome::Mendable, format!("can be made again by {}", steps.join(", ")))
        }
        Prospect::CopyAgain(place) if really => {
            watch_over(&*shop.queue, &place).await?;
            (Outcome::Mended, "they are copied again".to_owned())
        }
        Prospect::CopyAgain(_) => (Outcome::Mendable, "they can be copied again".to_owned()),
        Prospect::Wait(why) => (Outcome::Waits, why),
        Prospect::Lost(why) => (Outcome::Lost, why),
    };
    let message = format!("{}; {then}", damage.told());
    Ok(Finding { trouble: Trouble::Damaged, at: run.id.to_string(), message, outcome })
}

async fn prospect(shop: &Workshop, run: &Run, damage: &Damage) -> Attempted<Prospect> {
    if damage.is_of_copies()
        && let Some(Promised { place, .. }) = promised(shop, &run.id).await?
    {
        return Ok(Prospect::CopyAgain(place));
    }
    if shop.queue.run_steps(&run.id).await?.is_empty() {
        let why = "history has forgotten its jobs: submit the input again, then `telecine runs rm` this run";
        return Ok(Prospect::Lost(why.to_owned()));
    }
    if !damage.is_of(run)
        && let Some(borrowed) = read::<BorrowedRecord>(&*shop.queue, &run.id, BORROWED).await?
    {
        return prospect_of_borrower(shop, run, &borrowed).await;
    }
    let gone = |why: &str| {
        Prospect::Lost(format!("{why}: submit the input again, then `telecine runs rm` this run"))
    };
    let Some(input) = read::<InputRecord>(&*shop.queue, &run.id, INPUT).await? else {
        return Ok(gone("nothing tells where its source is"));
    };
    Ok(match find_source(shop, &input).await? {
        Ok(()) => Prospect::StartOver(damage.steps()),
        Err(why) => gone(&why),
    })
}

/// Its files are another run's, who makes them again if it can; else it has to make its own.
async fn prospect_of_borrower(shop: &Workshop, run: &Run, borrowed: &BorrowedRecord) -> Attempted<Prospect> {
    let owner = &borrowed.owner;
    if let Some(owner) = shop.queue.get_run(owner).await? {
        let is_mended = owner.finished_at.is_none()
            || (!is_deleted(&*shop.queue, &owner.id).await?
                && !look(shop, &owner, false).await?.damage.is_empty());
        if is_mended {
            return Ok(Prospect::Wait(format!("they are outputs of {}, which comes first", owner.id)));
        }
    }
    // An input that had to be scanned stays taken in: it is only looked up again what can be made of it.
    if read::<TakenRecord>(&*shop.queue, &run.id, TAKEN).await?.is_some()
        && let Some(input) = read::<InputRecord>(&*shop.queue, &run.id, INPUT).await?
    {
        return Ok(match find_source(shop, &input).await? {
            Ok(()) => Prospect::StartOver(vec![kinds::PLAN_STEP.to_owned()]),
            Err(why) => Prospect::Lost(format!("it borrowed them from {owner}, and {why}: submit it again")),
        });
    }
    let input = match RunMeta::of(run) {
        Ok(meta) => check_input(shop, &run.tenant, &meta.input).await,
        Err(error) => return Ok(Prospect::Lost(format!("the run is not as known: {error}"))),
    };
    Ok(match input {
        Ok(()) => Prospect::StartOver(vec![kinds::INGEST.to_owned()]),
        Err(failed) => Prospect::Lost(format!(
            "it borrowed them from {owner}, and its input cannot be taken in again ({}): submit it again",
            failed.message
        )),
    })
}

async fn start_over(
    shop: &Workshop,
    run: &Run,
    damage: &Damage,
    steps: &[String],
) -> Attempted<(Outcome, String)> {
    let waits = || Ok((Outcome::Waits, "somebody else is at this run just now".to_owned()));
    let Some(finished_at) = run.finished_at else { return waits() };
    let Some(broom) = Broom::take(&*shop.queue, &run.id, finished_at).await? else { return waits() };
    let removed = remove_damaged(shop, run, damage, &broom).await;
    broom.put_away(&*shop.queue, &run.id, false).await?;
    if !removed? {
        return waits();
    }
    match retry_unchanged(&*shop.queue, run, steps).await {
        Ok(Some(jobs)) => Ok((Outcome::Mended, format!("{jobs} jobs of {} started over", steps.join(", ")))),
        Ok(None) => waits(),
        Err(error @ (QueueError::Invalid { .. } | QueueError::WrongRunState { .. })) => {
            Ok((Outcome::Lost, error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Who makes a film's segments leaves alone what is there, so what is there and wrong goes first. Says whether the run is
/// still as it was seen.
async fn remove_damaged(shop: &Workshop, run: &Run, damage: &Damage, broom: &Broom) -> Attempted<bool> {
    // It may have been retried, and have ended again, since it was seen.
    let now = shop.queue.get_run(&run.id).await?;
    if now.is_none_or(|now| (now.generation, now.finished_at) != (run.generation, run.finished_at)) {
        return Ok(false);
    }
    // Copies are overwritten, and what was borrowed is another's.
    if !damage.is_of(run) {
        return Ok(true);
    }
    for file in damage.files.iter().filter(|file| file.fault != Fault::Missing) {
        let is_still_wrong = fault_of(&shop.blobs, &file.file).await?.is_some();
        if !broom.may_go_on() {
            return Ok(false);
        }
        if is_still_wrong {
            shop.blobs.delete(&file.file.key).await?;
        }
    }
    Ok(true)
}
