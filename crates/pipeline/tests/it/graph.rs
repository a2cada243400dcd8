//! The jobs that recipes come to for typical inputs, compared with files that a person can read.
//! `TELECINE_RENEW_GOLDEN=1` writes them anew.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use std::sync::OnceLock;

use libtest_mimic::Trial;
use telecine_media::{
    AudioStream, Capabilities, Confinement, Format, Probe, Rational, Rotation, Size, Toolbox, VideoStream,
};
use telecine_pipeline::{CannotPlan, Planned, Recipe, Recipes, parse_params};
use telecine_queue::{Needed, NewJob};
use tokio_util::sync::CancellationToken;

pub(crate) fn trials() -> Vec<Trial> {
    let promises: [(&str, fn()); 12] = [
        (
            "built_in_recipes_have_the_jobs_of_their_golden_files",
            built_in_recipes_have_the_jobs_of_their_golden_files,
        ),
        ("what_a_viewer_waits_for_comes_first", what_a_viewer_waits_for_comes_first),
        (
            "a_film_without_sound_is_playable_with_its_first_range",
            a_film_without_sound_is_playable_with_its_first_range,
        ),
        ("pictures_come_early_and_keep_no_viewer_waiting", pictures_come_early_and_keep_no_viewer_waiting),
        ("every_job_stands_behind_what_it_needs", every_job_stands_behind_what_it_needs),
        ("costs_grow_with_the_work", costs_grow_with_the_work),
        ("a_step_waits_for_all_of_what_it_needs", a_step_waits_for_all_of_what_it_needs),
        (
            "an_input_without_pictures_leaves_optional_ones_out",
            an_input_without_pictures_leaves_optional_ones_out,
        ),
        ("what_needs_a_step_that_was_left_out_is_left_out", what_needs_a_step_that_was_left_out_is_left_out),
        (
            "a_step_for_other_inputs_is_left_out_without_a_word",
            a_step_for_other_inputs_is_left_out_without_a_word,
        ),
        ("an_input_that_no_step_is_for_is_refused", an_input_that_no_step_is_for_is_refused),
        (
            "a_required_step_that_the_input_cannot_give_is_refused",
            a_required_step_that_the_input_cannot_give_is_refused,
        ),
    ];
    let trial = |(name, promise): (&str, fn())| {
        Trial::test(format!("graph::{name}"), move || {
            promise();
            Ok(())
        })
    };
    promises.into_iter().map(trial).collect()
}

fn rational(text: &str) -> Rational {
    text.parse().unwrap()
}

/// Of the programs that are installed.
fn capabilities() -> Capabilities {
    static FOUND: OnceLock<Capabilities> = OnceLock::new();
    let detect = || {
        let toolbox = Toolbox::from_path(Confinement::launcher());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Capabilities::detect(&toolbox, &CancellationToken::new())).unwrap()
    };
    FOUND.get_or_init(detect).clone()
}

/// 1080p at 30 frames a second, as a camera writes it.
fn camera(seconds: u64) -> VideoStream {
    VideoStream {
        index: 0,
        codec: "h264".into(),
        profile: Some("High".into()),
        level: Some(41),
        width: 1920,
        height: 1080,
        sample_aspect: Rational::ONE,
        rotation: Rotation::Upright,
        display: Size { width: 1920, height: 1080 },
        pixel_format: Some("yuv420p".into()),
        bit_depth: 8,
        colour_primaries: Some("bt709".into()),
        colour_transfer: Some("bt709".into()),
        colour_matrix: Some("bt709".into()),
        colour_range: None,
        hdr: None,
        avg_fps: Some(rational("30/1")),
        base_fps: Some(rational("30/1")),
        is_vfr: false,
        is_interlaced: false,
        bit_rate: Some(17_000_000),
        start_us: 0,
        duration_us: Some(seconds * 1_000_000),
        frame_count: Some(seconds * 30),
        time_base: rational("1/15360"),
        has_b_frames: true,
        is_default: true,
        is_attached_picture: false,
    }
}

fn stereo(seconds: u64) -> AudioStream {
    AudioStream {
        index: 1,
        codec: "aac".into(),
        profile: Some("LC".into()),
        sample_rate: 48_000,
        channels: 2,
        layout: Some("stereo".into()),
        bit_rate: Some(128_000),
        language: None,
        start_us: 0,
        duration_us: Some(seconds * 1_000_000),
        time_base: rational("1/48000"),
        is_default: true,
    }
}

fn file(format: Format, seconds: u64, video: Option<VideoStream>, audio: Option<AudioStream>) -> Probe {
    Probe {
        format,
        file_bytes: 2_000_000 * seconds,
        duration_us: Some(seconds * 1_000_000),
        start_us: 0,
        bit_rate: Some(17_128_000),
        subtitle_count: 0,
        other_count: 0,
        stream_count: video.iter().count() + audio.iter().count(),
        video_streams: video.into_iter().collect(),
        audio_streams: audio.into_iter().collect(),
        chapters: Vec::new(),
    }
}

fn film(seconds: u64) -> Probe {
    file(Format::Mp4, seconds, Some(camera(seconds)), Some(stereo(seconds)))
}

fn silent_film(seconds: u64) -> Probe {
    file(Format::Mp4, seconds, Some(camera(seconds)), None)
}

fn sound(seconds: u64) -> Probe {
    file(Format::Mp3, seconds, None, Some(stereo(seconds)))
}

/// Of so few bits that the recipe `mp4` has nothing to change.
fn small_film(seconds: u64) -> Probe {
    let video = VideoStream { bit_rate: Some(3_000_000), ..camera(seconds) };
    file(Format::Mp4, seconds, Some(video), Some(stereo(seconds)))
}

fn picture() -> Probe {
    let video = VideoStream { codec: "mjpeg".into(), frame_count: Some(1), duration_us: None, ..camera(0) };
    Probe { duration_us: None, ..file(Format::Jpeg, 1, Some(video), None) }
}

fn built_in(name: &str, settings: &[&str]) -> Recipe {
    let recipes = Recipes::built_in();
    recipes.get(name).unwrap().with_params(&parse_params(settings).unwrap()).unwrap()
}

fn parsed(text: &str) -> Recipe {
    Recipe::parse("test", "test.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn planned(recipe: &Recipe, probe: &Probe) -> Planned {
    Planned::of(recipe, probe.format, Some(probe), &capabilities()).unwrap()
}

fn jobs(recipe: &Recipe, probe: &Probe) -> Vec<NewJob> {
    planned(recipe, probe).jobs(recipe, Some(probe), 50)
}

fn needs(job: &NewJob) -> Vec<usize> {
    let nth = |on: Needed| match on {
        Needed::Nth(nth) => nth,
        Needed::Job(_) => panic!("no job of another push is needed: {job:?}"),
    };
    job.needs.iter().map(|need| nth(need.on)).collect()
}

fn step(job: &NewJob) -> &str {
    job.step.as_deref().unwrap()
}

/// The steps that a job needs, each once.
fn needed_steps<'a>(jobs: &'a [NewJob], job: &NewJob) -> BTreeSet<&'a str> {
    needs(job).into_iter().map(|nth| step(&jobs[nth])).collect()
}

fn told(recipe: &Recipe, planned: &Planned, jobs: &[NewJob]) -> String {
    let mut text = format!("recipe {}\n", recipe.name);
    for warning in &planned.warnings {
        writeln!(text, "warning {}: {} ({})", warning.step, warning.message, warning.code).unwrap();
    }
    writeln!(
        text,
        "\n{:<14} {:<13} {:<5} {:<9} {:>7} {:<8} needs",
        "step", "kind", "lane", "", "cost ms", "segments"
    )
    .unwrap();
    for job in jobs {
        let range = &job.payload["range"];
        let range =
            if range.is_null() { String::new() } else { format!("{}..{}", range["start"], range["end"]) };
        let required = if job.required { "required" } else { "optional" };
        let (NewJob { kind, lane, cost_ms, .. }, step) = (job, step(job));
        let needs = needed_steps(jobs, job).into_iter().collect::<Vec<_>>().join(" ");
        let line = format!("{step:<14} {kind:<13} {lane:<5} {required:<9} {cost_ms:>7} {range:<8} {needs}");
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text
}

fn built_in_recipes_have_the_jobs_of_their_golden_files() {
    let cases = [
        ("web-video-1080p", built_in("web-video", &["mp4.enabled=true"]), film(60)),
        ("web-video-silent", built_in("web-video", &[]), silent_film(60)),
        ("web-video-sound-alone", built_in("web-video", &[]), sound(60)),
        ("mp4-1080p", built_in("mp4", &[]), film(60)),
        ("mp4-copy", built_in("mp4", &[]), small_film(60)),
        ("vertical-1080p", built_in("vertical", &[]), film(60)),
        ("audio-sound-alone", built_in("audio", &[]), sound(60)),
        ("image-picture", built_in("image", &[]), picture()),
        ("thumbnail-1080p", built_in("thumbnail", &[]), film(60)),
        ("optimize-1080p", built_in("optimize", &[]), film(60)),
        ("optimize-picture", built_in("optimize", &[]), picture()),
    ];
    for (name, recipe, probe) in cases {
        let planned = planned(&recipe, &probe);
        let told = told(&recipe, &planned, &planned.jobs(&recipe, Some(&probe), 50));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
        if std::env::var_os("TELECINE_RENEW_GOLDEN").is_some() {
            std::fs::write(&path, &told).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(told, golden, "{name} has other jobs than in {}", path.display());
    }
}

fn what_a_viewer_waits_for_comes_first() {
    for seconds in [10, 60, 7_200] {
        let jobs = jobs(&built_in("web-video", &[]), &film(seconds));

        let first: Vec<&str> = jobs.iter().take(3).map(step).collect();
        assert_eq!(first, ["hls", "hls.audio", "hls.playable"], "{seconds} s");
        assert_eq!(jobs[0].payload["range"]["end"], 1, "the first range is one segment");
        assert_eq!(needs(&jobs[2]), [0, 1]);
        assert!(!jobs[2].required, "a run does not fail because nobody could be told");
    }
}

fn a_film_without_sound_is_playable_with_its_first_range() {
    let jobs = jobs(&built_in("web-video", &[]), &silent_film(60));

    let playable = jobs.iter().find(|job| step(job) == "hls.playable").unwrap();
    assert_eq!(needs(playable), [0]);
    assert_eq!(jobs.iter().filter(|job| job.kind == "encode_audio").count(), 0);
}

/// What of the film is encoded before the pictures are begun plays for as long as they take.
fn pictures_come_early_and_keep_no_viewer_waiting() {
    for seconds in [10, 60, 600, 7_200] {
        let jobs = jobs(&built_in("web-video", &[]), &film(seconds));

        let nth = jobs.iter().position(|job| job.kind == "pictures").unwrap();
        let segments: u64 = jobs[..nth]
            .iter()
            .filter(|job| job.kind == "encode_range")
            .map(|job| {
                job.payload["range"]["end"].as_u64().unwrap()
                    - job.payload["range"]["start"].as_u64().unwrap()
            })
            .sum();
        let plays_ms = segments * 4_000;
        assert!(plays_ms >= u64::from(jobs[nth].cost_ms).min(seconds * 1_000), "{seconds} s: {plays_ms}");
        let before_ms: u64 = jobs[..nth].iter().map(|job| u64::from(job.cost_ms)).sum();
        let all_ms: u64 = jobs.iter().map(|job| u64::from(job.cost_ms)).sum();
        assert!(
            seconds < 600 || before_ms < all_ms / 2,
            "{seconds} s: {before_ms} of {all_ms} ms come first"
        );
        assert!(!jobs[nth].required && jobs[nth].needs.is_empty());
    }
}

fn every_job_stands_behind_what_it_needs() {
    let all = "[steps.hls]\nkind = \"hls\"\nneeds = [\"check\"]\n[steps.mp4]\nkind = \"mp4\"\nneeds = [\"hls\"]\n\
               [steps.own]\nkind = \"mp4\"\n[steps.check]\nkind = \"exec\"\nwith.command = [\"sh\"]\n\
               [steps.pictures]\nkind = \"pictures\"\n[steps.audio]\nkind = \"audio\"\nneeds = [\"mp4\"]\n";
    for recipe in [built_in("web-video", &["mp4.enabled=true"]), built_in("vertical", &[]), parsed(all)] {
        for probe in [film(60), small_film(60), film(7_200)] {
            let jobs = jobs(&recipe, &probe);
            for (nth, job) in jobs.iter().enumerate() {
                assert!(needs(job).iter().all(|needed| *needed < nth), "{}: {job:?}", recipe.name);
            }
        }
    }
}

fn costs_grow_with_the_work() {
    let total = |recipe: &Recipe, probe: &Probe| -> u64 {
        jobs(recipe, probe).iter().map(|job| u64::from(job.cost_ms)).sum()
    };
    let web = built_in("web-video", &[]);

    assert!(total(&web, &film(600)) > 9 * total(&web, &film(60)));
    assert!(
        total(&built_in("web-video", &["hls.ladder.heights=[240]"]), &film(60)) < total(&web, &film(60)) / 3
    );
    assert!(total(&built_in("web-video", &["hls.codec=h265"]), &film(60)) > 3 * total(&web, &film(60)));
    assert!(total(&built_in("mp4", &[]), &small_film(60)) < total(&built_in("mp4", &[]), &film(60)) / 5);
    let ranges: Vec<u32> = jobs(&web, &film(7_200))
        .iter()
        .filter(|job| job.kind == "encode_range")
        .map(|job| job.cost_ms)
        .collect();
    assert!(
        ranges[0] < ranges[1] && ranges.iter().skip(5).take(50).all(|cost| *cost == ranges[5]),
        "{ranges:?}"
    );
}

fn a_step_waits_for_all_of_what_it_needs() {
    let recipe = parsed(
        "[steps.check]\nkind = \"exec\"\nwith.command = [\"/bin/sh\"]\nlane = \"net\"\nattempts = 2\npriority = 90\n\
         [steps.hls]\nkind = \"hls\"\nneeds = [\"check\"]\n\
         [steps.mp4]\nkind = \"mp4\"\nneeds = [\"hls\"]\n\
         [steps.tell]\nkind = \"exec\"\nneeds = [\"mp4\", \"hls\"]\nwith.command = [\"/bin/sh\"]\n",
    );

    let jobs = jobs(&recipe, &film(60));

    let of = |name: &'static str| jobs.iter().filter(move |job| step(job) == name);
    assert!(
        of("hls").chain(of("hls.audio")).all(|job| needed_steps(&jobs, job) == BTreeSet::from(["check"]))
    );
    let package = of("hls.package").next().unwrap();
    assert_eq!(needed_steps(&jobs, package), BTreeSet::from(["hls", "hls.audio", "check"]));
    assert_eq!(needs(package).len(), of("hls").count() + 2, "every range is waited for");
    assert_eq!(needed_steps(&jobs, of("mp4").next().unwrap()), BTreeSet::from(["hls.package"]));
    assert_eq!(needed_steps(&jobs, of("tell").next().unwrap()), BTreeSet::from(["hls.package", "mp4"]));
    let check = of("check").next().unwrap();
    assert_eq!((check.lane.as_str(), check.max_attempts, check.priority), ("net", 2, 90));
}

fn an_input_without_pictures_leaves_optional_ones_out() {
    let recipe = built_in("web-video", &[]);

    let planned = planned(&recipe, &sound(60));

    assert_eq!(planned.left_out, ["pictures"]);
    let warning = &planned.warnings[0];
    assert_eq!((warning.step.as_str(), warning.code.as_str()), ("pictures", "input_no_such_stream"));
    assert!(jobs(&recipe, &sound(60)).iter().all(|job| job.kind != "pictures"));
}

fn what_needs_a_step_that_was_left_out_is_left_out() {
    let recipe = parsed(
        "[steps.hls]\nkind = \"hls\"\n[steps.stills]\nkind = \"pictures\"\n\
         [steps.tags]\nkind = \"exec\"\nneeds = [\"stills\"]\nrequired = false\nwith.command = [\"sh\"]\n",
    );

    let planned = planned(&recipe, &sound(60));

    assert_eq!(planned.left_out, ["stills", "tags"]);
    let kinds: BTreeSet<String> = jobs(&recipe, &sound(60)).into_iter().map(|job| job.kind).collect();
    assert_eq!(kinds, ["conclude", "encode_audio", "package", "playable"].map(String::from).into());
}

fn a_required_step_that_the_input_cannot_give_is_refused() {
    for (recipe, probe, refused) in [
        ("audio", silent_film(60), "audio"),
        ("mp4", sound(60), "mp4"),
        ("thumbnail", sound(60), "pictures"),
        ("thumbnail", picture(), "pictures"),
        ("image", film(60), "image"),
        ("web-video", picture(), "hls"),
    ] {
        let recipe = built_in(recipe, &[]);
        let error = Planned::of(&recipe, probe.format, Some(&probe), &capabilities()).unwrap_err();
        let CannotPlan::Step { step, source } = error else { panic!("{error}") };
        assert_eq!((step.as_str(), source.code()), (refused, "input_no_such_stream"), "{}", recipe.name);
    }
}

fn a_step_for_other_inputs_is_left_out_without_a_word() {
    for (input, done) in [(film(60), ["hls", "poster", "video"]), (picture(), ["image", "thumb", ""])] {
        let planned = planned(&built_in("optimize", &[]), &input);

        assert!(planned.warnings.is_empty(), "{:?}", planned.warnings);
        assert!(done.iter().all(|step| !planned.left_out.contains(&(*step).to_owned())), "{planned:?}");
        assert_eq!(planned.left_out.len() + done.iter().filter(|step| !step.is_empty()).count(), 5);
    }
}

fn an_input_that_no_step_is_for_is_refused() {
    let (recipe, input) = (built_in("optimize", &[]), sound(60));

    let error = Planned::of(&recipe, input.format, Some(&input), &capabilities()).unwrap_err();

    assert_eq!(error.to_string(), "the recipe `optimize` takes image or video, and the input is audio");
}
