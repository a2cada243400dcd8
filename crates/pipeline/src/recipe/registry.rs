//! The recipes that a run can name: the built-in ones, and those of a folder.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::parse::name_fault;
use super::{Recipe, RecipeErrors};
use crate::nearest::did_you_mean;

const BUILT_IN: [(&str, &str); 7] = [
    ("audio", include_str!("../../../../recipes/audio.toml")),
    ("image", include_str!("../../../../recipes/image.toml")),
    ("mp4", include_str!("../../../../recipes/mp4.toml")),
    ("optimize", include_str!("../../../../recipes/optimize.toml")),
    ("thumbnail", include_str!("../../../../recipes/thumbnail.toml")),
    ("vertical", include_str!("../../../../recipes/vertical.toml")),
    ("web-video", include_str!("../../../../recipes/web-video.toml")),
];

/// Recipes by name.
#[derive(Clone, Debug)]
pub struct Recipes(BTreeMap<String, Listed>);

/// A recipe, or what is wrong with it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: String,
    pub origin: RecipeOrigin,
    pub recipe: Result<Recipe, RecipeErrors>,
}

/// Where a recipe comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipeOrigin {
    BuiltIn,
    File(PathBuf),
}

impl fmt::Display for RecipeOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Why a name gives no recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecipe {
    #[error("no recipe is called `{name}`{near}")]
    Unknown { name: String, near: String },
    #[error(transparent)]
    Invalid(#[from] RecipeErrors),
}

impl NoRecipe {
    /// Why, to whoever named the recipe: what stands where in the operator's file is the operator's alone.
    pub fn told_to_callers(&self) -> String {
        match self {
            Self::Unknown { .. } => self.to_string(),
            Self::Invalid(errors) => {
                let wrong: Vec<&str> = errors.0.iter().map(|error| error.message.as_str()).collect();
                format!("the recipe is not valid: {}", wrong.join("; "))
            }
        }
    }
}

impl Recipes {
    pub fn built_in() -> Self {
        let listed = BUILT_IN.into_iter().map(|(name, text)| {
            let recipe = Recipe::parse(name, &format!("recipes/{name}.toml"), text);
            (name.to_owned(), Listed { name: name.to_owned(), origin: RecipeOrigin::BuiltIn, recipe })
        });
        Self(listed.collect())
    }

    /// The built-in ones and, over them, each `NAME.toml` of the folder. One that is wrong does not keep out the others;
    /// in its own place it does: nobody should get a built-in recipe in place of the one that was written.
    pub fn load(user_folder: Option<&Path>) -> io::Result<Self> {
        let mut recipes = Self::built_in();
        let Some(folder) = user_folder else { return Ok(recipes) };
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let is_toml = path.extension().is_some_and(|extension| extension == "toml");
            if is_toml && !name.starts_with('.') && path.is_file() {
                recipes.0.insert(name, Self::read(&path));
            }
        }
        Ok(recipes)
    }

    /// The recipe of one file, called as the file is.
    pub fn read(path: &Path) -> Listed {
        let file = path.display().to_string();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let recipe = match (name_fault(&name), std::fs::read_to_string(path)) {
            (Some(why), _) => {
                Err(RecipeErrors::unreadable(&file, format!("a recipe is called as its file: {why}")))
            }
            (None, Err(error)) => Err(RecipeErrors::unreadable(&file, format!("it cannot be read: {error}"))),
            (None, Ok(text)) => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                Recipe::parse(&name, &file, &text).map(|recipe| recipe.beside(folder))
            }
        };
        Listed { name, origin: RecipeOrigin::File(path.to_owned()), recipe }
    }

    pub fn get(&self, name: &str) -> Result<&Recipe, NoRecipe> {
        let Some(listed) = self.0.get(name) else {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            return Err(NoRecipe::Unknown { name: name.to_owned(), near: did_you_mean(name, &known) });
        };
        listed.recipe.as_ref().map_err(|errors| NoRecipe::Invalid(errors.clone()))
    }

    /// All of them, also those that are not valid, by name.
    pub fn listed(&self) -> impl Iterator<Item = &Listed> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_valid_and_says_what_it_is_for() {
        for listed in Recipes::built_in().listed() {
            let recipe = listed.recipe.as_ref().unwrap_or_else(|errors| panic!("{errors}"));
            assert!(!recipe.description.is_empty(), "{}", recipe.name);
        }
    }

    #[test]
    fn a_mistyped_name_is_refused_with_the_nearest_one() {
        let refused = Recipes::built_in().get("web-vidoe").unwrap_err();

        assert_eq!(refused.to_string(), "no recipe is called `web-vidoe`; did you mean `web-video`?");
    }

    #[test]
    fn a_folder_replaces_built_in_recipes_and_one_broken_file_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("mp4.toml", "description = \"ours\"\n[steps.mp4]\nkind = \"mp4\"\n");
        write("broken.toml", "[steps.a]\nkind = \"hsl\"\n");
        write("audio.toml", "[steps");
        write("Bad Name.toml", "");
        write("notes.txt", "no recipe");

        let recipes = Recipes::load(Some(folder.path())).unwrap();

        assert_eq!(recipes.get("mp4").unwrap().description, "ours");
        assert!(recipes.get("web-video").is_ok());
        for name in ["broken", "audio", "Bad Name"] {
            let refused = recipes.get(name).unwrap_err();
            assert!(matches!(&refused, NoRecipe::Invalid(_)), "{refused}");
            assert!(
                refused.to_string().contains(&format!("{name}.toml:1:1")) || name != "Bad Name",
                "{refused}"
            );
        }
        let origin = |name: &str| &recipes.listed().find(|listed| listed.name == name).unwrap().origin;
        assert_eq!(*origin("mp4"), RecipeOrigin::File(folder.path().join("mp4.toml")));
        assert_eq!(*origin("image"), RecipeOrigin::BuiltIn);
        assert_eq!(recipes.listed().count(), BUILT_IN.len() + 2, "{recipes:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        assert!(Recipes::load(Some(Path::new("/nonexistent/recipes"))).is_err());
    }
}
