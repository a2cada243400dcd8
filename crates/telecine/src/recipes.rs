//! The built-in recipes, and those in files.

use std::path::Path;

use anyhow::{Context, Result, bail};
use telecine_media::Recipe;

use crate::nearest::did_you_mean;

const BUILT_IN: [(&str, &str); 5] = [
    ("web-video", include_str!("../../../recipes/web-video.toml")),
    ("mp4", include_str!("../../../recipes/mp4.toml")),
    ("vertical", include_str!("../../../recipes/vertical.toml")),
    ("audio", include_str!("../../../recipes/audio.toml")),
    ("images", include_str!("../../../recipes/images.toml")),
];

/// The recipe of that built-in name, or in that TOML file.
pub(crate) fn load(named: &str) -> Result<Recipe> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == named) {
        return parse(text);
    }
    let path = Path::new(named);
    if !path.is_file() {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        bail!("no recipe and no file is called `{named}`{}", did_you_mean(named, &names));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the recipe {named}"))?;
    parse(&text).with_context(|| format!("the recipe {named} is not valid"))
}

/// The recipe as a graph of steps.
pub(crate) fn for_run(named: &str, set: &[String]) -> Result<telecine_pipeline::Recipe> {
    use telecine_pipeline::{Does, Step};
    let recipe = load(named)?;
    let Some(mut video) = recipe.video else {
        bail!("only films can be made so far, and {named} makes none")
    };
    if !set.is_empty() {
        bail!("--set is not understood yet");
    }
    let step = |name: &str, does| Step {
        name: name.into(),
        does,
        needs: Vec::new(),
        required: true,
        lane: None,
        priority: None,
        attempts: None,
    };
    let mp4 = std::mem::take(&mut video.mp4).then(|| step("mp4", Does::Mp4(video.clone())));
    let hls = (!video.packaging.is_empty()).then(|| step("hls", Does::Hls(video)));
    let needs = hls.iter().map(|hls| hls.name.clone()).collect();
    let mp4 = mp4.map(|mp4| Step { needs, ..mp4 });
    let steps = hls.into_iter().chain(mp4).collect();
    Ok(telecine_pipeline::Recipe { name: named.into(), description: String::new(), steps })
}

fn parse(text: &str) -> Result<Recipe> {
    let recipe: Recipe = toml::from_str(text)?;
    recipe.check()?;
    Ok(recipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_valid() {
        for (name, _) in BUILT_IN {
            load(name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        }
    }

    #[test]
    fn a_mistyped_name_is_refused_with_the_nearest_one() {
        let error = load("web-vidoe").expect_err("there is no such recipe");

        assert!(error.to_string().contains("did you mean `web-video`?"), "{error}");
    }
}
