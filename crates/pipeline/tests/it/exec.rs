//! Programs of the user's own: what they are given, what they leave, and what they cannot do.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};
use telecine_media::{Confinement, ImageSpec, ImageVariant, Toolbox};
use telecine_pipeline::records::{FailureRecord, OutputRecord};
use telecine_pipeline::{Does, ExecSpec, Input, Recipes, Step, Submission, submit};
use telecine_queue::{JobFilter, Page, Run, RunId, RunState};

use crate::clips;
use crate::s3_server::S3Server;
use crate::studio::{Studio, hls, recipe, step, trial};
use crate::worker::{Place, Worker};

/// Not the one in `PATH`, which may be a shim of somebody's home.
const PYTHON: &str = "/usr/bin/python3";
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("exec::a_program_beside_the_recipe_leaves_files_and_facts".into(), files_and_facts),
        trial("exec::the_example_of_the_documentation_works".into(), documented_example),
        trial("exec::a_program_reads_what_the_steps_before_it_made".into(), needs_are_readable),
        trial("exec::a_program_reads_the_film_before_it".into(), a_film_is_readable),
        trial("exec::what_a_program_needs_is_fetched_from_a_bucket".into(), needs_are_fetched),
        trial("exec::named_outputs_and_facts_of_the_step_are_told_apart".into(), named_outputs),
        trial("exec::a_program_gets_nowhere_else".into(), nowhere_else),
        trial("exec::the_network_is_open_to_who_asks_for_it".into(), network_for_who_asks),
        trial("exec::what_a_program_leaves_running_is_gone".into(), nothing_runs_on),
        trial("exec::all_processes_of_a_program_die_with_the_worker".into(), all_die_with_the_worker),
        trial("exec::endless_talk_is_cut_off".into(), endless_talk),
        trial("exec::links_and_pipes_are_no_outputs".into(), links_are_no_outputs),
        trial("exec::outputs_are_bounded".into(), outputs_are_bounded),
        trial("exec::an_exit_code_says_whether_to_try_again".into(), exit_codes),
        trial("exec::a_signal_and_a_crash_are_told_apart".into(), signals),
        trial("exec::a_program_that_takes_too_long_is_ended_with_its_children".into(), too_long),
        trial("exec::progress_is_told_and_a_cancelled_program_is_gone".into(), progress_and_cancel),
        trial("exec::a_program_that_is_not_there_is_refused_at_once".into(), not_found),
        trial("exec::without_the_sandbox_programs_run_too".into(), without_the_sandbox),
    ]
}

fn spec(command: &[&str]) -> ExecSpec {
    ExecSpec {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        network: false,
        reads: Vec::new(),
        timeout_ms: 60_000,
        params: BTreeMap::new(),
    }
}

/// A step that is tried once.
fn once(spec: ExecSpec) -> Step {
    Step { attempts: Some(1), ..step("exec", Does::Exec(spec)) }
}

fn sh(script: &str) -> Step {
    once(spec(&["/bin/sh", "-c", script]))
}

fn python(script: &str) -> Step {
    once(spec(&[PYTHON, "-c", script]))
}

fn needing(step: Step, needs: &[&str]) -> Step {
    Step { needs: needs.iter().map(|name| (*name).to_owned()).collect(), ..step }
}

fn image() -> Step {
    let variants = [160].map(ImageVariant::of_width).into();
    step("image", Does::Image(ImageSpec { variants, ..ImageSpec::default() }))
}

fn photo(studio: &Studio) -> PathBuf {
    let file = studio.file("photo.jpg");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=320x240", "-frames:v", "1"], &file);
    file
}

async fn ran(studio: &Studio, steps: Vec<Step>) -> (RunId, Run) {
    let run = studio.submit(&recipe(steps), &photo(studio)).await;
    let ended = studio.ended(&run).await;
    (run, ended)
}

async fn succeeded(studio: &Studio, steps: Vec<Step>) -> Vec<OutputRecord> {
    let (run, ended) = ran(studio, steps).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    studio.outputs(&run).await.into_iter().filter(|output| output.step == "exec").collect()
}

async fn failed(studio: &Studio, steps: Vec<Step>) -> FailureRecord {
    let (run, ended) = ran(studio, steps).await;
    assert_eq!(ended.state, RunState::Failed);
    let outputs = studio.outputs(&run).await;
    assert!(outputs.iter().all(|output| output.step != "exec"), "{outputs:?}");
    studio.failures(&run).await.pop().unwrap()
}

/// What a stored file has in it.
async fn text(studio: &Studio, output: &OutputRecord, path: &str) -> String {
    let file = output.files.iter().find(|file| file.path == path).expect(path);
    let bytes = studio.shop.blobs.get_bytes(&file.key).await.unwrap();
    assert_eq!(bytes.len() as u64, file.bytes);
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn until_gone(pid: u32) {
    let deadline = Instant::now() + PATIENCE;
    while runs(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::yield_now();
    }
}

async fn files_and_facts() {
    let studio = Studio::open().await;
    let folder = studio.file("recipes");
    std::fs::create_dir(&folder).unwrap();
    let script = r#"#!/usr/bin/python3
import json, os, sys
given = json.load(sys.stdin)
assert given == json.load(open("input.json"))
data = open(given["input"]["path"], "rb").read()
assert len(data) == given["input"]["bytes"]
os.mkdir("out/deep")
json.dump(given, open("out/deep/given.json", "w"))
open("out/bytes.txt", "w").write(given["params"]["greeting"])
print("some warning", file=sys.stderr)
print(json.dumps({"facts": {"length": len(data)}}))
"#;
    let program = folder.join("label.py");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text_of_recipe = "[steps.exec]\nkind = \"exec\"\n[steps.exec.with]\ncommand = [\"./label.py\"]\n\
                          params = { greeting = \"hello\" }\n";
    std::fs::write(folder.join("label.toml"), text_of_recipe).unwrap();
    let recipes = Recipes::load(Some(&folder)).unwrap();

    let run = studio.submit(recipes.get("label").unwrap(), &photo(&studio)).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let outputs = studio.outputs(&run).await;
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    let output = &outputs[0];
    assert_eq!(
        (output.name.as_str(), output.kind.as_str(), output.main.as_str()),
        ("exec", "files", "bytes.txt")
    );
    assert_eq!(output.facts["length"], std::fs::metadata(studio.file("photo.jpg")).unwrap().len());
    assert_eq!(text(&studio, output, "bytes.txt").await, "hello");
    let given: Value = serde_json::from_str(&text(&studio, output, "deep/given.json").await).unwrap();
    assert_eq!(given["run"], run.to_string());
    assert_eq!((&given["step"], &given["attempt"], &given["needs"]), (&json!("exec"), &json!(1), &json!({})));
    assert!(
        given["input"]["probe"].is_object() && given["input"]["sha256"].as_str().unwrap().len() == 64,
        "{given}"
    );
    studio.close().await;
}

async fn documented_example() {
    let documentation = include_str!("../../../../docs/exec.md");
    let block = |language: &str| {
        let (_, rest) = documentation.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let studio = Studio::open().await;
    let folder = studio.file("recipes");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("labelled.toml"), block("toml")).unwrap();
    std::fs::write(folder.join("label.py"), block("python")).unwrap();
    std::fs::set_permissions(folder.join("label.py"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let recipes = Recipes::load(Some(&folder)).unwrap();

    let run = studio.submit(recipes.get("labelled").unwrap(), &photo(&studio)).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let outputs = studio.outputs(&run).await;
    let named = |name: &str| outputs.iter().find(|output| output.name == name).unwrap();
    let labels: Value = serde_json::from_str(&text(&studio, named("labels"), "labels.json").await).unwrap();
    assert_eq!(labels["language"], "en");
    assert_eq!(labels["labels"].as_array().unwrap().len(), named("image").files.len());
    assert_eq!(named("label").facts["count"], named("image").files.len());
    studio.close().await;
}

const READS_NEEDS: &str = r#"
import hashlib, json, sys
given = json.load(sys.stdin)
read = 0
for output in given["needs"]["image"]["outputs"]:
    assert output["main"] in [file["path"] for file in output["files"]]
    for file in output["files"]:
        data = open(file["path"], "rb").read()
        assert len(data) == file["bytes"] and hashlib.sha256(data).hexdigest() == file["sha256"]
        read += 1
        try:
            open(file["path"], "ab")
            sys.exit("it could be written to")
        except PermissionError:
            pass
data = open(given["input"]["path"], "rb").read()
assert hashlib.sha256(data).hexdigest() == given["input"]["sha256"]
json.dump({"facts": {"read": read, "thumbhash": output["facts"]["thumbhash"]}}, sys.stdout)
"#;

async fn needs_are_readable() {
    let studio = Studio::open().await;

    let outputs = succeeded(&studio, vec![image(), needing(python(READS_NEEDS), &["image"])]).await;

    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].facts["read"], 2, "{outputs:?}");
    assert!(outputs[0].facts["thumbhash"].is_string(), "{outputs:?}");
    studio.close().await;
}

async fn needs_are_fetched() {
    let server = S3Server::start();
    let studio = Studio::with(server.open("store"), |_| {}).await;

    let outputs = succeeded(&studio, vec![image(), needing(python(READS_NEEDS), &["image"])]).await;

    assert_eq!(outputs[0].facts["read"], 2, "{outputs:?}");
    assert!(text(&studio, &outputs[0], "exec.facts.json").await.contains("thumbhash"));
    studio.close().await;
}

async fn a_film_is_readable() {
    let script = r#"
import json, os, sys
film = json.load(sys.stdin)["needs"]["hls"]["outputs"][0]
folder, read = os.path.dirname(film["main"]), 0
for line in open(film["main"]):
    if line.strip() and not line.startswith('#'):
        rung = os.path.join(folder, line.strip())
        for part in open(rung):
            if part.strip() and not part.startswith('#'):
                read += len(open(os.path.join(os.path.dirname(rung), part.strip()), "rb").read()) > 0
json.dump({"facts": {"segments": read}}, sys.stdout)
"#;
    let studio = Studio::open().await;
    let file = studio.file("film.mp4");
    clips::film(3, &file);

    let run = studio.submit(&recipe(vec![hls(), needing(python(script), &["hls"])]), &file).await;
    let ended = studio.ended(&run).await;

    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let outputs = studio.outputs(&run).await;
    let told = outputs.iter().find(|output| output.step == "exec").unwrap();
    assert!(told.facts["segments"].as_u64().unwrap() >= 6, "{told:?}");
    studio.close().await;
}

async fn named_outputs() {
    let script = r#"
mkdir out/b; echo one >out/a.txt; echo two >out/b/c.txt; echo unnamed >out/d.txt
echo '{"outputs": [{"name": "first", "kind": "note", "files": ["a.txt"], "facts": {"n": 1}},
                   {"name": "second", "files": ["b/c.txt"]}], "facts": {"all": true}}'"#;
    let studio = Studio::open().await;

    let mut outputs = succeeded(&studio, vec![sh(script)]).await;

    outputs.sort_by(|a, b| a.name.cmp(&b.name));
    let told: Vec<_> =
        outputs.iter().map(|it| (it.name.as_str(), it.kind.as_str(), it.main.as_str())).collect();
    let expected =
        [("exec", "facts", "exec.facts.json"), ("first", "note", "a.txt"), ("second", "files", "b/c.txt")];
    assert_eq!(told, expected);
    assert_eq!((&outputs[0].facts, &outputs[1].facts), (&json!({ "all": true }), &json!({ "n": 1 })));
    assert_eq!(text(&studio, &outputs[2], "b/c.txt").await, "two\n");
    let keys = studio.shop.blobs.list("_").await.unwrap();
    assert!(!keys.iter().any(|key| key.ends_with("d.txt")), "{keys:?}");
    studio.close().await;
}

/// What nobody may reach.
struct Outside {
    folder: tempfile::TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
}

impl Outside {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        Self { folder, tcp, udp, unix }
    }

    fn escape(&self, network: bool) -> Step {
        let params = json!({
            "outside": self.folder.path(),
            "tcp": self.tcp.local_addr().unwrap().port(),
            "udp": self.udp.local_addr().unwrap().port(),
            "worker": std::process::id(),
        });
        let params = serde_json::from_value(params).unwrap();
        once(ExecSpec { network, params, ..spec(&[PYTHON, "-c", include_str!("exec/escape.py")]) })
    }
}

async fn nowhere_else() {
    let studio = Studio::open().await;
    let outside = Outside::new();
    let secret = outside.folder.path().join("secret");
    let before = std::fs::metadata(&secret).unwrap();

    let outputs = succeeded(&studio, vec![outside.escape(false)]).await;

    let seen = outputs[0].facts.as_object().unwrap();
    let variables = seen["variables"].clone();
    assert_eq!(variables, json!(["HOME", "LANG", "PATH", "TMPDIR"]));
    let got_out: Vec<_> = seen
        .iter()
        .filter(|(name, said)| *name != "variables" && !is_refusal(said.as_str().unwrap()))
        // It reaches the members of its own group, and nobody else.
        .filter(|(name, _)| *name != "stop everybody")
        .collect();
    assert!(got_out.is_empty(), "{got_out:?}");
    assert_eq!(seen.len(), 31, "{seen:?}");
    let after = std::fs::metadata(&secret).unwrap();
    assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert!(!outside.folder.path().join("left").exists());
    assert!(outside.tcp.accept().is_err() && outside.unix.accept().is_err());
    assert!(outside.udp.recv(&mut [0; 8]).is_err());
    studio.close().await;
}

fn is_refusal(said: &str) -> bool {
    ["Permission denied", "Operation not permitted", "Invalid cross-device link", "Function not implemented"]
        .iter()
        .any(|refusal| said.contains(refusal))
}

async fn network_for_who_asks() {
    let studio = Studio::open().await;
    let outside = Outside::new();

    let outputs = succeeded(&studio, vec![outside.escape(true)]).await;

    let seen = outputs[0].facts.as_object().unwrap();
    let is_open = |name: &str| seen[name] == "open";
    assert!(is_open("tcp") && is_open("udp"), "{seen:?}");
    assert!(outside.tcp.accept().is_ok() && outside.udp.recv(&mut [0; 8]).is_ok());
    for name in ["read", "read users", "write", "unix", "unix from a pair", "signal the worker", "trace"] {
        assert!(is_refusal(seen[name].as_str().unwrap()), "{name}: {}", seen[name]);
    }
    assert!(outside.unix.accept().is_err());

    let resolved = "cat /etc/resolv.conf >out/servers && cat /etc/hosts >out/hosts";
    let with_network = once(ExecSpec { network: true, ..spec(&["/bin/sh", "-c", resolved]) });
    succeeded(&studio, vec![with_network]).await;
    let failure = failed(&studio, vec![sh(resolved)]).await;
    assert!(failure.stderr_tail.contains("Permission denied"), "{failure:?}");
    studio.close().await;
}

async fn nothing_runs_on() {
    let studio = Studio::open().await;
    let script = "sleep 1000 & echo $! >out/child; (nohup sleep 1000 >/dev/null 2>&1 & echo $! >out/orphan)";

    let outputs = succeeded(&studio, vec![sh(script)]).await;

    for name in ["child", "orphan"] {
        until_gone(text(&studio, &outputs[0], name).await.trim().parse().unwrap());
    }
    studio.close().await;
}

async fn all_die_with_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("inputs")).unwrap();
    let place = Place {
        database: format!("sqlite:{}", at("queue.db").display()),
        store: at("store").display().to_string(),
        variables: BTreeMap::new(),
        scratch: at("scratch"),
        inputs: at("inputs"),
        log: at("log"),
    };
    let photo = at("inputs").join("photo.jpg");
    clips::ffmpeg(&["-f", "lavfi", "-i", "testsrc2=size=320x240", "-frames:v", "1"], &photo);
    let queue: Arc<dyn telecine_queue::Queue> = telecine_queue::open(&place.database).await.unwrap();
    let worker = Worker::start(&place);
    let script = "sleep 1000 & echo $! >out/.child; echo $$ >out/.leader; mv out/.child out/.leader .; wait";
    submit(&*queue, Submission::new(recipe(vec![sh(script)]), Input::Path(photo))).await.unwrap();
    let pid = |name: &str| -> Option<u32> {
        let found =
            files_below(&place.scratch).into_iter().find(|file| file.ends_with(format!("work/{name}")))?;
        std::fs::read_to_string(found).ok()?.trim().parse().ok()
    };
    let deadline = Instant::now() + PATIENCE;
    let pids = loop {
        if let (Some(child), Some(leader)) = (pid(".child"), pid(".leader")) {
            break [child, leader];
        }
        assert!(Instant::now() < deadline, "the program was not started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(pids.iter().all(|pid| runs(*pid)));

    worker.kill();

    pids.into_iter().for_each(until_gone);
    queue.close().await;
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

async fn endless_talk() {
    let studio = Studio::open().await;

    let on_stdout = failed(&studio, vec![sh("yes 0123456789")]).await;
    let slow = ExecSpec { timeout_ms: 1_500, ..spec(&["/bin/sh", "-c", "yes `seq 100` >&2"]) };
    let on_stderr = failed(&studio, vec![once(slow)]).await;

    assert_eq!(
        (on_stdout.code.as_str(), on_stdout.retryable),
        ("exec_answer_invalid", false),
        "{on_stdout:?}"
    );
    assert_eq!((on_stderr.code.as_str(), on_stderr.retryable), ("time_limit", true), "{on_stderr:?}");
    assert!((10..40_000).contains(&on_stderr.stderr_tail.len()), "{}", on_stderr.stderr_tail.len());
    studio.close().await;
}

async fn links_are_no_outputs() {
    let studio = Studio::open().await;
    let listed = r#"echo '{"outputs": [{"name": "x", "files": ["x"]}]}'"#;
    let scripts = [
        "ln -s /etc/passwd out/x".to_owned(),
        "echo x >out/y; ln -s y out/x".to_owned(),
        "mkfifo out/x".to_owned(),
        format!("ln -s ../input.json out/x; {listed}"),
        format!("mkdir d; echo x >d/x; rmdir out; ln -s d out; {listed}"),
        "rmdir out; ln -s /root out".to_owned(),
        "rmdir out; ln -s /etc out; echo '{\"outputs\": [{\"name\": \"x\", \"files\": [\"passwd\"]}]}'"
            .to_owned(),
        format!("mkfifo out/x; {listed}"),
        format!("mkdir out/x; {listed}"),
        listed.to_owned(),
        r#"echo '{"outputs": [{"name": "x", "files": ["../input.json"]}]}'"#.to_owned(),
        r#"echo x >'out/a b'"#.to_owned(),
    ];
    for script in scripts {
        let failure = failed(&studio, vec![sh(&script)]).await;
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            ("exec_output_invalid", false),
            "{script}: {failure:?}"
        );
    }
    studio.close().await;
}

async fn outputs_are_bounded() {
    let studio = Studio::tuned(|shop| shop.limits.file_bytes = 1 << 20).await;
    for script in [
        "exec head -c 2000000 /dev/zero >out/large",
        "head -c 700000 /dev/zero >out/a; head -c 700000 /dev/zero >out/b",
    ] {
        let failure = failed(&studio, vec![sh(script)]).await;
        assert_eq!(failure.code, "exec_output_too_large", "{failure:?}");
    }
    let many = "cd out; for n in $(seq 1100); do : >$n; done";
    assert_eq!(failed(&studio, vec![sh(many)]).await.code, "exec_answer_invalid");
    // As long as an answer may be: its facts are kept whole.
    let wordy = r#"print('{"facts": {"x": "' + 'x' * 262000 + '"}}')"#;
    succeeded(&studio, vec![python(wordy)]).await;
    studio.close().await;
}

async fn exit_codes() {
    let studio = Studio::open().await;

    let five_times = Step { attempts: Some(5), ..sh("echo 'no such label' >&2; exit 1") };
    let for_good = failed(&studio, vec![five_times]).await;
    assert_eq!((for_good.code.as_str(), for_good.attempt, for_good.retryable), ("exec_failed", 1, false));
    assert!(for_good.message.contains("exit code 1"), "{for_good:?}");
    assert!(
        for_good.stderr_tail.contains("no such label") && for_good.hint.contains("stderr"),
        "{for_good:?}"
    );

    let again = "ls -A >>seen; ls -A out >>seen; grep -q '\"attempt\":2' input.json || { : >out/left; exit 75; }; mv seen out";
    let (run, ended) = ran(&studio, vec![Step { attempts: Some(2), ..sh(again) }]).await;
    assert_eq!(ended.state, RunState::Succeeded, "{:?}", studio.failures(&run).await);
    let failure = studio.failures(&run).await.pop().unwrap();
    assert_eq!((failure.code.as_str(), failure.attempt, failure.retryable), ("exec_failed", 1, true));
    let outputs = studio.outputs(&run).await;
    assert_eq!(text(&studio, &outputs[0], "seen").await, "input.json\nout\nseen\n");
    studio.close().await;
}

async fn signals() {
    let studio = Studio::open().await;
    for (script, code) in [
        ("kill -KILL $$", "killed"),
        ("kill -SEGV $$", "tool_crashed"),
        ("sh -c 'kill -KILL $$'", "killed"),
        ("echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$", "out_of_memory"),
        ("exec /nowhere/program", "exec_failed"),
    ] {
        let failure = failed(&studio, vec![sh(script)]).await;
        assert_eq!((failure.code.as_str(), failure.retryable), (code, code != "exec_failed"), "{failure:?}");
    }
    studio.close().await;
}

async fn too_long() {
    let studio = Studio::open().await;
    let script = "sleep 1000 & echo \"child $!\" >&2; wait";

    let step = once(ExecSpec { timeout_ms: 1_500, ..spec(&["/bin/sh", "-c", script]) });
    let failure = failed(&studio, vec![step]).await;

    assert_eq!((failure.code.as_str(), failure.retryable), ("time_limit", true), "{failure:?}");
    let child = failure.stderr_tail.trim().strip_prefix("child ").unwrap();
    until_gone(child.parse().unwrap());
    studio.close().await;
}

async fn progress_and_cancel() {
    let studio = Studio::open().await;
    let script = "echo $$ >leader; echo 'progress: 0.42' >&2; sleep 1000";
    let run = studio.submit(&recipe(vec![sh(script)]), &photo(&studio)).await;
    let filter = JobFilter { run: Some(run.clone()), ..JobFilter::default() };
    studio
        .until(async || {
            let jobs = studio.queue.list(&filter, Page::first(10)).await.unwrap().data;
            jobs.iter().any(|job| job.progress.is_some_and(|progress| (progress - 0.42).abs() < 0.001))
        })
        .await;
    let leader = files_below(&studio.file("scratch")).into_iter().find(|file| file.ends_with("work/leader"));
    let leader = std::fs::read_to_string(leader.unwrap()).unwrap().trim().parse().unwrap();

    studio.queue.cancel_run(&run).await.unwrap();

    assert_eq!(studio.ended(&run).await.state, RunState::Cancelled);
    until_gone(leader);
    studio
        .until(async || !files_below(&studio.file("scratch")).iter().any(|it| it.ends_with("work/leader")))
        .await;
    studio.close().await;
}

async fn not_found() {
    let studio = Studio::open().await;
    let file = studio.file("not-executable");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    for program in ["no-such-program-anywhere", "/nowhere/label", "bin/label", file.to_str().unwrap()] {
        let failure = failed(&studio, vec![image(), once(spec(&[program]))]).await;
        assert_eq!(
            (failure.step.as_str(), failure.code.as_str()),
            ("ingest", "exec_not_found"),
            "{failure:?}"
        );
        assert!(failure.message.contains(program) && failure.attempt == 1, "{failure:?}");
    }

    let optional = Step { required: false, ..once(spec(&["/nowhere/label"])) };
    let (run, ended) = ran(&studio, vec![image(), optional]).await;
    assert!(matches!(ended.state, RunState::Succeeded | RunState::Partial), "{ended:?}");
    assert_eq!(studio.warnings(&run).await[0].code, "exec_not_found");
    studio.close().await;
}

async fn without_the_sandbox() {
    let studio = Studio::with_programs(Toolbox::from_path(Confinement::None)).await;

    let outputs = succeeded(&studio, vec![sh("pwd >out/where; env | sort >out/variables")]).await;

    assert!(text(&studio, &outputs[0], "where").await.trim().ends_with("/work"));
    let variables = text(&studio, &outputs[0], "variables").await;
    let names: Vec<&str> = variables.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["HOME", "LANG", "PATH", "PWD", "TMPDIR"]);
    let failure = failed(&studio, vec![sh("exit 3")]).await;
    assert_eq!((failure.code.as_str(), failure.retryable), ("exec_failed", false));
    studio.close().await;
}
