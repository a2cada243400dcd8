//! The names of codecs as RFC 6381 writes them, out of the real parameter sets.

use mp4_atom::{Av1c, Avcc, Codec, Esds, Hvcc};

/// `None` for a codec that none of our outputs has.
pub(super) fn codec_string(codec: &Codec) -> Option<String> {
    match codec {
        Codec::Avc1(entry) => Some(avc("avc1", &entry.avcc)),
        Codec::Avc3(entry) => Some(avc("avc3", &entry.avcc)),
        Codec::Hvc1(entry) => Some(hevc("hvc1", &entry.hvcc)),
        Codec::Hev1(entry) => Some(hevc("hev1", &entry.hvcc)),
        Codec::Av01(entry) => Some(av1(&entry.av1c)),
        Codec::Mp4a(entry) => Some(mp4a(&entry.esds)),
        Codec::Opus(_) => Some("Opus".to_owned()),
        Codec::Flac(_) => Some("fLaC".to_owned()),
        _ => None,
    }
}

fn avc(name: &str, config: &Avcc) -> String {
    format!(
        "{name}.{:02X}{:02X}{:02X}",
        config.avc_profile_indication, config.profile_compatibility, config.avc_level_indication
    )
}

/// ISO/IEC 14496-15, annex E: compatibility bits in reverse, constraint bytes without the zeros at their end.
fn hevc(name: &str, config: &Hvcc) -> String {
    let space = match config.general_profile_space {
        1 => "A",
        2 => "B",
        3 => "C",
        _ => "",
    };
    let compatibility = u32::from_be_bytes(config.general_profile_compatibility_flags).reverse_bits();
    let tier = if config.general_tier_flag { 'H' } else { 'L' };
    let mut text = format!(
        "{name}.{space}{}.{compatibility:X}.{tier}{}",
        config.general_profile_idc, config.general_level_idc
    );
    let constraints = &config.general_constraint_indicator_flags;
    let meant = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &constraints[..meant] {
        text.push_str(&format!(".{byte:X}"));
    }
    text
}

/// The short form: what is left out is what it is by default (4:2:0, BT.709).
fn av1(config: &Av1c) -> String {
    let tier = if config.seq_tier_0 { 'H' } else { 'M' };
    let depth = match (config.high_bitdepth, config.twelve_bit) {
        (true, true) => 12,
        (true, false) => 10,
        (false, _) => 8,
    };
    format!("av01.{}.{:02}{tier}.{depth:02}", config.seq_profile, config.seq_level_idx_0)
}

fn mp4a(esds: &Esds) -> String {
    let config = &esds.es_desc.dec_config;
    match (config.object_type_indication, &config.dec_specific) {
        (0x40, Some(specific)) => format!("mp4a.40.{}", specific.profile),
        (indication, _) => format!("mp4a.{indication:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avc_names_profile_constraints_and_level() {
        let config = Avcc {
            avc_profile_indication: 0x64,
            profile_compatibility: 0,
            avc_level_indication: 0x1f,
            ..Avcc::new(&[0x67, 0x64, 0, 0x1f], &[]).unwrap()
        };

        assert_eq!(avc("avc1", &config), "avc1.64001F");
    }

    #[test]
    fn hevc_names_space_compatibility_tier_and_constraints() {
        let main = Hvcc {
            general_profile_idc: 1,
            general_profile_compatibility_flags: [0x60, 0, 0, 0],
            general_constraint_indicator_flags: [0x90, 0, 0, 0, 0, 0],
            general_level_idc: 93,
            ..Hvcc::new()
        };
        let high = Hvcc {
            general_profile_space: 1,
            general_tier_flag: true,
            general_profile_idc: 2,
            general_profile_compatibility_flags: [0x20, 0, 0, 0],
            general_constraint_indicator_flags: [0xb0, 0, 0, 0x23, 0, 0],
            general_level_idc: 150,
            ..Hvcc::new()
        };

        assert_eq!(hevc("hvc1", &main), "hvc1.1.6.L93.90");
        assert_eq!(hevc("hvc1", &high), "hvc1.A2.4.H150.B0.0.0.23");
    }

    #[test]
    fn av1_names_profile_level_tier_and_depth() {
        let config = |high_bitdepth, seq_tier_0| Av1c {
            seq_profile: 0,
            seq_level_idx_0: 8,
            seq_tier_0,
            high_bitdepth,
            twelve_bit: false,
            monochrome: false,
            chroma_subsampling_x: true,
            chroma_subsampling_y: true,
            chroma_sample_position: 0,
            initial_presentation_delay: None,
            config_obus: Vec::new(),
        };

        assert_eq!(av1(&config(false, false)), "av01.0.08M.08");
        assert_eq!(av1(&config(true, true)), "av01.0.08H.10");
    }
}
