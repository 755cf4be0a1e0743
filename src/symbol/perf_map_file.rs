//! Where the perf map of a process is, and whether it is the process's own word.
//!
//! Whoever may write to a /tmp may put such a file there: a link to a file that he may not read himself, or names for
//! the code of others.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::host::Host;
use crate::symbol::files::{UnnamedReason, open_regular_below};
use crate::task::procfs;

/// There is none.
pub const JIT_NO_MAP: UnnamedReason = "jit-no-map";
const LINK: UnnamedReason = "perf map behind a link";
const NO_FILE: UnnamedReason = "perf map is no file";
const FOREIGN: UnnamedReason = "perf map of another user";
const OPEN_TO_OTHERS: UnnamedReason = "perf map that others may write";

/// True for the reasons that a file of the process's own would end.
pub fn is_cured_by_another(reason: UnnamedReason) -> bool {
    [JIT_NO_MAP, LINK, NO_FILE, FOREIGN, OPEN_TO_OTHERS].contains(&reason)
}

/// A file may come, or another one take its place: it is looked for no sooner than that.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The perf map of a process, which may write one at any time.
#[derive(Debug)]
pub struct PerfMapFile {
    process: Process,
    /// When the run began: of a process that has gone only what was written later can be its own.
    began: SystemTime,
    /// Of its ancestors: from the time before the fork it has code of theirs.
    inherited: Vec<Weak<PerfMapFile>>,
    runtime: Option<Runtime>,
    state: Mutex<State>,
}

/// What makes code at run time, by the name of its program: each is told in its own way to write a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    Java,
    Node,
    Python,
}

impl Runtime {
    fn of(host: &Host, pid: i32) -> Option<Runtime> {
        let program = fs::read_link(host.proc.join(format!("{pid}/exe"))).ok()?;
        let name = program.file_name()?.to_str()?;
        let starts = [("java", Runtime::Java), ("node", Runtime::Node), ("python", Runtime::Python)];
        starts.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, runtime)| runtime)
    }

    /// How it is told to.
    pub fn cure(self) -> &'static str {
        match self {
            Runtime::Java => "`jcmd PID Compiler.perfmap` (Java 17 and newer)",
            Runtime::Node => "`node --perf-basic-prof`",
            Runtime::Python => "`python3 -X perf`",
        }
    }

    pub const ALL: [Runtime; 3] = [Runtime::Java, Runtime::Node, Runtime::Python];
}

/// Whose map is looked for.
#[derive(Debug)]
pub struct Process {
    pub host: Host,
    pub pid: i32,
    /// When it was started, which tells it from a later one of this number. None when it has gone.
    pub started: Option<u64>,
    /// The user, when last seen.
    pub owner: Option<u32>,
    /// Its parent, the parent's parent and so on.
    pub ancestors: Vec<i32>,
}

#[derive(Debug)]
struct State {
    owner: Option<u32>,
    found: Result<Arc<File>, UnnamedReason>,
    next_look: Option<Instant>,
}

impl PerfMapFile {
    pub fn new(process: Process, inherited: Vec<Weak<PerfMapFile>>, began: SystemTime) -> PerfMapFile {
        let state = State { owner: process.owner, found: Err(JIT_NO_MAP), next_look: None };
        let runtime = process.started.and_then(|_| Runtime::of(&process.host, process.pid));
        PerfMapFile { process, began, inherited, runtime, state: Mutex::new(state) }
    }

    /// What the process is, if that is known.
    pub fn runtime(&self) -> Option<Runtime> {
        self.runtime
    }

    /// One that was found.
    #[cfg(test)]
    pub fn of(file: File) -> PerfMapFile {
        let process = Process { host: Host::default(), pid: -1, started: None, owner: None, ancestors: Vec::new() };
        let map = PerfMapFile::new(process, Vec::new(), SystemTime::now());
        map.state.lock().unwrap().found = Ok(Arc::new(file));
        map
    }

    /// The file as it is by now, or an ancestor's.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self) -> Result<Arc<File>, UnnamedReason> {
        let own = self.find_own();
        own.or_else(|why| self.inherited.iter().find_map(|ancestor| ancestor.upgrade()?.known()).ok_or(why))
    }

    fn known(&self) -> Option<Arc<File>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).found.as_ref().ok().cloned()
    }

    fn find_own(&self) -> Result<Arc<File>, UnnamedReason> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |file: &Arc<File>| file.metadata().is_ok_and(|meta| meta.nlink() > 0);
        let now = Instant::now();
        if state.next_look.is_none_or(|next| now >= next) {
            state.next_look = Some(now + LOOK_AGAIN);
            if !state.found.as_ref().is_ok_and(is_there) {
                match self.look(&mut state.owner) {
                    Ok(file) => state.found = Ok(Arc::new(file)),
                    // One that was removed still holds the names.
                    Err(why) if state.found.is_err() => state.found = Err(why),
                    Err(_) => {}
                }
            }
        }
        state.found.clone()
    }

    fn look(&self, owner: &mut Option<u32>) -> Result<File, UnnamedReason> {
        let Process { host, pid, started, ancestors, .. } = &self.process;
        let has_gone = started.is_none() || procfs::start_ticks(host, *pid) != *started;
        if !has_gone {
            *owner = procfs::owner(host, *pid).or(*owner);
        }
        // Of one that went before anybody could ask, only what is our own is believed.
        let owner = owner.or_else(|| has_gone.then(|| nix::unistd::geteuid().as_raw())).ok_or(JIT_NO_MAP)?;
        let root = |pid: &i32| host.proc.join(pid.to_string()).join("root");
        // In a root of others it has the number that we know. One that has no root of its own any more is looked for
        // there.
        let elsewhere = ancestors.iter().map(root).chain([PathBuf::from("/")]).map(|root| (root, *pid));
        let own = if has_gone { Vec::new() } else { numbers(host, *pid) };
        let places = own.into_iter().map(|number| (root(pid), number)).chain(elsewhere);
        let mut refused = None;
        for (root, number) in places {
            let path = format!("tmp/perf-{number}.map");
            let began = has_gone.then_some(self.began);
            match open_regular_below(&root, Path::new(&path)) {
                Ok(file) => match distrust(&file, owner, began) {
                    None => return Ok(file),
                    why => refused = refused.or(why),
                },
                Err(err) if err.raw_os_error() == Some(libc::ELOOP) => refused = refused.or(Some(LINK)),
                Err(err) if err.kind() == std::io::ErrorKind::InvalidInput => refused = refused.or(Some(NO_FILE)),
                Err(_) => {}
            }
        }
        Err(refused.unwrap_or(JIT_NO_MAP))
    }
}

/// That of a process in each of its pid namespaces: its own comes first, as it writes the file.
fn numbers(host: &Host, pid: i32) -> Vec<i32> {
    let status = fs::read_to_string(host.proc.join(format!("{pid}/status"))).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers = numbers.split_ascii_whitespace().rev().filter_map(|word| word.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    if numbers.is_empty() { vec![pid] } else { numbers } // before 4.1
}

/// Why a file is not the word of a process of this user, that lived after `began`.
fn distrust(file: &File, owner: u32, began: Option<SystemTime>) -> Option<UnnamedReason> {
    const OTHERS_WRITE: u32 = 0o022;
    const CLOCK_TICK: Duration = Duration::from_secs(1); // files get the time of the last one
    let Ok(meta) = file.metadata() else { return Some(NO_FILE) };
    let is_later = |began: SystemTime| {
        let began = began.checked_sub(CLOCK_TICK).unwrap_or(began);
        meta.modified().is_ok_and(|time| time >= began)
    };
    if meta.uid() != owner {
        Some(FOREIGN)
    } else if meta.mode() & OTHERS_WRITE != 0 {
        Some(OPEN_TO_OTHERS)
    } else {
        (!began.is_none_or(is_later)).then_some(JIT_NO_MAP)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A /proc in which process 7 is the 1 of a namespace of its own, and 6 its parent.
    struct Fixture {
        dir: tempfile::TempDir,
        began: SystemTime,
    }

    const NAMED: &str = "1000 100 hot\n";

    impl Fixture {
        fn new() -> Fixture {
            let dir = tempfile::tempdir().unwrap();
            for pid in [6, 7] {
                fs::create_dir_all(dir.path().join(format!("{pid}/root/tmp"))).unwrap();
                fs::create_dir_all(dir.path().join(format!("{pid}/task/{pid}"))).unwrap();
            }
            let fixture = Fixture { dir, began: SystemTime::now() };
            fixture.live(nix::unistd::geteuid().as_raw());
            fixture
        }

        fn live(&self, uid: u32) {
            let ticks: Vec<String> = (4..=30).map(|field| field.to_string()).collect();
            fs::write(self.dir.path().join("7/task/7/stat"), format!("7 (x) S {}", ticks.join(" "))).unwrap();
            let status = format!("Name:\tx\nUid:\t1\t{uid}\t2\t3\nNSpid:\t7\t1\n");
            fs::write(self.dir.path().join("7/status"), status).unwrap();
        }

        /// Its number is used again, by a process of another user.
        fn exit(&self) {
            fs::write(self.dir.path().join("7/status"), "Uid:\t1\t1\t1\t1\n").unwrap();
            fs::write(self.dir.path().join("7/task/7/stat"), "7 (x) S 1").unwrap();
        }

        fn map(&self, root: i32, number: i32) -> PathBuf {
            self.dir.path().join(format!("{root}/root/tmp/perf-{number}.map"))
        }

        fn write(&self, path: &Path) {
            fs::write(path, NAMED).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }

        /// As it is seen by who has not looked yet.
        fn search(&self, owner: Option<u32>) -> PerfMapFile {
            let host = Host { proc: self.dir.path().into(), ..Host::default() };
            let started = procfs::start_ticks(&host, 7);
            let process = Process { host, pid: 7, started, owner, ancestors: vec![6] };
            PerfMapFile::new(process, Vec::new(), self.began)
        }

        fn find(&self) -> Result<Arc<File>, UnnamedReason> {
            self.search(None).find()
        }
    }

    #[test]
    fn only_the_word_of_the_process_itself_is_believed() {
        let fixture = Fixture::new();
        assert_eq!(fixture.find().err(), Some(JIT_NO_MAP));
        let map = fixture.map(7, 1);
        fixture.write(&map);
        assert!(fixture.find().is_ok());
        for mode in [0o664, 0o646, 0o622] {
            fs::set_permissions(&map, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(fixture.find().err(), Some(OPEN_TO_OTHERS), "{mode:o}");
        }
        fixture.write(&map);
        fixture.live(nix::unistd::geteuid().as_raw() + 1);
        assert_eq!(fixture.find().err(), Some(FOREIGN));
        fixture.live(nix::unistd::geteuid().as_raw());
        let secret = fixture.dir.path().join("7/root/secret");
        fs::rename(&map, &secret).unwrap();
        for target in [Path::new("/secret"), Path::new("../secret"), &secret] {
            symlink(target, &map).unwrap();
            assert_eq!(fixture.find().err(), Some(LINK), "{target:?}");
            fs::remove_file(&map).unwrap();
        }
        nix::unistd::mkfifo(&map, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(fixture.find().err(), Some(NO_FILE));
        fixture.write(&fixture.map(7, 7));
        assert!(fixture.find().is_ok(), "under its other number");
    }

    #[test]
    fn a_tmp_that_is_a_link_is_not_followed() {
        let fixture = Fixture::new();
        let root = fixture.dir.path().join("7/root");
        fixture.write(&fixture.map(7, 7));
        fs::rename(root.join("tmp"), root.join("moved")).unwrap();
        symlink("moved", root.join("tmp")).unwrap();
        assert_eq!(fixture.find().err(), Some(LINK));
    }

    #[test]
    fn an_ancestor_shows_what_a_process_left_behind() {
        let fixture = Fixture::new();
        let uid = Some(nix::unistd::geteuid().as_raw());
        let before = fixture.search(uid);
        fixture.exit();
        fixture.write(&fixture.map(7, 1)); // of who has its number now
        fixture.write(&fixture.map(6, 7));
        let search = |owner| PerfMapFile {
            process: Process { started: None, owner, ..fixture.search(None).process },
            ..fixture.search(owner)
        };
        assert!(search(uid).find().is_ok() && before.find().is_ok());
        assert!(search(None).find().is_ok(), "nobody knows whose it was, but it is ours");
        assert_eq!(search(uid.map(|uid| uid + 1)).find().err(), Some(FOREIGN));
        let old = File::options().write(true).open(fixture.map(6, 7)).unwrap();
        old.set_modified(fixture.began - Duration::from_secs(60)).unwrap();
        assert_eq!(search(uid).find().err(), Some(JIT_NO_MAP), "of an earlier one");
    }

    #[test]
    fn a_file_that_comes_later_or_anew_is_found() {
        let fixture = Fixture::new();
        let search = fixture.search(None);
        let now = || search.state.lock().unwrap().next_look = None;
        assert_eq!(search.find().err(), Some(JIT_NO_MAP));
        let map = fixture.map(7, 1);
        fixture.write(&map);
        assert_eq!(search.find().err(), Some(JIT_NO_MAP), "too soon");
        now();
        let first = search.find().unwrap();
        fs::remove_file(&map).unwrap();
        now();
        assert!(Arc::ptr_eq(&search.find().unwrap(), &first), "removed");
        fixture.write(&map);
        now();
        assert!(!Arc::ptr_eq(&search.find().unwrap(), &first), "replaced");
        let search = Arc::new(search);
        let child = PerfMapFile { inherited: vec![Arc::downgrade(&search)], ..fixture.search(None) };
        fs::remove_file(&map).unwrap();
        assert!(child.find().is_ok(), "its parent's");
        drop(search);
        assert!(child.find().is_err());
    }
}
