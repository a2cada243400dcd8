//! The hash by which outputs are named and compared.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// In lowercase hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The size of a file and its hash in lowercase hex, in little memory.
pub(crate) fn sha256_of_file(path: &Path) -> io::Result<(u64, String)> {
    let (mut file, mut hash, mut piece, mut bytes) = (File::open(path)?, Sha256::new(), vec![0; 64 << 10], 0);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok((bytes, hex(&hash.finalize())));
        }
        hash.update(&piece[..read]);
        bytes += read as u64;
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
