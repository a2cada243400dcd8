//! The hash by which outputs are named and compared.

use sha2::{Digest, Sha256};

/// In lowercase hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
