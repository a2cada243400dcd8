//! Every way out that a program could think of, tried by a program that thinks of nothing else.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use telecine_media::{MediaError, Output, Program, Tool, ToolLimits, sandbox};
use tokio_util::sync::CancellationToken;

use super::{TESTBED, confinement, toolbox};
use crate::canary::Canary;

/// A process outside, of the same user, that may not notice anything.
struct Bystander(Child);

impl Bystander {
    /// `cat` ends with its stdin, so it cannot stay behind.
    fn new() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn is_well(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hostile program as a tool. The program is `vips` because its command line gets no arguments of ours.
pub(super) fn hostile(attempt: &str, argument: &str, scratch: &Path) -> Tool {
    let toolbox = toolbox().with(Program::Vips, TESTBED);
    let tool = toolbox.tool(Program::Vips, "escape").unwrap();
    let limits = ToolLimits { wall: Duration::from_secs(120), ..ToolLimits::default() };
    tool.args(["escape", attempt, argument]).scratch(scratch).limits(limits)
}

/// What the attempt met: an error number's name, `open`, or `killed` when the kernel ended the program for it.
async fn met(tool: Tool) -> String {
    let tool = tool.stdout(Output::Capture { max_bytes: 4096 });
    match tool.start(&CancellationToken::new()).unwrap().finish().await {
        Ok(finished) => String::from_utf8(finished.stdout).unwrap(),
        Err(error @ MediaError::BadInput { .. }) if error.code() == "input_hostile" => "killed".into(),
        Err(error) => panic!("{error} {}", error.stderr_tail()),
    }
}

/// Tries each in a process of its own, and tells of all that met something else than expected.
pub(super) async fn all_meet(scratch: &Path, attempts: &[(&str, &str, &str)]) {
    let mut wrong = Vec::new();
    for (attempt, argument, expected) in attempts {
        let seen = met(hostile(attempt, argument, scratch)).await;
        if seen != *expected {
            wrong.push(format!("{attempt} {argument}: {seen} instead of {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn what_decoding_needs_is_allowed() {
    let scratch = tempfile::tempdir().unwrap();

    all_meet(scratch.path(), &[("thread", "", "open"), ("write inside", "", "open")]).await;

    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn files_outside_scratch_stay_closed() {
    let (canary, scratch) = (Canary::new(), tempfile::tempdir().unwrap());
    let secret = canary.file();
    std::os::unix::fs::symlink(&secret, scratch.path().join("pointer")).unwrap();
    let (secret, folder) = (secret.to_str().unwrap(), canary.folder().to_str().unwrap());
    let new = format!("{folder}/new");

    all_meet(
        scratch.path(),
        &[
            ("read", "/etc/passwd", "EACCES"),
            ("read", secret, "EACCES"),
            ("read", "pointer", "EACCES"),
            ("read", "/proc/1/environ", "EACCES"),
            ("read", "/proc/self/environ", "EACCES"),
            ("read", "/proc/self/maps", "EACCES"),
            ("read", "/dev/kmsg", "EACCES"),
            ("list", "/", "EACCES"),
            ("list", folder, "EACCES"),
            ("create", &new, "EACCES"),
            ("overwrite", secret, "EACCES"),
            ("overwrite", "pointer", "EACCES"),
            ("overwrite", "/proc/self/oom_score_adj", "EACCES"),
            ("overwrite", "/proc/sys/kernel/core_pattern", "EACCES"),
            ("empty", secret, "EPERM"),
            ("truncate", secret, "EPERM"),
            ("delete", secret, "EACCES"),
            ("chmod", secret, "EPERM"),
            ("touch", secret, "EPERM"),
            ("move out", &new, "EACCES"),
            ("move in", secret, "EACCES"),
            ("link", secret, "EPERM"),
            ("symlink", secret, "EPERM"),
            ("fifo", "", "EPERM"),
            ("lower oom score", "", "EACCES"),
        ],
    )
    .await;

    canary.assert_untouched();
}

/// Landlock of the first versions does not see it, so it is the filter that must.
#[tokio::test]
async fn what_may_be_read_may_not_be_emptied() {
    let (scratch, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let input = outside.path().join("input");
    std::fs::write(&input, "media").unwrap();
    let input_name = input.to_str().unwrap();

    for (attempt, expected) in [
        ("read", "open"),
        ("empty", "EPERM"),
        ("truncate", "EPERM"),
        ("overwrite", "EACCES"),
        ("delete", "EACCES"),
    ] {
        let seen = met(hostile(attempt, input_name, scratch.path()).readable(&input)).await;
        assert_eq!(seen, expected, "{attempt}");
    }

    assert_eq!(std::fs::read(&input).unwrap(), b"media");
}

#[tokio::test]
async fn nothing_can_be_told_to_anybody() {
    let (canary, scratch) = (Canary::new(), tempfile::tempdir().unwrap());
    let (tcp, udp) = (canary.tcp_port().to_string(), canary.udp_port().to_string());

    all_meet(
        scratch.path(),
        &[
            ("connect tcp", &tcp, "EPERM"),
            ("listen tcp", "", "EPERM"),
            ("send udp", &udp, "EPERM"),
            ("connect unix", canary.socket().to_str().unwrap(), "EPERM"),
            ("connect abstract", canary.abstract_name(), "EPERM"),
            ("socketpair", "", "EPERM"),
            ("netlink", "", "EPERM"),
            ("shared memory", "", "EPERM"),
            ("memfd", "", "EPERM"),
        ],
    )
    .await;

    canary.assert_untouched();
}

#[tokio::test]
async fn other_processes_cannot_be_reached() {
    let scratch = tempfile::tempdir().unwrap();
    let mut bystander = Bystander::new();
    let pid = bystander.0.id().to_string();

    all_meet(
        scratch.path(),
        &[
            ("kill", &pid, "EPERM"),
            ("kill group", &pid, "EPERM"),
            ("kill all", "", "EPERM"),
            ("tgkill", &pid, "EPERM"),
            ("tkill", &pid, "EPERM"),
            ("pidfd", &pid, "EPERM"),
            ("signal by fcntl", &pid, "EPERM"),
            ("renice", &pid, "EPERM"),
            ("pin", &pid, "EPERM"),
            ("read", &format!("/proc/{pid}/environ"), "EACCES"),
            ("read", &format!("/proc/{pid}/mem"), "EACCES"),
        ],
    )
    .await;

    assert!(bystander.is_well());
}

#[tokio::test]
async fn nothing_can_be_started_and_nothing_else_become() {
    let scratch = tempfile::tempdir().unwrap();

    all_meet(
        scratch.path(),
        &[
            ("fork", "", "EPERM"),
            ("fork by clone3", "", "ENOSYS"),
            ("fork bomb", "", "EPERM"),
            ("start a shell", "", "EPERM"),
            ("become a shell", "", "EPERM"),
            ("become itself", TESTBED, "EPERM"),
            ("execute own file", "", "EPERM"),
            // No descriptor can have the number that the filter lets be executed.
            ("become by descriptor", "", "EBADF"),
            ("raise limits", "", "EPERM"),
        ],
    )
    .await;
}

/// The C library is a program, too, and lies where libraries may be read.
fn executable_library() -> String {
    use std::os::unix::fs::PermissionsExt;
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let library =
        folders.map(|folder| Path::new(folder).join("libc.so.6")).into_iter().find(|file| file.exists());
    let library = library.expect("a system with glibc");
    assert_ne!(library.metadata().unwrap().permissions().mode() & 0o111, 0, "it can be executed outside");
    library.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn no_other_program_can_be_become_by_its_path() {
    let scratch = tempfile::tempdir().unwrap();
    let (library, own) = (executable_library(), scratch.path().join("own"));
    assert!(Command::new("cp").arg("/bin/true").arg(&own).status().unwrap().success());

    all_meet(
        scratch.path(),
        &[
            ("become by path", "/bin/sh", "EACCES"),
            ("become by path", &library, "EACCES"),
            ("become by path", own.to_str().unwrap(), "EACCES"),
        ],
    )
    .await;
}

/// The launcher as another user would start it. The test runs as root in most containers, whom no such limit binds.
fn launched_as_nobody(folder: &Path, attempt: &[&str]) -> Command {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // The folder of the build may be closed to others.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("testbed");
    // By another process: a child that is started meanwhile would inherit the file as one that is being written to.
    assert!(Command::new("cp").arg(TESTBED).arg(&program).status().unwrap().success());
    let mut command = Command::new(&program);
    command
        .args([sandbox::LAUNCH, &rules(program.to_str().unwrap()), "--", "testbed", "escape"])
        .args(attempt);
    if rustix::process::getuid().is_root() {
        command.uid(54_321).gid(54_321);
    }
    command
}

#[test]
fn threads_are_bounded_where_the_kernel_bounds_them() {
    let folder = tempfile::tempdir().unwrap();

    let some = launched_as_nobody(folder.path(), &["start threads", "100"]).output().unwrap();
    let many = launched_as_nobody(folder.path(), &["start threads", "30000"]).output().unwrap();

    assert_eq!(String::from_utf8_lossy(&some.stdout), "open", "{some:?}");
    assert_eq!(String::from_utf8_lossy(&many.stdout), "EAGAIN", "{many:?}");
}

fn rules(program: &str) -> String {
    format!(
        r#"{{"parent_pid": {}, "program": "{program}", "scratch": null, "readable": [], "variables": ["LC_ALL"],
            "cpu_seconds": null, "file_size_bytes": null, "memory_bytes": 1073741824}}"#,
        std::process::id()
    )
}

/// In a container that is first to go, a tool is no later than the rest.
#[test]
fn a_tool_is_never_safer_from_the_want_of_memory_than_who_started_it() {
    use std::io::{BufRead, BufReader};
    for (present, expected) in [("100", "500"), ("900", "900")] {
        let script = format!(r#"echo {present} > /proc/self/oom_score_adj; exec "$@""#);
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script, "sh", TESTBED, sandbox::LAUNCH, &rules(TESTBED), "--", TESTBED])
            .args(["escape", "stay"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();

        let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap();

        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((line.as_str(), score.trim()), ("here\n", expected));
    }
}

#[tokio::test]
async fn rights_cannot_be_regained_and_the_group_not_be_left() {
    let scratch = tempfile::tempdir().unwrap();

    all_meet(
        scratch.path(),
        &[
            ("setsid", "", "EPERM"),
            ("setpgid", "0", "EPERM"),
            ("outlive", "", "EPERM"),
            ("setuid", "0", "EPERM"),
            ("setuid", "65534", "EPERM"),
            ("capset", "", "EPERM"),
            ("seccomp", "", "EPERM"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_only_exploits_do_ends_the_program() {
    let scratch = tempfile::tempdir().unwrap();
    let mut bystander = Bystander::new();
    let pid = bystander.0.id().to_string();

    all_meet(
        scratch.path(),
        &[
            ("ptrace", &pid, "killed"),
            ("read memory", &pid, "killed"),
            ("mount", "", "killed"),
            ("unshare user", "", "killed"),
            ("unshare net", "", "killed"),
            ("setns", "", "killed"),
            ("chroot", "", "killed"),
            ("bpf", "", "killed"),
            ("keyctl", "", "killed"),
            ("io_uring", "", "killed"),
            ("perf", "", "killed"),
            ("userfaultfd", "", "killed"),
            ("open by handle", "", "killed"),
        ],
    )
    .await;

    assert!(bystander.is_well());
}

#[tokio::test]
async fn descriptors_of_the_parent_are_not_inherited() {
    let scratch = tempfile::tempdir().unwrap();
    let secret = std::fs::File::open("/etc/passwd").unwrap();
    // Without close-on-exec, as a careless library would leave it.
    let leaked = rustix::io::dup(&secret).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&leaked).to_string();

    let seen = met(hostile("read fd", &number, scratch.path())).await;

    assert_eq!(seen, "EBADF");
}

#[tokio::test]
async fn only_named_variables_are_seen() {
    let scratch = tempfile::tempdir().unwrap();

    let seen = met(hostile("variables", "", scratch.path()).env("VIPS_CONCURRENCY", "1")).await;

    let mut names: Vec<&str> = seen.split(' ').collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LC_ALL", "TMPDIR", "VIPS_BLOCK_UNTRUSTED", "VIPS_CONCURRENCY"]);
}

/// A launcher that is given more than the rules name passes none of it on.
#[test]
fn the_launcher_drops_variables_that_the_rules_do_not_name() {
    let mut command = Command::new(TESTBED);
    command.args([sandbox::LAUNCH, &rules(TESTBED), "--", TESTBED, "escape", "variables"]);
    command.env("LC_ALL", "C").env("LD_PRELOAD", "/nonexistent.so");

    let done = command.output().unwrap();

    assert_eq!(String::from_utf8_lossy(&done.stdout), "LC_ALL", "{done:?}");
}

#[tokio::test]
async fn files_beyond_the_limit_are_not_written() {
    let scratch = tempfile::tempdir().unwrap();
    let limits = ToolLimits { file_size_bytes: Some(1 << 20), ..ToolLimits::default() };

    let tool = hostile("fill scratch", "", scratch.path()).limits(limits);
    let error = tool.start(&CancellationToken::new()).unwrap().finish().await.unwrap_err();

    assert_eq!(error.code(), "input_too_large", "{error}");
    assert_eq!(std::fs::metadata(scratch.path().join("filled")).unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn the_self_test_holds_in_the_sandbox_and_not_without() {
    let (confined, free) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cancel = CancellationToken::new();
    let bed = Path::new(TESTBED);

    let inside = sandbox::self_test(confinement(), bed, confined.path(), &cancel).await.unwrap();
    let outside =
        sandbox::self_test(telecine_media::Confinement::None, bed, free.path(), &cancel).await.unwrap();

    assert!(inside.holds(), "{inside:?}");
    assert!(outside.attempts.iter().all(|attempt| !attempt.refused), "{outside:?}");
    assert!(!outside.holds());
}
