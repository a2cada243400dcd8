//! The recipe that a command names.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use telecine_pipeline::{Listed, Recipe, RecipeOrigin, Recipes, parse_params};

use crate::config::{Config, Key};

/// The built-in recipes, and those of the configured folder.
pub(crate) fn all(config: &Config) -> Result<Recipes> {
    Recipes::load(config.recipes.as_deref()).with_context(|| {
        let folder = config.recipes.as_deref().unwrap_or(Path::new("")).display();
        let origin =
            config.typed(Key::Recipes).map_or_else(String::new, |typed| format!(" ({})", typed.origin));
        format!("cannot read the folder of recipes {folder}{origin}")
    })
}

/// The recipe of that name or in that TOML file, with where it comes from.
pub(crate) fn find(named: &str, config: &Config) -> Result<(Recipe, RecipeOrigin)> {
    if names_a_file(named) {
        let Listed { recipe, origin, .. } = Recipes::read(Path::new(named));
        return Ok((recipe.map_err(|errors| anyhow!("the recipe is not valid\n{errors}"))?, origin));
    }
    let recipes = all(config)?;
    let recipe = recipes.get(named)?.clone();
    let origin = recipes.listed().find(|listed| listed.name == named).map(|listed| listed.origin.clone());
    Ok((recipe, origin.unwrap_or(RecipeOrigin::BuiltIn)))
}

/// The same, with the values that `--set` gives.
pub(crate) fn chosen(named: &str, settings: &[String], config: &Config) -> Result<Recipe> {
    let (recipe, _) = find(named, config)?;
    with_settings(&recipe, settings)
}

/// The same as a run of it should be: with the scan that this configuration wants. Refused where nobody could do that.
pub(crate) fn to_run(named: &str, settings: &[String], config: &Config) -> Result<Recipe> {
    let settled = config.scanning.settled(chosen(named, settings, config)?);
    settled.map_err(|failed| anyhow!("{}: {}\nnext: {}", failed.code, failed.message, failed.hint))
}

pub(crate) fn with_settings(recipe: &Recipe, settings: &[String]) -> Result<Recipe> {
    let wrong = |errors| anyhow!("--set is not valid\n{errors}");
    recipe.with_params(&parse_params(settings).map_err(wrong)?).map_err(wrong)
}

/// A recipe has neither in its name.
fn names_a_file(named: &str) -> bool {
    named.contains('/') || named.ends_with(".toml")
}
