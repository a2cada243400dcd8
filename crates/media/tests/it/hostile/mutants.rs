//! Valid files with random damage, the same in every run.

use super::broken::of_every_format;
use super::work::worked;
use super::{BROKEN, write};
use crate::canary::Canary;

/// Of each file; `TELECINE_TEST_MUTANTS` asks for more.
const MUTANTS: usize = 3;

/// SplitMix64: small, good enough, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// One to eight changes, most of them where headers are.
fn mutant(valid: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=random.below(8) {
        let reach = if random.below(3) == 0 { bytes.len() } else { bytes.len().min(1024) };
        let at = random.below(reach);
        match random.below(6) {
            0 => bytes[at] = 0xff,
            1 => bytes[at] = 0,
            2 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            4 => {
                let from = random.below(bytes.len());
                let piece = bytes[from..bytes.len().min(from + 64)].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.drain(at..(at + 1 + random.below(32)).min(bytes.len()))),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[tokio::test]
async fn random_damage_never_hangs_and_never_gets_out() {
    let (folder, canary) = (tempfile::tempdir().unwrap(), Canary::new());
    let count = std::env::var("TELECINE_TEST_MUTANTS").map_or(MUTANTS, |count| count.parse().unwrap());
    let mut surprises = Vec::new();
    for (n, path) in of_every_format().into_iter().enumerate() {
        let valid = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut random = Random::new(1_000 + n as u64);
        for k in 0..count {
            let mutant = write(folder.path(), &format!("{k}_{name}"), mutant(&valid, &mut random));
            let verdicts = worked(&mutant).await;
            let unexpected = verdicts.iter().filter(|(_, code)| !BROKEN.contains(&code.as_str()));
            surprises.extend(unexpected.map(|(entry, code)| format!("{k}_{name} {entry}: {code}")));
            std::fs::remove_file(mutant).unwrap();
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(surprises.is_empty(), "{surprises:#?}");
    canary.assert_untouched();
}
