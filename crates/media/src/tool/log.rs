//! FFmpeg's log, line by line, for whoever wants to know more of a child than how it ended.

/// One line with its level, as `-v level+info` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// Said for information only; the others are warnings and errors.
    pub(crate) is_info: bool,
    /// Worse than a warning.
    pub(crate) is_error: bool,
    /// The component that speaks: `h264`, `Parsed_showinfo_1`; `None` for the program itself.
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
            (speaker, rest) = (Some(name), after);
        }
        LogLine { is_info: !self.last_is_trouble, is_error: false, speaker: None, text: line }
    }
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
/// What FFmpeg itself says of packets that gave nothing, or something bad.
const LOST: [&str; 2] = ["Error while decoding stream #0:", "corrupt input packet in stream"];
const CONCEALED: &str = "corrupt decoded frame in stream";

/// Whether the line says that something of the input could not be read or decoded.
pub(crate) fn complains_of_input(line: &LogLine<'_>) -> bool {
    match line.speaker {
        _ if line.is_info => false,
        Some(speaker) => line.is_error && DEMUXERS.contains(&speaker),
        None => line.is_of_concealed_frame() || LOST.iter().any(|words| line.text.contains(words)),
    }
}

impl LogLine<'_> {
    /// The frame that comes next was made up, in part or whole.
    pub(crate) fn is_of_concealed_frame(&self) -> bool {
        !self.is_info && self.speaker.is_none() && self.text.contains(CONCEALED)
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
}
