//! What an input is: a picture, a film or a sound. Its content decides, never its name.

use std::fmt;

use serde::{Deserialize, Serialize};
use telecine_media::{Class, Format, Probe};

use crate::records::InputRecord;

/// What steps of a recipe can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MediaType {
    /// A picture, also one that moves.
    Image,
    /// Something with a film in it.
    Video,
    /// A sound without a film; the cover of an album is none.
    Audio,
}

impl MediaType {
    pub const ALL: [Self; 3] = [Self::Image, Self::Video, Self::Audio];

    /// `None`: there is nothing in it to be seen or heard.
    pub fn of(format: Format, probe: Option<&Probe>) -> Option<Self> {
        if format.class() == Class::Image {
            return Some(Self::Image);
        }
        let probe = probe?;
        let sound = || probe.audio().map(|_| Self::Audio);
        probe.video().map(|_| Self::Video).or_else(sound)
    }

    pub(crate) fn of_input(input: &InputRecord) -> Option<Self> {
        Self::of(input.format, input.probe.as_ref())
    }

    /// As recipes write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
        }
    }

    /// What `{media}` of a prefix becomes.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Image => "images",
            Self::Video => "videos",
            Self::Audio => "audio",
        }
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// "image", "image or video", "image, video or audio".
pub(crate) fn any_of(types: &[MediaType]) -> String {
    let names: Vec<&str> = types.iter().map(|media| media.as_str()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
