//! Finds the perf map of a process, and checks that the process itself wrote it. A worker does that: the /tmp of the
//! process may be on a file system that does not answer.
//!
//! Anybody with write access to a /tmp can put such a file there: a link to a file that only root may read, or names
//! for the code of other users.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, Answered, AskedOf, Question, WorkerContext};
use crate::symbol::opening::{open_regular_below, place_of};
use crate::symbol::unnamed::{JIT_NO_MAP, NO_ANSWER, UnnamedReason};
use crate::task::procfs;

const LINK: UnnamedReason = "perf map behind a link";
const NO_FILE: UnnamedReason = "perf map is no file";
const FOREIGN: UnnamedReason = "perf map of another user";
const OTHERS_MAY_WRITE: UnnamedReason = "perf map that others may write";

/// True for the reasons that no longer hold once the process writes a map of its own.
pub fn may_be_replaced(reason: UnnamedReason) -> bool {
    [JIT_NO_MAP, LINK, NO_FILE, FOREIGN, OTHERS_MAY_WRITE].contains(&reason)
}

/// The map is searched for again no sooner than this: it may be written late, or be replaced.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);

/// The perf map of a process, which may write one at any time.
#[derive(Debug)]
pub struct PerfMapFile {
    host: Host,
    process: MapProcess,
    /// When the run began: the map of a process that has exited must be younger.
    began: SystemTime,
    /// The maps of its ancestors, for code generated before the fork.
    inherited: Vec<Weak<PerfMapFile>>,
    runtime: Option<Runtime>,
    state: Mutex<MapSearch>,
}

/// Run-time compilers, by the name of the program: each has its own option to write a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    Java,
    Node,
    Python,
}

impl Runtime {
    fn of(host: &Host, pid: i32) -> Option<Runtime> {
        let program = procfs::program(host, pid)?;
        let name = program.file_name()?.to_str()?;
        let starts = [("java", Runtime::Java), ("node", Runtime::Node), ("python", Runtime::Python)];
        starts.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, runtime)| runtime)
    }

    /// What makes the program write a map.
    pub fn cure(self) -> &'static str {
        match self {
            Runtime::Java => "`jcmd PID Compiler.perfmap` (Java 17 and newer)",
            Runtime::Node => "`node --perf-basic-prof`",
            Runtime::Python => "`python3 -X perf`",
        }
    }

    pub const ALL: [Runtime; 3] = [Runtime::Java, Runtime::Node, Runtime::Python];
}

/// A process whose map is searched for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapProcess {
    pub pid: i32,
    /// Start time, which tells the process from a later one with this pid. None when it has exited.
    pub started: Option<u64>,
    /// The user (uid), when last read.
    pub owner: Option<u32>,
    /// Parent, grandparent and so on.
    pub ancestors: Vec<i32>,
}

/// The place (O_PATH) of a perf map that was found.
#[derive(Debug)]
pub struct MapPlace {
    pub file: File,
    /// The uid of the map's owner.
    pub user: u32,
}

/// Searches for the map of a process. A map that was found before comes with the question, and is kept while it has a
/// file name.
#[derive(Debug, Serialize, Deserialize)]
pub struct FindPerfMap {
    process: MapProcess,
    began: SystemTime,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapFound {
    /// The map that came with the question.
    Same,
    /// Another map, which comes with the answer; the uid of its owner.
    Other(u32),
    /// There is no trustworthy map.
    Nothing(NoMap),
}

/// Why there is no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoMap {
    Nowhere,
    Link,
    NoFile,
    Foreign,
    OthersMayWrite,
}

impl From<NoMap> for UnnamedReason {
    fn from(why: NoMap) -> UnnamedReason {
        match why {
            NoMap::Nowhere => JIT_NO_MAP,
            NoMap::Link => LINK,
            NoMap::NoFile => NO_FILE,
            NoMap::Foreign => FOREIGN,
            NoMap::OthersMayWrite => OTHERS_MAY_WRITE,
        }
    }
}

impl Question for FindPerfMap {
    /// The result, and the user (uid) of the process as it is now known.
    type Answer = (MapFound, Option<u32>);

    fn answer(&self, context: &mut WorkerContext) -> (MapFound, Option<u32>) {
        let mut owner = self.process.owner;
        if context.file(0).is_some_and(|file| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)) {
            return (MapFound::Same, owner);
        }
        let found = match self.search(&context.host, &mut owner) {
            Ok(file) => match (place_of(&file), file.metadata()) {
                (Ok(place), Ok(metadata)) => {
                    context.give(place);
                    MapFound::Other(metadata.uid())
                }
                _ => MapFound::Nothing(NoMap::NoFile),
            },
            Err(why) => MapFound::Nothing(why),
        };
        (found, owner)
    }
}

/// State of the search.
#[derive(Debug)]
struct MapSearch {
    owner: Option<u32>,
    found: Result<Arc<MapPlace>, UnnamedReason>,
    search_at: Option<Instant>,
}

impl PerfMapFile {
    pub fn new(host: &Host, process: MapProcess, inherited: Vec<Weak<PerfMapFile>>, began: SystemTime) -> PerfMapFile {
        let state = MapSearch { owner: process.owner, found: Err(JIT_NO_MAP), search_at: None };
        let runtime = process.started.and_then(|_| Runtime::of(host, process.pid));
        PerfMapFile { host: host.clone(), process, began, inherited, runtime, state: Mutex::new(state) }
    }

    /// The run-time compiler of the process, if known.
    pub fn runtime(&self) -> Option<Runtime> {
        self.runtime
    }

    /// A map that was found already.
    #[cfg(test)]
    pub fn of(file: File) -> PerfMapFile {
        let process = MapProcess { pid: -1, started: None, owner: None, ancestors: Vec::new() };
        let map = PerfMapFile::new(&Host::default(), process, Vec::new(), SystemTime::now());
        map.state.lock().unwrap().found = Ok(Arc::new(MapPlace { file, user: 0 }));
        map
    }

    /// The current map of the process, or that of an ancestor.
    ///
    /// # Errors
    /// No trustworthy map exists, for the reason given.
    pub fn find(&self) -> Result<Arc<MapPlace>, UnnamedReason> {
        let own = self.find_own();
        own.or_else(|why| self.inherited.iter().find_map(|ancestor| ancestor.upgrade()?.known()).ok_or(why))
    }

    fn known(&self) -> Option<Arc<MapPlace>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).found.as_ref().ok().cloned()
    }

    fn find_own(&self) -> Result<Arc<MapPlace>, UnnamedReason> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.search_at.is_none_or(|next| now >= next) {
            state.search_at = Some(now + SEARCH_AGAIN);
            self.search(&mut state);
        }
        state.found.clone()
    }

    fn search(&self, state: &mut MapSearch) {
        let process = MapProcess { owner: state.owner, ..self.process.clone() };
        let pid = process.pid;
        let question = FindPerfMap { process, began: self.began };
        let known: Vec<&dyn AsFd> = state.found.iter().map(|known| &known.file as &dyn AsFd).collect();
        let answered = outside::ask_with(&self.host, AskedOf::file_of(pid), &question, &known);
        let Ok(Answered { value: (found, owner), mut files }) = answered else {
            // A map that was read before is kept: its names still hold.
            if state.found.is_err() {
                state.found = Err(NO_ANSWER);
            }
            return;
        };
        state.owner = owner;
        match found {
            MapFound::Same => {}
            MapFound::Other(user) => {
                state.found = files.pop().ok_or(NO_FILE).map(|file| Arc::new(MapPlace { file, user }));
            }
            // A map that was removed is kept, too.
            MapFound::Nothing(why) if state.found.is_err() => state.found = Err(why.into()),
            MapFound::Nothing(_) => {}
        }
    }
}

impl FindPerfMap {
    fn search(&self, host: &Host, owner: &mut Option<u32>) -> Result<File, NoMap> {
        let MapProcess { pid, started, ancestors, .. } = &self.process;
        let has_exited = started.is_none() || procfs::start_ticks(host, *pid) != *started;
        if !has_exited {
            *owner = procfs::owner(host, *pid).or(*owner);
        }
        // For a process that exited before its user was read, only files of our own user are trusted.
        let owner = owner.or_else(|| has_exited.then(|| nix::unistd::geteuid().as_raw())).ok_or(NoMap::Nowhere)?;
        let root = |pid: &i32| host.proc.join(pid.to_string()).join("root");
        // In the root directories of its ancestors, the file is named by the pid that we know.
        let elsewhere = ancestors.iter().map(root).chain([PathBuf::from("/")]).map(|root| (root, *pid));
        let own = if has_exited { Vec::new() } else { namespace_pids(host, *pid) };
        let places = own.into_iter().map(|number| (root(pid), number)).chain(elsewhere);
        let mut refused = None;
        for (root, number) in places {
            let path = format!("tmp/perf-{number}.map");
            let began = has_exited.then_some(self.began);
            match open_regular_below(&root, Path::new(&path)) {
                Ok(file) => match why_untrusted(&file, owner, began) {
                    None => return Ok(file),
                    why => refused = refused.or(why),
                },
                Err(err) if err.raw_os_error() == Some(libc::ELOOP) => refused = refused.or(Some(NoMap::Link)),
                Err(err) if err.kind() == std::io::ErrorKind::InvalidInput => refused = refused.or(Some(NoMap::NoFile)),
                Err(_) => {}
            }
        }
        Err(refused.unwrap_or(NoMap::Nowhere))
    }
}

/// The pids of a process in its pid namespaces, the innermost first: the process names its file by that.
fn namespace_pids(host: &Host, pid: i32) -> Vec<i32> {
    let status = fs::read_to_string(host.proc.join(format!("{pid}/status"))).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers = numbers.split_ascii_whitespace().rev().filter_map(|word| word.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    if numbers.is_empty() { vec![pid] } else { numbers } // before 4.1
}

/// Why a file cannot be the map of a process of this user; with `began`, of one that lived after that time.
fn why_untrusted(file: &File, owner: u32, began: Option<SystemTime>) -> Option<NoMap> {
    const OTHERS_WRITE: u32 = 0o022;
    const CLOCK_TICK: Duration = Duration::from_secs(1); // granularity of file times
    let Ok(meta) = file.metadata() else { return Some(NoMap::NoFile) };
    let is_later = |began: SystemTime| {
        let began = began.checked_sub(CLOCK_TICK).unwrap_or(began);
        meta.modified().is_ok_and(|time| time >= began)
    };
    if meta.uid() != owner {
        Some(NoMap::Foreign)
    } else if meta.mode() & OTHERS_WRITE != 0 {
        Some(NoMap::OthersMayWrite)
    } else {
        (!began.is_none_or(is_later)).then_some(NoMap::Nowhere)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A /proc in which process 7 is pid 1 of its own namespace, and 6 its parent.
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

        /// Process 7 exits, and its pid is reused by a process of another user.
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

        /// A new search, with nothing found yet.
        fn search(&self, owner: Option<u32>) -> PerfMapFile {
            let host = Host { proc: self.dir.path().into(), ..Host::default() };
            let started = procfs::start_ticks(&host, 7);
            let process = MapProcess { pid: 7, started, owner, ancestors: vec![6] };
            PerfMapFile::new(&host, process, Vec::new(), self.began)
        }

        fn find(&self) -> Result<Arc<MapPlace>, UnnamedReason> {
            self.search(None).find()
        }
    }

    #[test]
    fn only_a_map_of_the_process_itself_is_trusted() {
        let fixture = Fixture::new();
        assert_eq!(fixture.find().err(), Some(JIT_NO_MAP));
        let map = fixture.map(7, 1);
        fixture.write(&map);
        assert!(fixture.find().is_ok());
        for mode in [0o664, 0o646, 0o622] {
            fs::set_permissions(&map, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(fixture.find().err(), Some(OTHERS_MAY_WRITE), "{mode:o}");
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
        assert!(fixture.find().is_ok(), "under its pid outside of the namespace");
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
        fixture.write(&fixture.map(7, 1)); // belongs to the process that reuses the pid
        fixture.write(&fixture.map(6, 7));
        let search = |owner| PerfMapFile {
            process: MapProcess { started: None, owner, ..fixture.search(None).process },
            ..fixture.search(owner)
        };
        assert!(search(uid).find().is_ok() && before.find().is_ok());
        assert!(search(None).find().is_ok(), "the user is unknown, but the file is ours");
        assert_eq!(search(uid.map(|uid| uid + 1)).find().err(), Some(FOREIGN));
        let old = File::options().write(true).open(fixture.map(6, 7)).unwrap();
        old.set_modified(fixture.began - Duration::from_secs(60)).unwrap();
        assert_eq!(search(uid).find().err(), Some(JIT_NO_MAP), "of an earlier process");
    }

    #[test]
    fn a_late_or_replaced_file_is_found() {
        let fixture = Fixture::new();
        let search = fixture.search(None);
        let now = || search.state.lock().unwrap().search_at = None;
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
