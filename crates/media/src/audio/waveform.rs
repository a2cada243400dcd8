//! Peaks for drawing, in the second version of audiowaveform's JSON format.

use serde::Serialize;

/// The lowest and the highest sample of each stretch, of all channels mixed, in 8 bits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waveform {
    rate: u32,
    samples_per_pixel: u32,
    data: Vec<i8>,
    lowest: f32,
    highest: f32,
    held: u32,
}

#[derive(Serialize)]
struct Document<'a> {
    version: u8,
    channels: u8,
    sample_rate: u32,
    samples_per_pixel: u32,
    bits: u8,
    /// Pairs, not numbers.
    length: usize,
    data: &'a [i8],
}

impl Waveform {
    pub(super) fn new(rate: u32, points_per_second: u32) -> Self {
        // The format knows no fewer than two samples.
        let samples_per_pixel = (rate / points_per_second.max(1)).max(2);
        let (lowest, highest) = (f32::MAX, f32::MIN);
        Self { rate, samples_per_pixel, data: Vec::new(), lowest, highest, held: 0 }
    }

    /// One sample of each channel.
    pub(super) fn add(&mut self, frame: &[f32]) {
        let mixed = frame.iter().sum::<f32>() / frame.len() as f32;
        self.lowest = self.lowest.min(mixed);
        self.highest = self.highest.max(mixed);
        self.held += 1;
        if self.held == self.samples_per_pixel {
            self.end_pixel();
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut whole = self.clone();
        if whole.held > 0 {
            whole.end_pixel();
        }
        let document = Document {
            version: 2,
            channels: 1,
            sample_rate: self.rate,
            samples_per_pixel: self.samples_per_pixel,
            bits: 8,
            length: whole.data.len() / 2,
            data: &whole.data,
        };
        serde_json::to_vec(&document).expect("numbers can always be written")
    }

    fn end_pixel(&mut self) {
        let in_8_bits = |sample: f32| (sample * 128.0).floor().clamp(-128.0, 127.0) as i8;
        self.data.extend([in_8_bits(self.lowest), in_8_bits(self.highest)]);
        (self.lowest, self.highest, self.held) = (f32::MAX, f32::MIN, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_hold_their_lowest_and_highest_sample() {
        let mut waveform = Waveform::new(8, 2);
        for sample in [0.0, 0.5, -0.25, 0.1, 1.5, 1.0, 0.75, 0.99, -0.5] {
            waveform.add(&[sample, sample]);
        }

        let json: serde_json::Value = serde_json::from_slice(&waveform.to_json()).unwrap();

        let expected = serde_json::json!({
            "version": 2, "channels": 1, "sample_rate": 8, "samples_per_pixel": 4, "bits": 8, "length": 3,
            "data": [-32, 64, 96, 127, -64, -64],
        });
        assert_eq!(json, expected);
    }
}
