//! The program through which the kernel starts another: the loader of its libraries, named in its ELF header.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Of programs that cannot be read, but be executed.
const USUAL: &[&str] =
    &["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1"];

const PATH_MAX_BYTES: u64 = 4096;
const INTERPRETER: u32 = 3;

/// None for a program that needs none; the usual ones for a program that cannot be looked at.
pub(super) fn of(program: &Path) -> Vec<PathBuf> {
    match File::open(program).and_then(|file| named(&file)) {
        Ok(interpreter) => interpreter.into_iter().collect(),
        Err(_) => USUAL.iter().map(PathBuf::from).collect(),
    }
}

/// From the header of a program of 64 bits, in the byte order of every processor that the filter knows.
fn named(program: &File) -> io::Result<Option<PathBuf>> {
    let mut head = [0; 64];
    program.read_exact_at(&mut head, 0)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::Error::other("no program of 64 bits"));
    }
    let (table_at, entry_bytes, entries) = (u64_at(&head, 32), u16_at(&head, 54), u16_at(&head, 56));
    for n in 0..u64::from(entries) {
        let mut entry = [0; 56];
        let at = n.saturating_mul(entry_bytes.into()).saturating_add(table_at);
        program.read_exact_at(&mut entry, at)?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) != INTERPRETER {
            continue;
        }
        let (at, bytes) = (u64_at(&entry, 8), u64_at(&entry, 32).min(PATH_MAX_BYTES));
        let mut path = vec![0; usize::try_from(bytes).unwrap_or(0)];
        program.read_exact_at(&mut path, at)?;
        path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
        return Ok(Some(std::ffi::OsString::from_vec(path).into()));
    }
    Ok(None)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_of_a_program_is_found_in_it_and_guessed_where_there_is_none_to_look_at() {
        let own = of(Path::new("/proc/self/exe"));

        assert_eq!(own.len(), 1, "{own:?}");
        assert!(own[0].file_name().unwrap().to_str().unwrap().starts_with("ld-"), "{own:?}");
        assert_eq!(of(Path::new("/nonexistent")).len(), USUAL.len());
    }
}
