//! Sound alone.

use serde::{Deserialize, Serialize};

use super::{Loudness, Trim, require};
use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AudioSpec {
    pub formats: Vec<AudioFormat>,
    pub loudness: Loudness,
    pub trim: Trim,
    /// Peaks for drawing, this many a second; `None` makes no waveform.
    pub waveform_points_per_second: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioFormat {
    pub codec: AudioCodec,
    #[serde(default = "usual_kbits")]
    pub kbits: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AudioCodec {
    Aac,
    Opus,
    Mp3,
}

fn usual_kbits() -> u32 {
    128
}

impl Default for AudioSpec {
    fn default() -> Self {
        Self {
            formats: vec![AudioFormat { codec: AudioCodec::Aac, kbits: usual_kbits() }],
            loudness: Loudness::Keep,
            trim: Trim::default(),
            waveform_points_per_second: None,
        }
    }
}

impl AudioSpec {
    pub(super) fn check(&self) -> Result<()> {
        let has_output = !self.formats.is_empty() || self.waveform_points_per_second.is_some();
        require(has_output && self.formats.len() <= 10, "audio.formats", "1 to 10, or a waveform")?;
        require(
            self.formats.iter().all(|f| (16..=512).contains(&f.kbits)),
            "audio.formats.kbits",
            "16 to 512",
        )?;
        let pace_fits = self.waveform_points_per_second.is_none_or(|pace| (1..=1000).contains(&pace));
        require(pace_fits, "audio.waveform_points_per_second", "1 to 1000")?;
        self.trim.check("audio.trim")
    }
}
