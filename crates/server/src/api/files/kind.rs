//! What a file is, by its name: ours are named by what they are.

use http::HeaderValue;

/// How a file is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) struct Kind {
    pub(in crate::api) content_type: &'static str,
    /// Whether a browser may show it; otherwise it is only to be saved.
    is_shown: bool,
}

/// Media that is played or shown. Nothing in this list can hold a script.
const SHOWN: [(&str, &str); 22] = [
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("mpd", "application/dash+xml"),
    ("m4s", "video/iso.segment"),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("m4a", "audio/mp4"),
    ("webm", "video/webm"),
    ("mkv", "video/x-matroska"),
    ("ts", "video/mp2t"),
    ("mp3", "audio/mpeg"),
    ("aac", "audio/aac"),
    ("opus", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("png", "image/png"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("gif", "image/gif"),
];
const SAVED: [(&str, &str); 3] =
    [("json", "application/json"), ("txt", "text/plain; charset=utf-8"), ("srt", "application/x-subrip")];

impl Kind {
    pub(in crate::api) fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        let among = |known: &[(&str, &'static str)]| {
            let found = known.iter().find(|(name, _)| extension.as_deref() == Some(*name));
            found.map(|(_, content_type)| *content_type)
        };
        match (among(&SHOWN), among(&SAVED)) {
            (Some(content_type), _) => Self { content_type, is_shown: true },
            (None, Some(content_type)) => Self { content_type, is_shown: false },
            (None, None) => Self { content_type: "application/octet-stream", is_shown: false },
        }
    }

    /// With the file's own name, which a user's program may have given it.
    pub(in crate::api) fn disposition(self, path: &str) -> HeaderValue {
        let name = path.rsplit('/').next().unwrap_or_default();
        let how = if self.is_shown { "inline" } else { "attachment" };
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let encoded: String = name
            .bytes()
            .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect();
        let named = match name.bytes().all(|byte| is_plain(&byte)) {
            true => format!("{how}; filename=\"{name}\""),
            false => format!("{how}; filename*=UTF-8''{encoded}"),
        };
        HeaderValue::try_from(named).unwrap_or(HeaderValue::from_static("attachment"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_hold_a_script_is_only_saved() {
        for path in [
            "exec/page.html",
            "exec/a.svg",
            "exec/a.xml",
            "exec/a.js",
            "exec/a.HTM",
            "exec/a",
            "exec/.mp4/a.pdf",
        ] {
            let kind = Kind::of(path);
            assert_eq!((kind.content_type, kind.is_shown), ("application/octet-stream", false), "{path}");
        }
        assert_eq!(Kind::of("hls/master.m3u8").content_type, "application/vnd.apple.mpegurl");
        assert_eq!(Kind::of("pictures/POSTER.JPG").content_type, "image/jpeg");
        assert!(!Kind::of("audio/waveform.json").is_shown);
    }

    #[test]
    fn no_name_of_a_file_leaves_its_header() {
        let named = |path: &str| Kind::of(path).disposition(path).to_str().unwrap().to_owned();

        assert_eq!(named("hls/720p/00000-3f9a1c2b.m4s"), "inline; filename=\"00000-3f9a1c2b.m4s\"");
        assert_eq!(
            named("exec/a\"; x=\"\r\n.txt"),
            "attachment; filename*=UTF-8''a%22%3B%20x%3D%22%0D%0A.txt"
        );
        assert_eq!(named("exec/ä.bin"), "attachment; filename*=UTF-8''%C3%A4.bin");
    }
}
