//! Which of a recipe's outputs is asked for, and what of the recipe has to be done for it.

use std::collections::BTreeSet;

use telecine_pipeline::{Does, OutputShown, OutputStatus, Recipe, did_you_mean};

use super::mistake;
use crate::problem::{Code, Mistake, Problem};

/// One file of one output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Without what nobody waits for.
    pub(super) recipe: Recipe,
    /// `None`: the only one there will be.
    output: Option<String>,
    /// `None`: the one to begin with.
    file: Option<String>,
}

/// An output that a step promises.
struct Promised {
    name: String,
    step: String,
}

impl Wanted {
    /// `poster`, or `image/0-320x180.webp`.
    pub(super) fn of(recipe: &Recipe, asked: Option<&str>) -> Result<Self, Problem> {
        let promised = promised(recipe);
        // What a program of the user's own makes shows when it is made.
        let is_open = recipe.enabled_steps().any(|step| matches!(step.does, Does::Exec(_)));
        let Some(asked) = asked else {
            return match promised.as_slice() {
                [one] if !is_open => Ok(Self::step(recipe, one, None)),
                [] => Ok(Self { recipe: at_once(recipe.clone()), output: None, file: None }),
                several => Err(which(several.iter().map(|promised| promised.name.as_str()))),
            };
        };
        let (output, file) = match asked.split_once('/') {
            Some((output, file)) => (output, Some(file.to_owned())),
            None => (asked, None),
        };
        match promised.iter().find(|promised| promised.name == output) {
            Some(one) => Ok(Self::step(recipe, one, file)),
            None if is_open => {
                Ok(Self { recipe: at_once(recipe.clone()), output: Some(output.to_owned()), file })
            }
            None => {
                let known: Vec<&str> = promised.iter().map(|promised| promised.name.as_str()).collect();
                Err(unknown(output, &known))
            }
        }
    }

    /// One step, what it needs, and nothing else.
    fn step(recipe: &Recipe, promised: &Promised, file: Option<String>) -> Self {
        let mut needed = BTreeSet::from([promised.step.clone()]);
        // Each step stands after those that it needs.
        for step in recipe.steps.iter().rev().filter(|step| step.enabled) {
            if needed.contains(&step.name) {
                needed.extend(step.needs.iter().cloned());
            }
        }
        let mut recipe = recipe.clone();
        recipe.steps.retain(|step| needed.contains(&step.name));
        Self { recipe: at_once(recipe), output: Some(promised.name.clone()), file }
    }

    /// The key and the name of the file among what was made.
    pub(super) fn among<'a>(&self, outputs: &'a [OutputShown]) -> Result<Option<Found<'a>>, Problem> {
        let ready: Vec<&OutputShown> =
            outputs.iter().filter(|output| output.status == OutputStatus::Ready).collect();
        let names = || ready.iter().map(|output| output.name.as_str());
        let output = match (&self.output, ready.as_slice()) {
            (Some(wanted), _) => ready.iter().find(|output| output.name == *wanted).copied(),
            (None, [one]) => Some(*one),
            (None, []) => None,
            (None, _) => return Err(which(names())),
        };
        let Some(output) = output else { return Ok(None) };
        let file = match &self.file {
            Some(path) => output.files.iter().find(|file| file.path == *path).ok_or_else(|| {
                let known: Vec<&str> = output.files.iter().map(|file| file.path.as_str()).collect();
                unknown(&format!("{}/{path}", output.name), &known)
            })?,
            None => {
                let main = output.files.iter().find(|file| Some(&file.key) == output.uri.as_ref());
                match main {
                    Some(main) => main,
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Found { path: &file.path, key: &file.key, bytes: file.bytes, sha256: &file.sha256 }))
    }
}

/// A file that was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) path: &'a str,
    pub(super) key: &'a str,
    pub(super) bytes: u64,
    pub(super) sha256: &'a str,
}

fn promised(recipe: &Recipe) -> Vec<Promised> {
    let of_step = |step: &telecine_pipeline::Step| {
        let named = |name: Option<&'static str>| Promised {
            name: name.unwrap_or(&step.name).to_owned(),
            step: step.name.clone(),
        };
        step.does.promised().into_iter().map(named).collect::<Vec<_>>()
    };
    recipe.enabled_steps().flat_map(of_step).collect()
}

/// Nobody waits for a second attempt, nor can do without what was asked for; and the one worker here has no other lanes
/// than those of its kinds.
fn at_once(mut recipe: Recipe) -> Recipe {
    for step in &mut recipe.steps {
        step.required = true;
        step.attempts = Some(1);
        step.lane = None;
    }
    recipe
}

fn which<'a>(known: impl Iterator<Item = &'a str>) -> Problem {
    let known: Vec<&str> = known.collect();
    let message = format!("the recipe makes several things; ask for one of {}", known.join(", "));
    let told =
        |name: &&str| Mistake { path: "output".into(), code: "one_of".into(), message: (*name).to_owned() };
    Problem::new(Code::InvalidRequest, message).with_errors(known.iter().map(told).collect())
}

fn unknown(asked: &str, known: &[&str]) -> Problem {
    let near = did_you_mean(asked, known);
    let message = format!("nothing is called `{asked}`{near}");
    Problem::impossible(vec![mistake("output", "unknown_output", message)])
}

#[cfg(test)]
mod tests {
    use telecine_pipeline::Recipes;

    use super::*;

    fn of(recipe: &str, output: Option<&str>) -> Result<Wanted, Problem> {
        Wanted::of(Recipes::built_in().get(recipe).unwrap(), output)
    }

    fn steps(wanted: &Wanted) -> Vec<&str> {
        wanted.recipe.steps.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn what_nobody_waits_for_is_not_done() {
        assert_eq!(steps(&of("web-video", Some("poster")).unwrap()), ["pictures"]);
        assert_eq!(steps(&of("vertical", Some("mp4")).unwrap()), ["hls", "mp4"]);
        assert_eq!(steps(&of("thumbnail", None).unwrap()), ["pictures"]);
        let wanted = of("image", Some("image/0-320x180.webp")).unwrap();
        assert_eq!(
            (wanted.output.as_deref(), wanted.file.as_deref()),
            (Some("image"), Some("0-320x180.webp"))
        );
        assert!(wanted.recipe.steps.iter().all(|step| step.required && step.attempts == Some(1)));
    }

    #[test]
    fn of_several_outputs_one_has_to_be_named() {
        let several = of("web-video", None).unwrap_err();
        let unknown = of("web-video", Some("postre")).unwrap_err();

        assert_eq!((several.code(), unknown.code()), (Code::InvalidRequest, Code::Unprocessable));
        let several = serde_json::to_string(&several.document()).unwrap();
        assert!(
            ["hls", "poster", "storyboard", "preview"].iter().all(|name| several.contains(name)),
            "{several}"
        );
        // It is there in the recipe, but not done unless somebody asks for it with `params`.
        assert_eq!(of("web-video", Some("mp4")).unwrap_err().code(), Code::Unprocessable);
    }
}
