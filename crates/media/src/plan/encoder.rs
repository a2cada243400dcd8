//! Which encoder, and how it is set.

use serde::{Deserialize, Serialize};

use super::Reasons;
use crate::capability::Capabilities;
use crate::recipe::{Hardware, Preset, VideoCodec, VideoSpec};

/// Encoders in hardware that take frames from memory, for each codec in order of preference.
pub const HARDWARE_ENCODERS: [(VideoCodec, &str); 7] = [
    (VideoCodec::H264, "h264_nvenc"),
    (VideoCodec::H264, "h264_qsv"),
    (VideoCodec::H264, "h264_videotoolbox"),
    (VideoCodec::H265, "hevc_nvenc"),
    (VideoCodec::H265, "hevc_qsv"),
    (VideoCodec::H265, "hevc_videotoolbox"),
    (VideoCodec::Av1, "av1_nvenc"),
];

/// Left to itself, x264 (164) gives other bytes with each of the processor's instruction sets; and with AVX-512 its
/// macroblock tree looks at memory that nobody wrote where a row has not a multiple of eight macroblocks, as in 854x480:
/// the same command twice gives other bytes. This takes the portable code for that tree, for 1.6 % more CPU.
const X264_REPEATABLE: &str = "cpu-independent=1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncoderPlan {
    pub codec: VideoCodec,
    /// FFmpeg's name of it, one of those that this module knows.
    pub name: String,
    pub preset: Preset,
    pub crf: u8,
    /// The same frames give the same bytes, on any machine and in any range. Hardware does not promise it.
    pub is_repeatable: bool,
}

impl EncoderPlan {
    /// For streams that are copied.
    pub(super) fn none(codec: VideoCodec) -> Self {
        Self { codec, name: "copy".into(), preset: Preset::default(), crf: 0, is_repeatable: true }
    }
}

pub(super) fn plan(spec: &VideoSpec, capabilities: &Capabilities, reasons: &mut Reasons) -> EncoderPlan {
    let software = software(spec.codec);
    let hardware = match spec.hardware {
        Hardware::Never => None,
        Hardware::Prefer => working_hardware(spec.codec, capabilities),
    };
    let crf = spec.crf.unwrap_or_else(|| usual_crf(spec.codec));
    let name = hardware.unwrap_or(software);
    let choice = format!("{name}, quality {crf}, one thread a segment");
    match (spec.hardware, hardware) {
        (Hardware::Never, _) => {
            reasons.because("encoder", choice, "the same frames give the same bytes wherever they are made");
        }
        (Hardware::Prefer, Some(_)) => {
            let why = "hardware was asked for and works; its bytes may differ from run to run";
            reasons.because("encoder", choice, why);
        }
        (Hardware::Prefer, None) => {
            let why = "hardware was asked for, but none that was tried works here: software instead";
            reasons.warn("encoder", choice, why);
        }
    }
    EncoderPlan {
        codec: spec.codec,
        name: name.to_owned(),
        preset: spec.preset,
        crf,
        is_repeatable: hardware.is_none(),
    }
}

fn software(codec: VideoCodec) -> &'static str {
    match codec {
        VideoCodec::H264 => "libx264",
        VideoCodec::H265 => "libx265",
        VideoCodec::Av1 => "libsvtav1",
    }
}

fn working_hardware(codec: VideoCodec, capabilities: &Capabilities) -> Option<&'static str> {
    let of_codec = HARDWARE_ENCODERS.iter().filter(|(of, _)| *of == codec).map(|(_, name)| *name);
    of_codec.into_iter().find(|name| capabilities.working_hardware.contains(*name))
}

fn usual_crf(codec: VideoCodec) -> u8 {
    match codec {
        VideoCodec::H264 => 23,
        VideoCodec::H265 => 26,
        VideoCodec::Av1 => 35,
    }
}

/// The options with which an encoder in hardware will be used: whether it is there and whether it takes them is one
/// question.
pub(crate) fn trial_args(codec: VideoCodec, name: &str) -> Vec<String> {
    let encoder = EncoderPlan {
        codec,
        name: name.to_owned(),
        preset: Preset::default(),
        crf: usual_crf(codec),
        is_repeatable: false,
    };
    encoder.args(1000, 50)
}

impl EncoderPlan {
    /// The options of one output that depend on the encoder.
    pub(super) fn args(&self, max_kbits: u32, frames_per_gop: u32) -> Vec<String> {
        let gop = frames_per_gop.to_string();
        let mut args: Vec<String> = vec!["-c:v".into(), self.name.clone(), "-g".into(), gop.clone()];
        let mut add = |more: &[&str]| args.extend(more.iter().map(ToString::to_string));
        let (rate, buffer) = (format!("{max_kbits}k"), format!("{}k", max_kbits * 2));
        let (crf, preset) = (self.crf.to_string(), preset_name(self.preset));
        match self.name.as_str() {
            "libx265" => {
                let params = format!(
                    "log-level=error:keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:pools=none:\
                     frame-threads=1:info=0:vbv-maxrate={max_kbits}:vbv-bufsize={}",
                    max_kbits * 2
                );
                add(&["-preset", preset, "-crf", &crf, "-x265-params", &params, "-tag:v", "hvc1"]);
            }
            "libsvtav1" => {
                let params = format!("lp=1:scd=0:mbr={max_kbits}");
                add(&["-preset", svt_preset(self.preset), "-crf", &crf, "-svtav1-params", &params]);
            }
            name if name.ends_with("_nvenc") => {
                add(&["-preset", "p4", "-rc", "vbr", "-cq", &crf, "-b:v", "0", "-maxrate", &rate]);
                add(&["-bufsize", &buffer, "-forced-idr", "1", "-no-scenecut", "1", "-strict_gop", "1"]);
            }
            name if name.ends_with("_qsv") => {
                add(&["-global_quality", &crf, "-maxrate", &rate, "-bufsize", &buffer, "-idr_interval", "0"]);
            }
            name if name.ends_with("_videotoolbox") => {
                add(&["-b:v", &rate, "-maxrate", &rate, "-bufsize", &buffer]);
            }
            _ => {
                add(&["-preset", preset, "-crf", &crf, "-maxrate", &rate, "-bufsize", &buffer]);
                add(&["-profile:v", "high", "-keyint_min", &gop, "-sc_threshold", "0"]);
                add(&["-x264-params", X264_REPEATABLE]);
            }
        }
        if self.codec == VideoCodec::H265 && self.name != "libx265" {
            args.extend(["-tag:v".into(), "hvc1".into()]);
        }
        args
    }
}

fn preset_name(preset: Preset) -> &'static str {
    match preset {
        Preset::Ultrafast => "ultrafast",
        Preset::Superfast => "superfast",
        Preset::Veryfast => "veryfast",
        Preset::Faster => "faster",
        Preset::Fast => "fast",
        Preset::Medium => "medium",
        Preset::Slow => "slow",
    }
}

fn svt_preset(preset: Preset) -> &'static str {
    match preset {
        Preset::Ultrafast => "12",
        Preset::Superfast => "11",
        Preset::Veryfast => "10",
        Preset::Faster => "9",
        Preset::Fast => "8",
        Preset::Medium => "7",
        Preset::Slow => "5",
    }
}
