//! The recipes that a command can name: the built-in ones, and those in files.

use std::path::Path;

use crate::config::Config;
use anyhow::{Result, bail};
use telecine_pipeline::{Does, NoRecipe, Recipe, Recipes, parse_params};

/// The recipe of that built-in name, or in that TOML file.
pub(crate) fn named(name: &str) -> Result<Recipe> {
    match Recipes::built_in().get(name) {
        Ok(recipe) => Ok(recipe.clone()),
        Err(NoRecipe::Unknown { .. }) if Path::new(name).is_file() => {
            Ok(Recipes::read(Path::new(name)).recipe?)
        }
        Err(NoRecipe::Unknown { near, .. }) => bail!("no recipe and no file is called `{name}`{near}"),
        Err(invalid @ NoRecipe::Invalid(_)) => Err(invalid.into()),
    }
}

/// The same with other values, each `STEP.KEY=VALUE`.
pub(crate) fn chosen(name: &str, settings: &[String], _config: &Config) -> Result<Recipe> {
    with_settings(&named(name)?, settings)
}

fn with_settings(recipe: &Recipe, settings: &[String]) -> Result<Recipe> {
    Ok(recipe.with_params(&parse_params(settings)?)?)
}

/// What all steps together ask of the media engine.
pub(crate) fn load(name: &str) -> Result<telecine_media::Recipe> {
    let mut asked = telecine_media::Recipe::default();
    for step in named(name)?.enabled_steps() {
        let Some(wanted) = step.does.media() else { continue };
        let joins_segments = matches!(step.does, Does::Mp4(_)) && !step.needs.is_empty();
        match &mut asked.video {
            Some(video) if joins_segments => video.mp4 = true,
            _ => asked.video = wanted.video.or(asked.video),
        }
        asked.pictures = wanted.pictures.or(asked.pictures);
        asked.images = wanted.images.or(asked.images);
        asked.audio = wanted.audio.or(asked.audio);
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_refused_with_the_nearest_one() {
        let error = named("web-vidoe").expect_err("there is no such recipe");

        assert!(error.to_string().contains("did you mean `web-video`?"), "{error}");
    }

    #[test]
    fn settings_change_values_and_a_mistyped_one_is_refused() {
        let recipe = named("web-video").expect("a built-in one");
        let error = with_settings(&recipe, &["mp5.enabled=true".into()]).expect_err("no such step");
        let recipe = with_settings(&recipe, &["mp4.enabled=true".into()]).expect("valid");

        assert!(recipe.step("mp4").is_some_and(|step| step.enabled));
        assert!(error.to_string().contains("mp5"), "{error}");
    }
}
