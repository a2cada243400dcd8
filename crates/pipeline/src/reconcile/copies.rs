//! Copies of a run's outputs under the keys that its caller chose.

use telecine_queue::Run;

use crate::failure::Attempted;
use crate::kinds::PUBLISH;
use crate::published::{Promised, Standing, promised, sizes};
use crate::records::StoredFile;
use crate::workshop::Workshop;

use super::outputs::{DamagedFile, Fault};

/// Those that are missing, or have another size. None if the place is another run's by now.
pub(super) async fn damaged(shop: &Workshop, run: &Run) -> Attempted<Vec<DamagedFile>> {
    let Some(Promised { place, copies, .. }) = promised(shop, &run.id).await? else { return Ok(Vec::new()) };
    if place.standing(&*shop.queue).await? != Standing::Of(run.id.clone()) {
        return Ok(Vec::new());
    }
    let stored = sizes(shop, &place).await?;
    let damaged = copies.into_iter().filter_map(|copied| {
        let fault = match stored.get(&copied.to) {
            Some(bytes) if *bytes == copied.file.bytes => return None,
            Some(_) => Fault::OtherSize,
            None => Fault::Missing,
        };
        let file = StoredFile { path: copied.to.clone(), key: copied.to, ..copied.file };
        Some(DamagedFile { step: PUBLISH.to_owned(), file, fault })
    });
    Ok(damaged.collect())
}
