//! FFmpeg's log, line by line, for whoever wants to know more of a child than how it ended.

/// One line with its level, as `-v level+info` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// Said for information only; the others are warnings and errors.
    pub(crate) is_info: bool,
    /// Worse than a warning.
    pub(crate) is_error: bool,
    /// The component that speaks: `h264`, `Parsed_showinfo_1`; `None` for the program itself. Since FFmpeg 7 parts of the
    /// program have names of their own, and that of the stream is kept where there are two: `vist#0:0/h264`.
    pub(crate) speaker: Option<&'a str>,
    pub(crate) text: &'a str,
}

/// Reads along while a child runs. What is said for information is not kept anywhere else: it quotes the input's own
/// words, which no verdict may be based on.
pub(crate) trait LogReader: std::fmt::Debug + Send + Sync {
    /// Whether the line shows that the child gets on.
    fn line(&self, line: LogLine<'_>) -> bool;

    /// There will be no more lines.
    fn ended(&self);
}

const INFORMATION: [&str; 4] = ["info", "verbose", "debug", "trace"];
const WARNING: &str = "warning";
const ERRORS: [&str; 3] = ["panic", "fatal", "error"];

/// Takes lines apart. One without a level of its own goes on with what the line before said.
#[derive(Debug, Default)]
pub(super) struct LogParser {
    last_is_trouble: bool,
}

impl LogParser {
    pub(super) fn line<'a>(&mut self, line: &'a str) -> LogLine<'a> {
        let mut speaker = None;
        let mut rest = line;
        while let Some((label, after)) = rest.strip_prefix('[').and_then(|label| label.split_once(']')) {
            let after = after.strip_prefix(' ').unwrap_or(after);
            let (is_info, is_error) = (INFORMATION.contains(&label), ERRORS.contains(&label));
            if is_info || is_error || label == WARNING {
                self.last_is_trouble = !is_info;
                return LogLine { is_info, is_error, speaker, text: after };
            }
            let Some((name, _)) = label.split_once(" @ 0x") else { break };
            speaker = speaker.filter(|outer| is_of_stream(outer)).or(Some(name));
            rest = after;
        }
        LogLine { is_info: !self.last_is_trouble, is_error: false, speaker: None, text: line }
    }
}

/// Whether this is FFmpeg's own name of a stream of pictures or sound.
fn is_of_stream(speaker: &str) -> bool {
    speaker.starts_with("vist#") || speaker.starts_with("aist#")
}

/// Under these names demuxers log.
const DEMUXERS: [&str; 11] = [
    "aac",
    "avi",
    "flac",
    "flv",
    "matroska,webm",
    "mov,mp4,m4a,3gp,3g2,mj2",
    "mp3",
    "mpegts",
    "ogg",
    "wav",
    "w64",
];
/// Under these names FFmpeg itself speaks of the first input since version 7. Before, it had no name.
const OF_FIRST_INPUT: [&str; 3] = ["in#0/", "vist#0:", "aist#0:"];
/// What FFmpeg itself says of packets that gave nothing, or something bad; the last two since version 7.
const LOST: [&str; 4] = [
    "Error while decoding stream #0:",
    "corrupt input packet in stream",
    "Error submitting packet to decoder",
    "Decoding error",
];
const CONCEALED: &str = "corrupt decoded frame";

/// Whether the line says that something of the input could not be read or decoded.
pub(crate) fn complains_of_input(line: &LogLine<'_>) -> bool {
    match line.speaker {
        _ if line.is_info => false,
        Some(speaker) if line.is_error && DEMUXERS.contains(&speaker) => true,
        _ => line.is_of_concealed_frame() || line.is_of_lost_packet(),
    }
}

impl LogLine<'_> {
    /// The frame that comes next was made up, in part or whole.
    pub(crate) fn is_of_concealed_frame(&self) -> bool {
        self.is_trouble_with_first_input() && self.text.contains(CONCEALED)
    }

    fn is_of_lost_packet(&self) -> bool {
        self.is_trouble_with_first_input() && LOST.iter().any(|words| self.text.contains(words))
    }

    /// By FFmpeg itself, not by a component.
    fn is_trouble_with_first_input(&self) -> bool {
        let is_program = |speaker: &str| OF_FIRST_INPUT.iter().any(|name| speaker.starts_with(name));
        !self.is_info && self.speaker.is_none_or(is_program)
    }

    /// As FFmpeg writes it without levels.
    pub(super) fn plain(&self) -> String {
        match self.speaker {
            Some(speaker) => format!("[{speaker} @ 0x0] {}", self.text),
            None => self.text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_who_speaks_and_how_bad_it_is() {
        let mut parser = LogParser::default();

        let line = parser.line("[h264 @ 0x55d8] [error] Invalid NAL unit size");
        assert_eq!((line.is_info, line.speaker, line.text), (false, Some("h264"), "Invalid NAL unit size"));
        assert_eq!(line.plain(), "[h264 @ 0x0] Invalid NAL unit size");
        let line = parser.line("[info]     title : [error] No space left on device");
        assert_eq!((line.is_info, line.speaker), (true, None));
        assert!(complains_of_input(&parser.line("[error] Error while decoding stream #0:1: Invalid data")));
        assert!(!parser.line("a second line of an error").is_info);
    }

    #[test]
    fn trouble_with_the_first_input_is_known_in_the_words_of_each_version() {
        let is_trouble = |line: &str| complains_of_input(&LogParser::default().line(line));

        for told in [
            "[error] Error while decoding stream #0:0: Invalid data found when processing input",
            "[warning] a.mp4: corrupt decoded frame in stream 0",
            "[vist#0:0/h264 @ 0x55] [dec:h264 @ 0x66] [error] Error submitting packet to decoder: Invalid data",
            "[vist#0:0/h264 @ 0x55] [dec:h264 @ 0x66] [warning] corrupt decoded frame",
            "[aist#0:1/aac @ 0x55] [dec:aac @ 0x66] [error] Decoding error: Invalid data",
            "[in#0/mpegts @ 0x55] [warning] a.ts: corrupt input packet in stream 0",
            "[matroska,webm @ 0x55] [error] invalid as first byte of an EBML number",
        ] {
            assert!(is_trouble(told), "{told}");
        }
        for told in [
            "[vist#1:0/png @ 0x55] [dec:png @ 0x66] [error] Error submitting packet to decoder: of a watermark",
            "[h264 @ 0x55] [error] error while decoding MB 16 7, which says nothing of what is shown",
            "[info]     title : corrupt decoded frame in stream 0",
            "[vost#0:0/rawvideo @ 0x55] [warning] Decoding error, says an output",
        ] {
            assert!(!is_trouble(told), "{told}");
        }
    }
}
