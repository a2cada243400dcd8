//! From the text of a recipe to its steps, or to everything that is wrong with it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Complaints, RecipeErrors};
use super::order::sorted;
use super::{Recipe, STEP_KINDS, Step, is_usually_required, with};
use crate::media_type::{MediaType, any_of};
use crate::nearest::did_you_mean;
use crate::scan::{ScanPolicy, UnscannedPolicy};

const RECIPE_KEYS: [&str; 4] = ["description", "scan", "steps", "unscanned"];
const STEP_KEYS: [&str; 9] =
    ["kind", "for", "needs", "with", "required", "lane", "priority", "attempts", "enabled"];
/// What lies beside the folders of steps in a store, and the steps that every run begins and may end with.
const RESERVED: [&str; 7] = ["source", "cache", "uploads", "ingest", "scan", "publish", "conclude"];
const MOST_ATTEMPTS: u16 = 100;

/// A step with the places that later complaints may be about.
struct Read {
    name: String,
    named_at: Range<usize>,
    takes: Vec<MediaType>,
    needs: Vec<(String, Range<usize>)>,
    with_at: Option<Range<usize>>,
    enabled_at: Range<usize>,
    required_at: Range<usize>,
    /// `None` where something is wrong with it.
    step: Option<Step>,
    kind: Option<&'static str>,
    required: bool,
    enabled: bool,
}

impl Recipe {
    /// Reads a recipe. `file` is only what the errors call it.
    ///
    /// ```
    /// let text = "[steps.film]\nkind = \"hls\"\nwith = { segment_secnods = 6 }\n";
    /// let errors = telecine_pipeline::Recipe::parse("mine", "mine.toml", text).unwrap_err();
    /// assert!(errors.to_string().contains("mine.toml:3:10"));
    /// assert!(errors.to_string().contains("did you mean `segment_seconds`?"));
    /// ```
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, RecipeErrors> {
        let mut complaints = Complaints::about(file, text);
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let span = error.span().unwrap_or_default();
            let message = match (error.message(), text.get(span.clone())) {
                ("duplicate key", Some(key)) => format!("`{key}` is there twice"),
                (message, _) => format!("not TOML: {message}"),
            };
            complaints.add(span, message);
        }
        // After a first slip of a line the parser stumbles over the rest of it.
        complaints.keep_first_of_each_line();
        // What was recovered may lack what is in the text: only the text itself is judged then.
        complaints.into_result()?;

        let mut complaints = Complaints::about(file, text);
        let (description, read) = read_document(table.get_ref(), text.len(), &mut complaints);
        let scan = choice("scan", &ScanPolicy::NAMES, ScanPolicy::named, table.get_ref(), &mut complaints);
        let unscanned = choice(
            "unscanned",
            &UnscannedPolicy::NAMES,
            UnscannedPolicy::named,
            table.get_ref(),
            &mut complaints,
        );
        check_needs(&read, &mut complaints);
        let order = order(&read, &mut complaints);
        complaints.into_result()?;

        let mut steps: Vec<Option<Step>> = read.into_iter().map(|read| read.step).collect();
        let steps = order.into_iter().filter_map(|nth| steps[nth].take()).collect();
        Ok(Self { name: name.to_owned(), description, scan, unscanned, steps })
    }
}

/// Entries in the order of the text: the table itself is sorted by name.
fn in_text_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t str, Range<usize>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

fn read_document(table: &DeTable<'_>, end: usize, complaints: &mut Complaints<'_>) -> (String, Vec<Read>) {
    let (mut description, mut read) = (String::new(), Vec::new());
    for (key, span, value) in in_text_order(table) {
        match key {
            "description" => match value.get_ref().as_str() {
                Some(text) => description = text.trim().to_owned(),
                None => complaints.add(value.span(), "`description` is a text"),
            },
            "steps" => match value.get_ref().as_table() {
                Some(steps) => {
                    let steps = in_text_order(steps).into_iter();
                    read = steps.map(|(name, span, step)| Read::step(name, span, step, complaints)).collect();
                }
                None => complaints.add(value.span(), "`steps` is a table of steps: [steps.NAME]"),
            },
            // Read as what they mean, elsewhere.
            "scan" | "unscanned" => {}
            _ => complaints.add(span, format!("unknown key `{key}`{}", did_you_mean(key, &RECIPE_KEYS))),
        }
    }
    let has_enabled = read.iter().any(|step| step.enabled);
    if complaints.is_empty() && read.is_empty() {
        complaints.add(end..end, "a recipe has at least one step: [steps.NAME], kind = \"hls\"");
    } else if complaints.is_empty() && !has_enabled {
        complaints.add(read[0].enabled_at.clone(), "no step of this recipe is enabled");
    }
    (description, read)
}

impl Read {
    fn step(
        name: &str,
        named_at: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        complaints: &mut Complaints<'_>,
    ) -> Self {
        let mut read = Self {
            name: name.to_owned(),
            takes: Vec::new(),
            needs: Vec::new(),
            with_at: None,
            enabled_at: named_at.clone(),
            required_at: named_at.clone(),
            named_at,
            step: None,
            kind: None,
            required: true,
            enabled: true,
        };
        if let Some(why) = name_fault(name) {
            complaints.add(read.named_at.clone(), why);
        }
        let Some(table) = value.get_ref().as_table() else {
            complaints.add(value.span(), format!("a step is a table: [steps.{name}]"));
            return read;
        };
        read.fill(table, complaints);
        read
    }

    fn fill(&mut self, table: &DeTable<'_>, complaints: &mut Complaints<'_>) {
        for (key, span, _) in in_text_order(table) {
            if !STEP_KEYS.contains(&key) {
                complaints.add(span, format!("unknown key `{key}`{}", did_you_mean(key, &STEP_KEYS)));
            }
        }
        self.takes = takes(table.get("for"), complaints);
        self.needs = self.read_needs(table.get("needs"), complaints);
        let required = boolean("required", table, complaints);
        let enabled = boolean("enabled", table, complaints);
        let lane = lane(table.get("lane"), complaints);
        let priority = number("priority", 0, 100, table, complaints).and_then(|n| u8::try_from(n).ok());
        let attempts = number("attempts", 1, i64::from(MOST_ATTEMPTS), table, complaints);
        let attempts = attempts.and_then(|n| u16::try_from(n).ok());
        self.kind = self.read_kind(table.get("kind"), complaints);
        self.with_at = table.get_key_value("with").map(|(key, _)| key.span());
        let Some(kind) = self.kind else { return };
        let empty = Spanned::new(self.named_at.clone(), DeValue::Table(DeTable::new()));
        let does = with::read(kind, table.get("with").unwrap_or(&empty), complaints);
        if let Some((value, span)) = &required {
            (self.required, self.required_at) = (*value, span.clone());
        } else {
            self.required = is_usually_required(kind);
        }
        if let Some((value, span)) = &enabled {
            (self.enabled, self.enabled_at) = (*value, span.clone());
        }
        self.step = does.map(|does| Step {
            takes: self.takes.clone(),
            needs: self.needs.iter().map(|(need, _)| need.clone()).collect(),
            required: self.required,
            lane,
            priority,
            attempts,
            enabled: self.enabled,
            ..Step::new(self.name.clone(), does)
        });
    }

    fn read_kind(
        &self,
        kind: Option<&Spanned<DeValue<'_>>>,
        complaints: &mut Complaints<'_>,
    ) -> Option<&'static str> {
        let known = STEP_KINDS.join(", ");
        let Some(value) = kind else {
            complaints.add(self.named_at.clone(), format!("`kind` is missing; known are {known}"));
            return None;
        };
        let Some(typed) = value.get_ref().as_str() else {
            complaints.add(value.span(), format!("`kind` is one of {known}"));
            return None;
        };
        let kind = STEP_KINDS.into_iter().find(|kind| *kind == typed);
        if kind.is_none() {
            complaints
                .add(value.span(), format!("unknown kind `{typed}`{}", did_you_mean(typed, &STEP_KINDS)));
        }
        kind
    }

    fn read_needs(
        &self,
        needs: Option<&Spanned<DeValue<'_>>>,
        complaints: &mut Complaints<'_>,
    ) -> Vec<(String, Range<usize>)> {
        let Some(value) = needs else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            complaints.add(value.span(), "`needs` is a list of steps, such as [\"hls\"]");
            return Vec::new();
        };
        let mut needs: Vec<(String, Range<usize>)> = Vec::new();
        for need in list.iter() {
            match need.get_ref().as_str() {
                Some(name) if needs.iter().any(|(other, _)| other == name) => {
                    complaints.add(need.span(), format!("`{name}` is needed twice"));
                }
                Some(name) => needs.push((name.to_owned(), need.span())),
                None => complaints.add(need.span(), "a need is the name of a step"),
            }
        }
        needs
    }
}

/// Names are parts of keys in the store and of the names of jobs.
pub(super) fn name_fault(name: &str) -> Option<String> {
    let is_proper = (1..=40).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !is_proper {
        return Some(format!("the name `{name}` is not made of 1 to 40 of a-z, 0-9 and -"));
    }
    RESERVED.contains(&name).then(|| format!("the name `{name}` is reserved; call the step otherwise"))
}

/// A type of input, or a list of them.
fn takes(value: Option<&Spanned<DeValue<'_>>>, complaints: &mut Complaints<'_>) -> Vec<MediaType> {
    let Some(value) = value else { return Vec::new() };
    let all = any_of(&MediaType::ALL);
    let listed: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
        DeValue::String(_) => vec![value],
        DeValue::Array(list) if !list.is_empty() => list.iter().collect(),
        _ => {
            complaints.add(value.span(), format!("`for` is {all}, or a list of them"));
            return Vec::new();
        }
    };
    let mut takes = Vec::new();
    for one in listed {
        let typed = one.get_ref().as_str().unwrap_or_default();
        match MediaType::ALL.into_iter().find(|media| media.as_str() == typed) {
            Some(media) if takes.contains(&media) => {
                complaints.add(one.span(), format!("`{media}` is there twice"));
            }
            Some(media) => takes.push(media),
            None => {
                let near = did_you_mean(typed, &MediaType::ALL.map(MediaType::as_str));
                complaints.add(one.span(), format!("an input is {all}, not `{typed}`{near}"));
            }
        }
    }
    takes
}

/// One of a few words.
fn choice<T>(
    key: &str,
    names: &[&str],
    named: impl Fn(&str) -> Option<T>,
    table: &DeTable<'_>,
    complaints: &mut Complaints<'_>,
) -> Option<T> {
    let value = table.get(key)?;
    let read = value.get_ref().as_str().and_then(named);
    if read.is_none() {
        complaints.add(value.span(), format!("`{key}` is one of \"{}\"", names.join("\", \"")));
    }
    read
}

fn boolean(key: &str, table: &DeTable<'_>, complaints: &mut Complaints<'_>) -> Option<(bool, Range<usize>)> {
    let value = table.get(key)?;
    let read = value.get_ref().as_bool().map(|read| (read, value.span()));
    if read.is_none() {
        complaints.add(value.span(), format!("`{key}` is true or false"));
    }
    read
}

fn number(
    key: &str,
    least: i64,
    most: i64,
    table: &DeTable<'_>,
    complaints: &mut Complaints<'_>,
) -> Option<i64> {
    let value = table.get(key)?;
    let read = value.get_ref().as_integer();
    let read = read.and_then(|digits| i64::from_str_radix(digits.as_str(), digits.radix()).ok());
    let read = read.filter(|number| (least..=most).contains(number));
    if read.is_none() {
        complaints.add(value.span(), format!("`{key}` is a whole number of {least} to {most}"));
    }
    read
}

fn lane(value: Option<&Spanned<DeValue<'_>>>, complaints: &mut Complaints<'_>) -> Option<String> {
    let value = value?;
    let is_proper = |lane: &&str| {
        lane.starts_with(|c: char| c.is_ascii_lowercase())
            && lane.len() <= 40
            && lane.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    let read = value.get_ref().as_str().filter(is_proper);
    if read.is_none() {
        complaints.add(value.span(), "`lane` is a short lower-case word such as \"cpu\", \"io\" or \"net\"");
    }
    read.map(str::to_owned)
}

/// What a step may need, given how the needed ones are.
fn check_needs(all: &[Read], complaints: &mut Complaints<'_>) {
    let names: Vec<&str> = all.iter().map(|step| step.name.as_str()).collect();
    for step in all {
        let mut films = 0;
        for (need, span) in &step.needs {
            let Some(needed) = all.iter().find(|other| other.name == *need) else {
                let others: Vec<&str> = names.iter().copied().filter(|name| *name != step.name).collect();
                complaints
                    .add(span.clone(), format!("no step is called `{need}`{}", did_you_mean(need, &others)));
                continue;
            };
            let name = &step.name;
            if step.enabled && !needed.enabled {
                let message = format!("`{name}` is enabled and needs `{need}`, which is not");
                complaints.add(span.clone(), message);
            }
            if step.required && !needed.required {
                let message = format!(
                    "`{name}` is required and needs `{need}`, which is optional: \
                     make `{need}` required, or `{name}` optional"
                );
                complaints.add(span.clone(), message);
            }
            if let Some(message) = needs_for_less(step, needed) {
                complaints.add(span.clone(), message);
            }
            films += usize::from(needed.kind == Some("hls"));
            if step.kind == Some("mp4") && films == 2 {
                complaints.add(
                    span.clone(),
                    format!("`{name}` takes its film from one step of kind `hls`, not from two"),
                );
            }
        }
        if let (Some("mp4"), 1.., Some(with_at)) = (step.kind, films, &step.with_at) {
            let message = "an mp4 step takes nothing here when it joins the segments of the `hls` step that it needs: \
                           set it there, or leave that step out of `needs`";
            complaints.add(with_at.clone(), message);
        }
    }
}

/// What is done with more types of inputs than a step that it needs would wait for nothing.
fn needs_for_less(step: &Read, needed: &Read) -> Option<String> {
    let takes = |of: &Read| if of.takes.is_empty() { MediaType::ALL.to_vec() } else { of.takes.clone() };
    let (name, need, for_less) = (&step.name, &needed.name, takes(needed));
    let is_covered = takes(step).iter().all(|media| for_less.contains(media));
    let message = || {
        let types: Vec<String> = for_less.iter().map(|media| format!("\"{media}\"")).collect();
        let types = types.join(", ");
        format!(
            "`{name}` needs `{need}`, which is done with {} only: say `for = [{types}]` here too",
            any_of(&for_less)
        )
    };
    (!is_covered).then(message)
}

fn order(all: &[Read], complaints: &mut Complaints<'_>) -> Vec<usize> {
    let number = |name: &String| all.iter().position(|step| step.name == *name);
    let needs: Vec<Vec<usize>> =
        all.iter().map(|step| step.needs.iter().filter_map(|(need, _)| number(need)).collect()).collect();
    sorted(&needs).unwrap_or_else(|circles| {
        for circle in circles {
            let first = &all[circle[0]];
            let next = &all[circle[1 % circle.len()]].name;
            let place = first.needs.iter().find(|(need, _)| need == next).map(|(_, span)| span.clone());
            let names = circle.iter().chain(&circle[..1]).map(|nth| all[*nth].name.as_str());
            let way: Vec<&str> = names.collect();
            complaints.add(
                place.unwrap_or_else(|| first.named_at.clone()),
                format!("steps that need each other never start: {}", way.join(" needs ")),
            );
        }
        Vec::new()
    })
}
