//! `telecine recipes`.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use telecine_pipeline::{Listed, Recipe, RecipeErrors, RecipeOrigin, Recipes};

use crate::cli::RecipesCommand;
use crate::config::Config;
use crate::output::{Answer, List, Output, Paint, harmless, say};
use crate::recipes::{all, find, with_settings};
use crate::table::{Cell, Table};

pub(super) fn run(command: RecipesCommand, config: &Config, output: &Output) -> Result<Answer> {
    match command {
        RecipesCommand::Ls => ls(config, output),
        RecipesCommand::Show { name, settings } => show(&name, &settings, config, output),
        RecipesCommand::Check { files } => check(files, config, output),
    }
}

/// A recipe as `ls` and `check` tell of it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    name: &'a str,
    origin: &'a RecipeOrigin,
    description: Option<&'a str>,
    /// Names of those that are done, and of those that a run can ask for.
    steps: Vec<&'a str>,
    steps_not_enabled: Vec<&'a str>,
    errors: Option<&'a RecipeErrors>,
}

impl<'a> From<&'a Listed> for Told<'a> {
    fn from(listed: &'a Listed) -> Self {
        let names = |enabled: bool| {
            let steps = listed.recipe.iter().flat_map(|recipe| &recipe.steps);
            steps.filter(|step| step.enabled == enabled).map(|step| step.name.as_str()).collect()
        };
        Self {
            name: &listed.name,
            origin: &listed.origin,
            description: listed.recipe.as_ref().ok().map(|recipe| recipe.description.as_str()),
            steps: names(true),
            steps_not_enabled: names(false),
            errors: listed.recipe.as_ref().err(),
        }
    }
}

fn ls(config: &Config, output: &Output) -> Result<Answer> {
    let recipes = all(config)?;
    let told: Vec<Told<'_>> = recipes.listed().map(Told::from).collect();
    if output.json {
        output.print_json(&List::whole(told))?;
        return Ok(Answer::Yes);
    }
    let mut table = Table::new(["NAME", "STEPS", "ORIGIN", "DESCRIPTION"]);
    for recipe in &told {
        let not_enabled = recipe.steps_not_enabled.iter().map(|step| format!("({step})"));
        let steps: Vec<String> = recipe.steps.iter().map(ToString::to_string).chain(not_enabled).collect();
        let (steps, about) = match recipe.errors {
            None => (steps.join(", ").into(), recipe.description.unwrap_or_default().into()),
            Some(errors) => (Cell::painted("invalid", Paint::Red), errors_counted(errors).into()),
        };
        table.row([recipe.name.into(), steps, recipe.origin.to_string().into(), about]);
    }
    output.print(&table.draw(output.colour))?;
    if told.iter().any(|recipe| recipe.errors.is_some()) {
        say("next: see what is wrong with `telecine recipes check`");
    }
    Ok(Answer::Yes)
}

fn errors_counted(errors: &RecipeErrors) -> String {
    let count = errors.0.len();
    format!("{count} error{}", if count == 1 { "" } else { "s" })
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    origin: &'a RecipeOrigin,
    #[serde(flatten)]
    recipe: &'a Recipe,
}

fn show(name: &str, settings: &[String], config: &Config, output: &Output) -> Result<Answer> {
    let (recipe, origin) = find(name, config)?;
    let recipe = with_settings(&recipe, settings)?;
    if output.json {
        output.print_json(&Shown { origin: &origin, recipe: &recipe })?;
    } else {
        output.print(&format!("{}\n{}", drawn(&recipe, &origin), recipe.to_toml()))?;
    }
    Ok(Answer::Yes)
}

/// The steps and what they wait for, as comments: what is printed stays a recipe.
fn drawn(recipe: &Recipe, origin: &RecipeOrigin) -> String {
    let width = recipe.steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
    let mut text = format!("# {} ({})\n#\n", harmless(&recipe.name), harmless(&origin.to_string()));
    for step in &recipe.steps {
        let mut about = vec![step.does.kind().to_owned()];
        about.push(if step.required { "required".into() } else { "optional".into() });
        if !step.enabled {
            about.push(format!("not enabled (--set {}.enabled=true)", step.name));
        }
        if !step.takes.is_empty() {
            let takes: Vec<&str> = step.takes.iter().map(|media| media.as_str()).collect();
            about.push(format!("for {}", takes.join(" and ")));
        }
        if !step.needs.is_empty() {
            about.push(format!("after {}", step.needs.join(" and ")));
        }
        text += &format!("#   {:width$}  {}\n", step.name, about.join(", "));
    }
    text
}

fn check(files: Vec<PathBuf>, config: &Config, output: &Output) -> Result<Answer> {
    let listed: Vec<Listed> = if files.is_empty() {
        let recipes = all(config)?;
        recipes.listed().filter(|listed| listed.origin != RecipeOrigin::BuiltIn).cloned().collect()
    } else {
        files.iter().map(|file| Recipes::read(file)).collect()
    };
    if listed.is_empty() {
        say(
            "there is nothing to check\nnext: name a file, or set `recipes` to the folder of your own (`telecine config show`)",
        );
    }
    if output.json {
        output.print_json(&List::whole(listed.iter().map(Told::from).collect()))?;
    } else {
        output.print(&listed.iter().map(judged).collect::<String>())?;
    }
    let all_valid = listed.iter().all(|listed| listed.recipe.is_ok());
    Ok(if all_valid { Answer::Yes } else { Answer::No })
}

fn judged(listed: &Listed) -> String {
    match &listed.recipe {
        Ok(recipe) => format!("{}: valid, steps {}\n", harmless(&listed.origin.to_string()), {
            let names: Vec<&str> = recipe.steps.iter().map(|step| step.name.as_str()).collect();
            names.join(", ")
        }),
        Err(errors) => errors.to_string().lines().map(|line| harmless(line) + "\n").collect(),
    }
}
