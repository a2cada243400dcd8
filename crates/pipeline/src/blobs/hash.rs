//! The hashes that tell bytes apart.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use crate::failure::{Attempted, Failed, scratch_failed};

const PART_BYTES: usize = 1 << 20;

/// In lowercase hexadecimal digits.
pub(crate) fn hash_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The hash of a file and its length.
pub(crate) async fn hash_file(file: &Path) -> Attempted<(String, u64)> {
    let file = file.to_owned();
    hash_with(move || File::open(file)).await
}

/// The hash of what is left to read, and its length.
pub(crate) async fn hash_opened(file: File) -> Attempted<(String, u64)> {
    hash_with(move || Ok(file)).await
}

async fn hash_with(open: impl FnOnce() -> io::Result<File> + Send + 'static) -> Attempted<(String, u64)> {
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let still_wanted = Arc::clone(&wanted.0);
    let hashed = tokio::task::spawn_blocking(move || hash_to_end(open()?, &still_wanted));
    let hashed = hashed.await.map_err(|error| Failed::unexpected(error.to_string()))?;
    hashed.map_err(|error| scratch_failed("a file cannot be read", &error))
}

/// Tells the thread that hashes when nobody waits for it any more: a large file takes minutes.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn hash_to_end(mut file: File, still_wanted: &AtomicBool) -> io::Result<(String, u64)> {
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; PART_BYTES]);
    loop {
        if !still_wanted.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match file.read(&mut part)? {
            0 => return Ok((hex(&hash.finalize()), bytes)),
            read => {
                hash.update(&part[..read]);
                bytes += read as u64;
            }
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
