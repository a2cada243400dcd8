//! A tool that has been taken over. Each attempt is what an exploit inside a decoder would do next; it prints `open`
//! when the attempt worked, or the error it met. `ATTEMPT ARGS…` is its command line.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let attempt = arguments.next().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let argument = arguments.next().and_then(|text| text.into_string().ok()).unwrap_or_default();
    let seen = match tried(&attempt, &argument) {
        Ok(()) => "open".to_owned(),
        Err(error) => error.raw_os_error().and_then(name).map_or_else(|| error.to_string(), str::to_owned),
    };
    match io::stdout().write_all(seen.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn name(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EPERM => Some("EPERM"),
        libc::EACCES => Some("EACCES"),
        libc::EBADF => Some("EBADF"),
        libc::ENOSYS => Some("ENOSYS"),
        libc::EXDEV => Some("EXDEV"),
        libc::ENOMEM => Some("ENOMEM"),
        libc::EAGAIN => Some("EAGAIN"),
        _ => None,
    }
}

fn tried(attempt: &str, argument: &str) -> io::Result<()> {
    let number = argument.parse::<i64>().unwrap_or(0);
    match attempt {
        // Files.
        "read" => fs::read(argument).map(drop),
        "read fd" => raw(libc::SYS_lseek, [number, 0, libc::SEEK_CUR.into(), 0, 0]),
        "list" => fs::read_dir(argument).map(drop),
        "create" => File::create_new(argument).map(drop),
        "overwrite" => File::options().write(true).open(argument).map(drop),
        "empty" => open_truncating(argument),
        "truncate" => raw(libc::SYS_truncate, [c_path(argument)?.as_ptr().addr() as i64, 0, 0, 0, 0]),
        "delete" => fs::remove_file(argument),
        "chmod" => fs::set_permissions(argument, fs::Permissions::from_mode(0o777)),
        "touch" => File::open("/dev/null").and_then(|_| set_times(argument)),
        "move out" => fs::write("mine", "x").and_then(|()| fs::rename("mine", argument)),
        "move in" => fs::rename(argument, "stolen"),
        "link" => fs::hard_link(argument, "linked"),
        "symlink" => std::os::unix::fs::symlink(argument, "pointer"),
        "fifo" => rustix::fs::mknodat(
            rustix::fs::CWD,
            "fifo",
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .map_err(Into::into),
        "execute own file" => fs::write("own", "x").and_then(|()| Err(Command::new("./own").exec())),
        // The network and other ways to talk.
        "connect tcp" => TcpStream::connect((Ipv4Addr::LOCALHOST, port(number))).map(drop),
        "listen tcp" => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop),
        "send udp" => {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.send_to(b"hello", (Ipv4Addr::LOCALHOST, port(number))).map(drop)
        }
        "connect unix" => UnixStream::connect(argument).map(drop),
        "connect abstract" => UnixStream::connect_addr(&SocketAddr::from_abstract_name(argument)?).map(drop),
        "socketpair" => UnixStream::pair().map(drop),
        "netlink" => raw(libc::SYS_socket, [libc::AF_NETLINK.into(), libc::SOCK_RAW.into(), 0, 0, 0]),
        "shared memory" => raw(libc::SYS_shmget, [7, 4096, 0o1777, 0, 0]),
        "memfd" => raw(libc::SYS_memfd_create, [c"x".as_ptr().addr() as i64, 0, 0, 0, 0]),
        // Other processes.
        "kill" => raw(libc::SYS_kill, [number, libc::SIGTERM.into(), 0, 0, 0]),
        "kill group" => raw(libc::SYS_kill, [-number, libc::SIGTERM.into(), 0, 0, 0]),
        "kill all" => raw(libc::SYS_kill, [-1, 0, 0, 0, 0]),
        "tgkill" => raw(libc::SYS_tgkill, [number, number, libc::SIGTERM.into(), 0, 0]),
        "tkill" => raw(libc::SYS_tkill, [number, libc::SIGTERM.into(), 0, 0, 0]),
        "pidfd" => raw(libc::SYS_pidfd_open, [number, 0, 0, 0, 0]),
        "signal by fcntl" => {
            let file = File::open("/dev/null")?;
            raw(libc::SYS_fcntl, [file.as_raw_fd().into(), libc::F_SETOWN.into(), number, 0, 0])
        }
        "renice" => raw(libc::SYS_setpriority, [0, number, 19, 0, 0]),
        "pin" => raw(libc::SYS_sched_setaffinity, [number, 8, [1_u64].as_ptr().addr() as i64, 0, 0]),
        "fork" => raw(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0]),
        "fork by clone3" => raw(libc::SYS_clone3, [0; 5]),
        "fork bomb" => (0..10_000)
            .try_for_each(|_| match raw(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0]) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
                _ => Err(io::Error::other("a child was born")),
            })
            .and_then(|()| Err(io::Error::from_raw_os_error(libc::EPERM))),
        "start a shell" => Command::new("/bin/sh").args(["-c", "true"]).status().map(drop),
        "become a shell" => Err(Command::new("/bin/sh").args(["-c", "echo -n open"]).exec()),
        "become itself" => Err(Command::new(argument).exec()),
        "become by descriptor" => become_by_descriptor(),
        "become by path" => become_by_path(argument),
        "start threads" => start_threads(number),
        // Getting away.
        "setsid" => rustix::process::setsid().map(drop).map_err(Into::into),
        "setpgid" => raw(libc::SYS_setpgid, [0, number, 0, 0, 0]),
        "outlive" => raw(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG.into(), 0, 0, 0, 0]),
        "raise limits" => raw(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_NOFILE.into(), [4096_u64, 4096].as_ptr().addr() as i64, 0, 0],
        ),
        "setuid" => raw(libc::SYS_setuid, [number, 0, 0, 0, 0]),
        "capset" => raw(libc::SYS_capset, [0; 5]),
        "seccomp" => raw(libc::SYS_seccomp, [0; 5]),
        "lower oom score" => fs::write("/proc/self/oom_score_adj", "0"),
        // What only exploits do: nothing should come back from these.
        "ptrace" => raw(libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), number, 0, 0, 0]),
        "read memory" => raw(libc::SYS_process_vm_readv, [number, 0, 0, 0, 0]),
        "mount" => raw(libc::SYS_mount, [0; 5]),
        "unshare user" => raw(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0]),
        "unshare net" => raw(libc::SYS_unshare, [libc::CLONE_NEWNET.into(), 0, 0, 0, 0]),
        "setns" => raw(libc::SYS_setns, [0; 5]),
        "chroot" => raw(libc::SYS_chroot, [c"/".as_ptr().addr() as i64, 0, 0, 0, 0]),
        "bpf" => raw(libc::SYS_bpf, [0; 5]),
        "keyctl" => raw(libc::SYS_keyctl, [0; 5]),
        "io_uring" => raw(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
        "perf" => raw(libc::SYS_perf_event_open, [0; 5]),
        "userfaultfd" => raw(libc::SYS_userfaultfd, [0; 5]),
        "open by handle" => raw(libc::SYS_open_by_handle_at, [0; 5]),
        // What a decoder does need.
        "thread" => std::thread::spawn(|| ()).join().map_err(|_| io::Error::other("it panicked")),
        "write inside" => {
            fs::write("made", "x")?;
            fs::create_dir("folder")?;
            fs::rename("made", "folder/moved")?;
            fs::read("folder/moved")?;
            fs::remove_dir_all("folder")
        }
        "wait, then write inside" => {
            io::stdin().read_to_end(&mut Vec::new())?;
            fs::write("made", "x")
        }
        "variables" => {
            let names: Vec<String> =
                std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
            Err(io::Error::other(names.join(" ")))
        }
        "stay" => stay(),
        "fill scratch" => fill_scratch(),
        // Memory. Numbers are of MiB.
        "fill memory" => fill_memory(),
        "take memory" => map(number, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE).map(drop),
        "share memory" => map(number, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED).map(drop),
        "hide memory" => hide_memory(number),
        _ => Err(io::Error::other("no such attempt")),
    }
}

/// Says that it is there, and does not go: neither at the end of stdin nor on SIGTERM.
fn stay() -> io::Result<()> {
    raw(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK.into(), [u64::MAX].as_ptr().addr() as i64, 0, 8, 0])?;
    io::stdout().write_all(b"here\n")?;
    let _ = io::stdin().read_to_end(&mut Vec::new());
    loop {
        std::thread::park();
    }
}

/// Not without end: where the limit that is tested fails, the disk must not be full.
fn fill_scratch() -> io::Result<()> {
    let mut file = File::create("filled")?;
    (0..256).try_for_each(|_| file.write_all(&[0; 1 << 16]))
}

/// Writes to all that it gets, and tells how much that is. Not without end, as above.
fn fill_memory() -> io::Result<()> {
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(std::hint::black_box(vec![1_u8; 16 << 20]));
        writeln!(io::stderr(), "holds {} MiB", held.len() * 16)?;
    }
    Ok(())
}

/// Memory that nobody has written to yet costs nothing but its place.
fn map(mebibytes: i64, protection: i32, kind: i32) -> io::Result<i64> {
    let flags = (kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE).into();
    call(libc::SYS_mmap, [0, mebibytes << 20, protection.into(), flags, -1])
}

/// Piece by piece: what may no longer be written to is not counted as data.
fn hide_memory(mebibytes: i64) -> io::Result<()> {
    const PIECE: i64 = 64;
    (0..mebibytes / PIECE).try_for_each(|_| {
        let piece = map(PIECE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)?;
        raw(libc::SYS_mprotect, [piece, PIECE << 20, libc::PROT_READ.into(), 0, 0])
    })
}

/// Reading and emptying in one: only write permission of the file itself stands in the way, not Landlock before ABI 3.
fn open_truncating(path: &str) -> io::Result<()> {
    let flags = libc::O_RDONLY | libc::O_TRUNC;
    raw(libc::SYS_openat, [libc::AT_FDCWD.into(), c_path(path)?.as_ptr().addr() as i64, flags.into(), 0, 0])
}

fn set_times(path: &str) -> io::Result<()> {
    let path = c_path(path)?;
    raw(libc::SYS_utimensat, [libc::AT_FDCWD.into(), path.as_ptr().addr() as i64, 0, 0, 0])
}

/// Forges the descriptor that the launcher executed this program by.
fn become_by_descriptor() -> io::Result<()> {
    let file = File::open("/proc/self/exe").or_else(|_| File::open("/lib64/ld-linux-x86-64.so.2"))?;
    raw(libc::SYS_dup3, [file.as_raw_fd().into(), 512, 0, 0, 0])?;
    let nothing = [0_usize; 1].as_ptr().addr() as i64;
    raw(libc::SYS_execveat, [512, c"".as_ptr().addr() as i64, nothing, nothing, libc::AT_EMPTY_PATH.into()])
}

/// Of an absolute path the kernel takes any descriptor's word, even that of one that is closed.
fn become_by_path(path: &str) -> io::Result<()> {
    let path = c_path(path)?;
    let arguments = [path.as_ptr().addr(), 0];
    let nothing = [0_usize; 1].as_ptr().addr() as i64;
    let (path, arguments) = (path.as_ptr().addr() as i64, arguments.as_ptr().addr() as i64);
    raw(libc::SYS_execveat, [512, path, arguments, nothing, libc::AT_EMPTY_PATH.into()])
}

/// So many at once. They end with the process.
fn start_threads(count: i64) -> io::Result<()> {
    (0..count).try_for_each(|_| {
        std::thread::Builder::new().stack_size(16 << 10).spawn(|| {
            loop {
                std::thread::park();
            }
        })?;
        Ok(())
    })
}

fn c_path(path: &str) -> io::Result<std::ffi::CString> {
    std::ffi::CString::new(path).map_err(io::Error::other)
}

fn port(number: i64) -> u16 {
    u16::try_from(number).unwrap_or(0)
}

fn raw(number: libc::c_long, arguments: [i64; 5]) -> io::Result<()> {
    call(number, arguments).map(drop)
}

/// What the kernel answers.
#[allow(unsafe_code, reason = "a hostile program makes the calls that no safe library offers")]
fn call(call: libc::c_long, [a, b, c, d, e]: [i64; 5]) -> io::Result<i64> {
    // SAFETY: the pointers among the arguments, if any, point to values that live until the call returns. A call that
    // would start a second process from this memory is refused, which is what is tested.
    let done = unsafe { libc::syscall(call, a, b, c, d, e, 0_i64) };
    if call == libc::SYS_clone && done == 0 {
        // The child that should not exist must not go on as if it were the parent.
        std::process::abort();
    }
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}
