//! The lab: perf-prof on other kernels, in emulated machines that live for one script. See lab/README.md.
//!
//! A test says what goes into the guest and hands over a script:
//!
//! ```ignore
//! #[macro_use]
//! mod common;
//! #[path = "common/lab.rs"]
//! mod lab;
//!
//! #[test]
//! fn a_fault_is_found() {
//!     need_lab!();
//!     for kernel in lab::AMD64 {
//!         let output = Lab::new(kernel).ppfault().example("parts").run(
//!             "watching waits task-state -D --than 100
//!              echo dsleep 300 >/proc/ppfault
//!              stop waits",
//!         );
//!         let done = output.results("waits").code(0);
//!         assert_eq!(done.of_type("event").len(), 1);
//!     }
//! }
//! ```
//!
//! The script is one of busybox's `sh`, run by root in /guest, which is in PATH and holds `perf-prof`, the examples and
//! the files asked for; it ends at the first command that fails. /proc, /sys, tracefs and debugfs are mounted. It has
//! these functions beside:
//!
//! - `prof NAME ARG...` runs perf-prof to its end; [`Output::results`] of NAME has its output and exit code.
//! - `watching NAME ARG...` starts perf-prof with `--json -v` and comes back when its events are on; `stop NAME` sends it
//!   a SIGINT and waits for it.
//! - `started NAME ARG...` starts it as it is and comes back at once; it ends with `stop NAME` or with `ended NAME`, which
//!   only waits.
//! - `await COMMAND...` repeats a command until it succeeds.
//!
//! Whatever the script leaves in /out is there for [`Output::file`]. Emulated time passes with the host's, and slower
//! when the host is busy: allow tens of milliseconds, or ask for [`Lab::virtual_time`].
#![allow(dead_code, unused_macros)] // each test binary uses a part

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use crate::common::{Done, once_more};

/// The series of kernels for amd64.
pub const AMD64: [&str; 2] = ["6.1", "6.12"];

/// Most guests that run at a time, of all tests on this machine.
const BOOTS: usize = 2;

/// Time between two checks for a guest that has ended.
const AGAIN: Duration = Duration::from_millis(50);

const FUNCTIONS: &str = r#"
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries -gt 1200 ]; then echo "in vain: $*" >&2; exit 99; fi
        usleep 50000
    done
}
started() {
    name=$1
    shift
    (code=0; perf-prof "$@" >/out/$name 2>/out/$name.err & echo $! >/tmp/$name.pid; wait $! || code=$?; echo $code >/out/$name.code) &
    await [ -s /tmp/$name.pid ]
}
prof() {
    started "$@"
    ended $1
}
ended() { await [ -s /out/$1.code ]; }
stop() {
    kill -INT $(cat /tmp/$1.pid)
    ended $1
}
is_on() { [ -e /out/$1.code ] || grep -q "$2" $3; }
watching() {
    started "$@" --json -v
    await is_on $1 'ring buffer' /out/$1.err
    kill -USR1 $(cat /tmp/$1.pid) 2>/dev/null || :
    await is_on $1 '"type":"interval"' /out/$1
    if [ -e /out/$1.code ]; then echo "perf-prof has ended: $(cat /out/$1.err)" >&2; exit 98; fi
}
set -e
"#;

/// Skips the test without PERF_PROF_LAB=1.
#[macro_export]
macro_rules! need_lab {
    () => {
        if std::env::var("PERF_PROF_LAB").is_ok_and(|value| value == "1") {
            $crate::common::skips::not_left(here!());
        } else {
            $crate::common::skips::left_to_the_lab(here!());
            return;
        }
    };
}

/// A guest to be booted.
pub struct Lab {
    kernel: PathBuf,
    arch: Arch,
    options: Vec<String>,
    console: Option<PathBuf>,
}

#[derive(Clone, Copy)]
enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    fn target(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64-unknown-linux-musl",
            Arch::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    fn debian(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// Names the binary to be tested, if it is not cargo's.
    fn variable(self) -> &'static str {
        match self {
            Arch::Amd64 => "PERF_PROF_LAB_AMD64",
            Arch::Arm64 => "PERF_PROF_LAB_ARM64",
        }
    }
}

/// Results of a guest.
pub struct Output {
    /// Output of the script.
    pub done: Done,
    files: tempfile::TempDir,
}

impl Lab {
    /// The newest kernel of a series, "6.12" say, for amd64.
    pub fn new(series: &str) -> Lab {
        Lab::of(series, Arch::Amd64)
    }

    /// The same for arm64, which has hardware counters.
    pub fn arm64(series: &str) -> Lab {
        Lab::of(series, Arch::Arm64)
    }

    fn of(series: &str, arch: Arch) -> Lab {
        let pattern = format!("{series}.*-{}", arch.debian());
        let list = run_in_vm().args(["--list", "-k", &pattern]).output().expect("lab/run-in-vm");
        let list = String::from_utf8(list.stdout).expect("paths in UTF-8");
        let kernel = list.lines().next().unwrap_or_else(|| panic!("no kernel {pattern}: run lab/fetch"));
        let lab = Lab { kernel: PathBuf::from(kernel), arch, options: Vec::new(), console: None };
        let binary = std::env::var_os(arch.variable()).map(PathBuf::from);
        let binary = binary.unwrap_or_else(|| lab.built("perf-prof"));
        lab.file_as(&binary, "/guest/perf-prof")
    }

    /// What cargo has built for the guest: a debug build.
    fn built(&self, name: &str) -> PathBuf {
        let own = std::env::current_exe().expect("own path");
        let target = own.ancestors().nth(3).expect("target/PROFILE/deps");
        let path = target.join(self.arch.target()).join("debug").join(name);
        assert!(path.exists(), "{} is missing: lab/test builds it", path.display());
        path
    }

    fn option(mut self, option: &str, value: &str) -> Lab {
        self.options.extend([option.to_owned(), value.to_owned()]);
        self
    }

    /// Puts a file of the host into /guest.
    pub fn file(self, path: &Path) -> Lab {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        let there = format!("/guest/{name}");
        self.file_as(path, &there)
    }

    fn file_as(self, path: &Path, there: &str) -> Lab {
        let path = path.to_str().expect("a path in UTF-8").to_owned();
        self.option("-f", &format!("{path}:{there}"))
    }

    /// Puts a program of examples/ there.
    pub fn example(self, name: &str) -> Lab {
        let path = self.built("examples").join(name);
        assert!(path.exists(), "{} is missing: lab/test builds it", path.display());
        self.file(&path)
    }

    /// Loads a module of the kernel's package: `NAME` or `NAME:PARAMETER=VALUE,...`.
    pub fn module(self, module: &str) -> Lab {
        self.option("-m", module)
    }

    /// Loads the module that provokes faults: /proc/ppfault takes its commands, see lab/ppfault/ppfault.c.
    pub fn ppfault(self) -> Lab {
        let version = self.version();
        let modules = fs::read_dir(cache().join("ppfault")).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&format!("{version}-")) && name.ends_with(".ko"))
        };
        let module = { modules }.find(is_ours).unwrap_or_else(|| panic!("no ppfault for {version}: run lab/fetch"));
        self.module(module.to_str().expect("a path in UTF-8"))
    }

    /// Adds to the kernel's command line.
    pub fn append(self, text: &str) -> Lab {
        self.option("-a", text)
    }

    /// The number of CPUs, 2 by default.
    pub fn cpus(self, cpus: u32) -> Lab {
        self.option("-c", &cpus.to_string())
    }

    /// One more argument for QEMU.
    pub fn qemu(self, argument: &str) -> Lab {
        self.option("--qemu", argument)
    }

    /// Keeps the kernel console in a file of the host's, which can be read while the guest runs.
    pub fn console(mut self, path: &Path) -> Lab {
        self.console = Some(path.to_owned());
        self
    }

    /// Guest time is a count of instructions: exact, whatever else the host does, and slower. CPUs take turns. Not for
    /// 6.1 on amd64, which hangs as it starts its second CPU.
    pub fn virtual_time(self) -> Lab {
        self.option("--virtual-time", "2")
    }

    /// What the host does takes none of the guest's time.
    pub fn has_virtual_time(&self) -> bool {
        self.options.iter().any(|option| option == "--virtual-time")
    }

    /// All CPUs of the guest share one of the host's and take turns: slower, but none of them runs into what another is
    /// changing, see [`BREAKPOINT`].
    pub fn by_turns(self) -> Lab {
        self.option("--accel", "tcg,thread=single")
    }

    /// The version of the kernel.
    pub fn version(&self) -> String {
        let name = self.kernel.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        name.trim_start_matches("vmlinuz-").to_owned()
    }

    /// Boots, runs the script, and hands back what it left. Panics unless it ended with 0.
    #[track_caller]
    pub fn run(self, script: &str) -> Output {
        let files = tempfile::tempdir().expect("a directory");
        let path = files.path().join("script");
        fs::write(&path, format!("echo '<1>{BEGINS}' >/dev/kmsg\n{FUNCTIONS}\n{script}\n")).expect("a file");
        let console = self.console.clone().unwrap_or_else(|| files.path().join("console"));
        let out = files.path().join("out");
        let out = out.to_str().expect("a path in UTF-8");
        let mut lab = self.file_as(&path, "/guest/script").option("-o", out).option("-M", "1024").option("-t", "400");
        let mut output = None;
        for boot in 1..=MAX_BOOTS {
            let slot = slot();
            let mut command = run_in_vm();
            command.args(["-k", lab.kernel.to_str().expect("a path in UTF-8")]).args(&lab.options);
            command.arg("-l").arg(&console).args(["--", "sh", "/guest/script"]);
            let ended = command.output().expect("lab/run-in-vm");
            drop(slot);
            let log = fs::read(&console).unwrap_or_default();
            let says = |words: &str| log.windows(words.len()).any(|text| text == words.as_bytes());
            let is_emulators = ended.status.code() == Some(DEAD) && (!says(BEGINS) || says(BREAKPOINT));
            // An emulated CPU that goes offline or online may stop all others for good, and a kernel that changes its
            // own code may jump to nowhere. A fault of perf-prof would occur again.
            let is_lost = boot == 1 && matches!(ended.status.code(), Some(HANGS | DEAD));
            let last_words = String::from_utf8_lossy(&ended.stderr).into_owned();
            output = Some(ended);
            if !is_emulators && !is_lost {
                break;
            }
            if is_emulators && says(BREAKPOINT) {
                lab = lab.by_turns();
            }
            let what = "the guest hung, or died as it booted, or of its own code";
            once_more(&format!("{what}: {last_words}"));
        }
        let output = output.expect("it was booted");
        let what = format!("in the guest {}: {script}", lab.version());
        let done = Done::of(what, output.status, &output.stdout, &output.stderr);
        Output { done: done.code(0), files }
    }
}

impl Output {
    /// A file of /out.
    #[track_caller]
    pub fn file(&self, name: &str) -> String {
        let bytes = fs::read(self.files.path().join("out").join(name)).unwrap_or_else(|err| panic!("{name}: {err}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Output and exit code of perf-prof under NAME of the script.
    #[track_caller]
    pub fn results(&self, name: &str) -> Done {
        let code: i32 = self.file(&format!("{name}.code")).trim().parse().expect("an exit code");
        let (out, err) = (self.file(name), self.file(&format!("{name}.err")));
        Done::of(format!("{name} in the guest"), ExitStatus::from_raw(code << 8), out.as_bytes(), err.as_bytes())
    }
}

/// In the kernel's log, from the script.
const BEGINS: &str = "the script begins";
/// There too. The emulator at times runs a CPU into the breakpoint that the kernel sets while it changes its own code
/// (`text_poke_bp`), which it does much as it boots, and with every tracepoint that is turned on.
const BREAKPOINT: &str = "int3: 0000 [#";
const MAX_BOOTS: usize = 3;
/// run-in-vm: the guest ended without a status.
const DEAD: i32 = 126;
/// run-in-vm: the guest took all of its time.
const HANGS: i32 = 124;

/// Where lab/fetch puts things.
pub fn cache() -> PathBuf {
    let named = std::env::var_os("PERF_PROF_CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache/perf-prof");
    named.unwrap_or_else(home)
}

fn run_in_vm() -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/run-in-vm"));
    command.arg("-K").arg(cache().join("kernels"));
    command
}

/// The right to run a guest, as long as it is kept.
fn slot() -> File {
    let open = |number| File::create(cache().join(format!("boot.{number}"))).expect("a lock file");
    let files: Vec<File> = (0..BOOTS).map(open).collect();
    loop {
        if let Some(at) = files.iter().position(|file| file.try_lock().is_ok()) {
            return files.into_iter().nth(at).expect("found");
        }
        thread::sleep(AGAIN);
    }
}
