//! Which file is published where.
//!
//! ```text
//!   {prefix}/thumb.webp              a step that makes one file: named after the step
//!   {prefix}/image/640w.webp         variants of a picture: by the size that was asked for
//!   {prefix}/hls/master.m3u8         everything else: as in the step's own folder
//! ```
//! Names follow from the recipe, not from what came of it: whoever knows the recipe knows them beforehand.

use std::collections::BTreeSet;

use telecine_media::{ImageSpec, ImageVariant};

use super::Place;
use crate::kinds::variant_of;
use crate::recipe::{Does, Recipe, Step};
use crate::records::{OutputRecord, PublishedRecord, StoredFile};

/// A file and the key that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) file: StoredFile,
    pub(crate) to: String,
    /// Names others, which must be there first.
    pub(crate) is_manifest: bool,
}

/// All files of these outputs, those that name others behind them, and the one that names all last of its output.
pub(crate) fn copies<'a>(
    recipe: &Recipe,
    outputs: impl Iterator<Item = &'a OutputRecord>,
    prefix: &str,
) -> Vec<Copied> {
    let mut copies = Vec::new();
    for output in outputs {
        let Some(step) = recipe.step(&output.step) else { continue };
        copies.extend(output.files.iter().map(|file| Copied {
            to: format!("{prefix}/{}", path_of(step, file)),
            is_manifest: is_manifest(&file.path),
            file: file.clone(),
        }));
    }
    // Stable: those of one output stay in the order in which they were written.
    copies.sort_by_key(|copied| copied.is_manifest);
    copies
}

fn is_manifest(path: &str) -> bool {
    [".m3u8", ".mpd", ".vtt"].iter().any(|ending| path.ends_with(ending))
}

fn path_of(step: &Step, file: &StoredFile) -> String {
    let name = &step.name;
    match &step.does {
        does if does.makes_one_file() => match file.path.rsplit_once('.') {
            Some((_, extension)) => format!("{name}.{extension}"),
            None => name.clone(),
        },
        Does::Image(spec) => format!("{name}/{}", variant_path(spec, &file.path)),
        _ => format!("{name}/{}", file.path),
    }
}

impl Does {
    /// Whether such a step always makes one file, if any.
    fn makes_one_file(&self) -> bool {
        match self {
            Self::Mp4(_) => true,
            Self::Image(spec) => matches!(spec.variants.as_slice(), [only] if only.formats.len() == 1),
            Self::Audio(spec) => spec.formats.len() == 1 && spec.waveform_points_per_second.is_none(),
            // Of storyboards and frames there may be many.
            Self::Pictures(spec) => {
                self.promised().len() == 1 && spec.storyboard.is_none() && spec.frames.is_none()
            }
            Self::Hls(_) | Self::Exec(_) => false,
        }
    }
}

/// `640w.webp`, with the variant's place where an earlier one has the same size.
fn variant_path(spec: &ImageSpec, path: &str) -> String {
    let Some((nth, variant)) = variant_of(path).and_then(|nth| Some((nth, spec.variants.get(nth)?))) else {
        return path.to_owned();
    };
    let size = size_of(variant);
    let is_taken = spec.variants[..nth].iter().any(|earlier| size_of(earlier) == size);
    let place = if is_taken { format!("-{nth}") } else { String::new() };
    let extension = path.rsplit('.').next().unwrap_or_default();
    format!("{size}{place}.{extension}")
}

fn size_of(variant: &ImageVariant) -> String {
    match (variant.width, variant.height) {
        (Some(width), None) => format!("{width}w"),
        (None, Some(height)) => format!("{height}h"),
        (Some(width), Some(height)) => format!("{width}x{height}"),
        (None, None) => "full".to_owned(),
    }
}

impl PublishedRecord {
    pub(crate) fn of(place: &Place, steps: BTreeSet<String>) -> Self {
        Self { prefix: place.address.clone(), bucket: place.bucket.clone(), steps }
    }

    /// From the root of the bucket or folder.
    pub(crate) fn key_of(&self, step: &Step, file: &StoredFile) -> String {
        format!("{}/{}", self.prefix, path_of(step, file))
    }

    /// With the bucket, where it is one.
    pub(crate) fn address_of(&self, step: &Step, file: &StoredFile) -> String {
        let key = self.key_of(step, file);
        match &self.bucket {
            Some(bucket) => format!("{bucket}/{key}"),
            None => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str) -> Recipe {
        Recipe::parse("ours", "ours.toml", text).unwrap()
    }

    fn published(recipe: &Recipe, step: &str, paths: &[&str]) -> Vec<String> {
        let file = |path: &&str| StoredFile {
            path: (*path).to_owned(),
            key: format!("_/run/{path}"),
            bytes: 1,
            sha256: String::new(),
        };
        let output = OutputRecord {
            name: step.into(),
            kind: String::new(),
            step: step.into(),
            main: String::new(),
            files: paths.iter().map(file).collect(),
            facts: serde_json::Value::Null,
        };
        copies(recipe, [&output].into_iter(), "u42").into_iter().map(|copied| copied.to).collect()
    }

    #[test]
    fn variants_have_the_names_that_the_recipe_gives_them() {
        let recipe = recipe(
            "[steps.a]\nkind = \"image\"\nwith = { variants = [\
             { width = 640, formats = [\"webp\", \"jpeg\"] }, { width = 640, formats = [\"webp\"] }, \
             { width = 30, height = 30, fit = \"cover\", formats = [\"webp\"] }, { formats = [\"png\"] } ] }\n\
             [steps.b]\nkind = \"image\"\nwith = { variants = [{ height = 9, formats = [\"webp\"] }] }",
        );

        let several = ["0-320x10.webp", "0-320x10.jpg", "1-320x10.webp", "2-30x30.webp", "3-320x10.png"];
        assert_eq!(
            published(&recipe, "a", &several),
            ["u42/a/640w.webp", "u42/a/640w.jpg", "u42/a/640w-1.webp", "u42/a/30x30.webp", "u42/a/full.png"]
        );
        assert_eq!(published(&recipe, "b", &["0-16x9.webp"]), ["u42/b.webp"]);
    }

    #[test]
    fn what_names_others_comes_behind_them() {
        let recipe = recipe(
            "[steps.film]\nkind = \"hls\"\n[steps.file]\nkind = \"mp4\"\nneeds = [\"film\"]\n\
             [steps.stills]\nkind = \"pictures\"\nwith = { poster = {}, storyboard = {} }\n\
             [steps.poster]\nkind = \"pictures\"\nwith = { poster = {} }",
        );

        assert_eq!(
            published(&recipe, "film", &["720p/init.mp4", "720p.m3u8", "master.m3u8", "audio/0.m4s"]),
            ["u42/film/720p/init.mp4", "u42/film/audio/0.m4s", "u42/film/720p.m3u8", "u42/film/master.m3u8"]
        );
        assert_eq!(published(&recipe, "file", &["video.mp4"]), ["u42/file.mp4"]);
        assert_eq!(published(&recipe, "stills", &["poster.jpg"]), ["u42/stills/poster.jpg"]);
        assert_eq!(published(&recipe, "poster", &["poster.jpg"]), ["u42/poster.jpg"]);
    }
}
