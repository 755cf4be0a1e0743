//! Probes that a run defines: `kprobe:`, `uprobe:` and return probes.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::caret::caret;
use crate::cli::usage;
use crate::escape::escape;
use crate::event::attributes::{DEFAULT_FUNCTIONS, ProbeArgs};
use crate::event::head::{ProbePoint, SelectorHead};
use crate::event::selector::Selector;
use crate::host::{Host, processes};
use crate::perf::Attr;
use crate::perf::attr::MissingFeatures;
use crate::perf::evsel::Evsel;
use crate::perf::target::Tasks;
use crate::profiler::code::{CodeLocation, NearNames, SearchScope, did_you_mean};
use crate::profiler::function_search::FunctionSearch;
use crate::profiler::{Setup, TracefsFinder};
use crate::symbol::functions::binary::{BinaryFile, has_mapped};
use crate::symbol::kernel::kallsyms::each_function;
use crate::sys;
use crate::sys::perf::Watch;
use crate::task::procfs;
use crate::tep::format::Format;
use crate::tep::probe::events::{DefinitionPart, ProbeGroup, has_kprobes, has_uprobes};
use crate::tep::probe::{FetchArg, Machine, ProbeAddress, ProbeDefinition, ProbeRefusal, ProbeSite, Probes, fetch};

pub const NO_KPROBES: &str = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)";
pub const NO_UPROBES: &str = "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)";

const ROOT_ONLY: &str = "only root may define probes";

/// An event that is not yet in the list, and its format.
pub type SelectedEvent = (Evsel, Arc<Format>);

impl Setup<'_> {
    /// The events that a selector names, not yet in the list. A user function without a file may be found in several
    /// files, each of which is an event. The caller applies filter and attributes, except for the arguments of a probe:
    /// the probe is defined here, and removed when the run ends.
    ///
    /// # Errors
    /// No such event, function or file; arguments that do not parse; a probe that the kernel refuses.
    pub fn events(&self, selector: &Selector) -> Result<Vec<SelectedEvent>> {
        match &selector.head {
            SelectorHead::Tracepoint { system, name } => Ok(vec![self.tracepoint(&format!("{system}:{name}"))?]),
            SelectorHead::Bare(_) => self.events(&*self.with_full_name(selector)?),
            SelectorHead::Kprobe(place) => {
                if !has_kprobes(self.tracefs.get_as_root(ROOT_ONLY)?.root()) {
                    bail!("{}: {NO_KPROBES}", selector.head);
                }
                if let Some(len) = function_len(self.host, place).filter(|len| place.offset >= *len) {
                    bail!(
                        "{}: `{}` has {len} bytes: {:#x} is behind its end",
                        selector.head,
                        place.function,
                        place.offset
                    );
                }
                let site = site(place, false, Machine::of_kernel());
                let address = ProbeAddress::Kernel { function: place.function.clone(), offset: place.offset };
                Ok(vec![self.define(selector, &selector.head, address, &site)?])
            }
            SelectorHead::Uprobe(place, path) => self.in_programs(selector, place, path.as_deref()),
        }
    }

    /// Searches all user functions before a probe is defined. The search may take long: until the first probe is
    /// defined Ctrl-C ends the process at once, later only once the probes can be removed.
    ///
    /// # Errors
    /// As [`Setup::events`], for a selector that is needed.
    pub fn find_functions<'s>(&self, selectors: impl IntoIterator<Item = (&'s Selector, bool)>) -> Result<()> {
        for (selector, is_needed) in selectors {
            if let SelectorHead::Uprobe(place, path) = &selector.head {
                let locations = match self.find_function(selector, place, path.as_deref()) {
                    Err(err) if is_needed => return Err(err),
                    locations => locations,
                };
                self.tracefs.locations.borrow_mut().push((selector.head.clone(), locations));
            }
        }
        Ok(())
    }

    fn find_function(&self, selector: &Selector, place: &ProbePoint, path: Option<&str>) -> Result<Vec<CodeLocation>> {
        let head = &selector.head;
        if !has_uprobes(self.tracefs.get_as_root(ROOT_ONLY)?.root()) {
            bail!("{head}: {NO_UPROBES}");
        }
        let scope = path.map_or_else(|| self.search_scope(), |path| SearchScope::File(path.to_owned()));
        let search = FunctionSearch::new(place, selector.attrs.most.unwrap_or(DEFAULT_FUNCTIONS), scope);
        let (locations, left_out) = search.ask(self.host).with_context(|| head.to_string())?;
        if let Some(left_out) = left_out {
            self.warn(format!("{head}: {left_out}"));
        }
        Ok(locations)
    }

    fn in_programs(&self, selector: &Selector, place: &ProbePoint, path: Option<&str>) -> Result<Vec<SelectedEvent>> {
        let head = &selector.head;
        let found = {
            let mut all = self.tracefs.locations.borrow_mut();
            all.iter().position(|(known, _)| known == head).map(|at| all.swap_remove(at).1)
        };
        let locations = found.unwrap_or_else(|| self.find_function(selector, place, path))?;
        self.note_functions(head, &locations);
        let scope = self.search_scope();
        let mut events = Vec::new();
        let mut file_before: Option<Arc<BinaryFile>> = None;
        for location in locations {
            let shown = escape(location.file.path.as_bytes());
            let is_first =
                file_before.replace(location.file.clone()).is_none_or(|file| !Arc::ptr_eq(&file, &location.file));
            match (path, &scope) {
                (None, _) => self.note(format!("{head} is in {shown}, at byte {:#x}", location.offset)),
                (Some(_), SearchScope::Processes(pids))
                    if is_first && !pids.iter().any(|&pid| has_mapped(self.host, pid, &location.file)) =>
                {
                    self.warn(format!("{head} is not seen yet: no process that is watched has loaded {shown}"));
                }
                _ => {}
            }
            let site = site(place, true, location.machine);
            let user = ProbeAddress::User { fd: location.file.file.as_raw_fd(), offset: location.offset };
            let head = location.function.as_ref().map(|function| head.at_function(function));
            let (evsel, format) = self.define(selector, head.as_ref().unwrap_or(&selector.head), user, &site)?;
            events.push((evsel.in_program(location.file.identity().map(|(_, inode)| inode)), format));
        }
        Ok(events)
    }

    /// For `-v`: the functions that a name stands for, if it is not the full name of a function.
    fn note_functions(&self, head: &SelectorHead, locations: &[CodeLocation]) {
        let mut names: Vec<&str> = locations.iter().filter_map(|location| location.function.as_deref()).collect();
        let count = names.len();
        names.dedup();
        if count > 0 {
            self.note(format!("{head} is {count} functions: {}", names.join(" ")));
        }
    }

    /// The scope in which a function is searched.
    fn search_scope(&self) -> SearchScope {
        let of_threads = |tids: Vec<i32>| {
            let mut pids: Vec<i32> = tids.iter().filter_map(|&tid| procfs::pid_of(self.host, tid)).collect();
            pids.sort_unstable();
            pids.dedup();
            SearchScope::Processes(pids)
        };
        match (&self.target.tasks, self.command) {
            (Tasks::Processes(pids), _) => SearchScope::Processes(pids.clone()),
            (Tasks::Threads(tids), _) => of_threads(tids.clone()),
            (Tasks::Cgroups(groups), _) => of_threads(groups.iter().flat_map(|group| group.threads()).collect()),
            (Tasks::All | Tasks::Workload(_), Some(command)) => SearchScope::Command(command.to_owned()),
            (Tasks::All | Tasks::Workload(_), None) => SearchScope::Everything,
        }
    }

    /// Defines a probe at `at`, one of the functions that the selector stands for.
    fn define(
        &self,
        selector: &Selector,
        at: &SelectorHead,
        address: ProbeAddress,
        site: &ProbeSite,
    ) -> Result<SelectedEvent> {
        let (SelectorHead::Kprobe(place) | SelectorHead::Uprobe(place, _)) = at else { bail!("{at} is no probe") };
        let args = match &selector.attrs.args {
            None => Vec::new(),
            Some(args) => fetch::parse(&args.text, site).map_err(|fault| {
                usage(format!(
                    "args of {}: {}{}",
                    selector.head,
                    fault.message,
                    caret(&selector.text, args.offset + fault.offset, 2)
                ))
            })?,
        };
        let definition = ProbeDefinition { address, ret: place.ret, name: place.function.clone(), args };
        let (head, probes) = (at.to_string(), self.tracefs.probes(self.host)?);
        let defined = probes.define(&definition, &head);
        let (system, name) = defined.map_err(|refusal| self.refused(selector, place, &definition, refusal))?;
        let mut format = self.tracefs.get()?.format(&system, &name)?;
        probes.set_id(format.id);
        (format.system, format.name) = at.parts(); // the names that the user knows
        for arg in &definition.args {
            arg.limit.iter().for_each(|limit| format.limit_text(&arg.name, limit));
        }
        let format = Arc::new(format);
        self.tracefs.defined(&format);
        Ok((Evsel::new(head, Attr::tracepoint(format.id)).probe(place.ret), format))
    }

    /// Why the kernel refuses a probe, in one sentence.
    fn refused(
        &self,
        selector: &Selector,
        place: &ProbePoint,
        definition: &ProbeDefinition,
        refusal: ProbeRefusal,
    ) -> anyhow::Error {
        let head = &selector.head;
        let ProbeRefusal { error, logged } = refusal;
        let errno = error.raw_os_error().unwrap_or(0);
        if matches!(errno, libc::EPERM | libc::EACCES | libc::EROFS) {
            return anyhow!(error).context(format!(
                "{head}: this process may not define probes: run as root, on a kernel that is not locked down, with tracefs writable"
            ));
        }
        let said = logged.as_ref().map(|(logged, _)| lower_first(&logged.what));
        if let (Some((logged, DefinitionPart::Arg(number, into))), Some(args)) = (&logged, &selector.attrs.args) {
            let at = column_of(args, &definition.args, *number, *into);
            let is_argument = definition.args.get(*number).is_some_and(|arg| arg.text.contains("$arg"));
            let what = match is_argument && place.ret {
                true => "this kernel knows the arguments of a function only when it starts".to_owned(),
                false => lower_first(&logged.what),
            };
            return anyhow!("{head}: the kernel does not take this: {what}{}", caret(&selector.text, at, 2));
        }
        if let ProbeAddress::Kernel { function, .. } = &definition.address
            && let Some(why) = why_no_kernel_probe(self.host, function, place, errno, said.as_deref())
        {
            return anyhow!("{head}: {why}");
        }
        match said {
            Some(said) => anyhow!("{head}: the kernel does not take this probe: {said}"),
            None => anyhow!(error).context(format!("{head}: the kernel does not take this probe")),
        }
    }
}

fn site(place: &ProbePoint, user: bool, machine: Machine) -> ProbeSite {
    ProbeSite { user, ret: place.ret, entry: place.offset == 0 && !place.ret, machine }
}

/// The offset in the selector's text of the byte that the kernel complains about: byte `into` of argument `number`.
fn column_of(args: &ProbeArgs, parsed: &[FetchArg], number: usize, into: usize) -> usize {
    let at = parsed.get(number).map_or(0, |arg| arg.offset + if arg.as_typed { into } else { 0 });
    args.offset + at.min(args.text.len())
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Why the kernel refuses a kprobe at this place. None: unknown.
fn why_no_kernel_probe(
    host: &Host,
    function: &str,
    place: &ProbePoint,
    errno: i32,
    said: Option<&str>,
) -> Option<String> {
    let name = function.rsplit(':').next().unwrap_or(function); // of a module's function
    let (mut near, mut places) = (NearNames::new(name), 0);
    each_function(&host.proc.join("kallsyms"), |known, _| {
        places += usize::from(known == name);
        near.offer(known);
    });
    match errno {
        _ if errno == libc::EADDRNOTAVAIL || said.is_some_and(|said| said.contains("not unique")) => {
            Some(format!("the kernel has {places} functions `{name}`, and probes none of several"))
        }
        libc::EILSEQ => Some(format!("no instruction starts at `{place}`")),
        libc::EINVAL if Machine::of_kernel() == Machine::Aarch64 && !place.offset.is_multiple_of(4) => {
            Some(format!("no instruction starts at `{place}`"))
        }
        _ if places == 0 => Some(format!(
            "the kernel has no function `{name}` (it may have been inlined){}",
            did_you_mean(&near.names())
        )),
        libc::ENOENT => Some("the kernel has no symbol of the name behind an `@` in args".to_owned()),
        libc::EINVAL if is_blacklisted(name) => Some(format!(
            "the kernel does not let `{name}` be probed: it is on its blacklist (kprobes/blacklist in debugfs)"
        )),
        _ => None,
    }
}

/// The distance from a kernel function to the next one, since newer kernels accept an offset beyond its end. None: the
/// place has no offset, or the function is unknown.
fn function_len(host: &Host, place: &ProbePoint) -> Option<u64> {
    if place.offset == 0 {
        return None;
    }
    let (mut start, mut all) = (None, Vec::new());
    each_function(&host.proc.join("kallsyms"), |name, address| {
        if name == place.function {
            start = start.or(Some(address));
        }
        all.push(address);
    });
    let start = start.filter(|&start| start > 0)?;
    all.into_iter().filter(|&address| address > start).min().map(|next| next - start)
}

/// `0xffffffff81000000-0xffffffff81000020\tname`
fn is_blacklisted(name: &str) -> bool {
    let list = sys::mount::read_debugfs("kprobes/blacklist").unwrap_or_default();
    list.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some(name))
}

impl TracefsFinder {
    /// The probes of this run. Before the first probe is defined, probes that earlier runs have left behind are
    /// removed, and signals that end the process are held back from then on, so that the probes can be removed.
    fn probes(&self, host: &Host) -> Result<&Probes> {
        if self.probes.get().is_none() {
            let root = self.get()?.root();
            sys::poll::hold_ending_signals();
            Probes::sweep(root, |group| is_gone(host, group));
            let _ = self.probes.set(Probes::new(root, own_group(host)?));
        }
        self.probes.get().context("the list of probes vanished")
    }

    /// Keeps the format of a probe.
    fn defined(&self, format: &Arc<Format>) {
        self.formats.borrow_mut().push(format.clone());
    }

    /// The format of a probe of this run, by the id of its event.
    pub fn format_of_probe(&self, id: u32) -> Option<Arc<Format>> {
        self.formats.borrow().iter().find(|format| format.id == id).cloned()
    }

    pub fn has_probes(&self) -> bool {
        self.probes.get().is_some()
    }

    /// The probes of the run that have missed calls, each with the number of missed calls.
    pub fn missed_calls(&self) -> Vec<(String, u64)> {
        self.probes.get().map(Probes::missed).unwrap_or_default()
    }

    /// Closes the events of the run's probes with `close`, so that they no longer cost programs time. Then removes the
    /// probes, in a process that outlives this one: the kernel takes some 65 ms to release the last event of each.
    ///
    /// # Errors
    /// An event of another process holds a probe.
    pub fn end_probes(&self, close: impl FnOnce()) -> Result<()> {
        let Some(probes) = self.probes.get() else {
            close();
            return Ok(());
        };
        let tid = nix::unistd::gettid().as_raw();
        let of_this_thread = |id| MissingFeatures::default().open(&mut Attr::tracepoint(id), Watch::Thread { tid });
        let are_held = probes.hold_all(of_this_thread).is_ok();
        close();
        if are_held && probes.remove_later() { Ok(()) } else { self.remove_probes() }
    }

    /// Removes the run's probes, whose events are closed.
    ///
    /// # Errors
    /// An event of another process holds a probe.
    fn remove_probes(&self) -> Result<()> {
        let removed = self.probes.get().map_or(Ok(()), Probes::remove);
        removed.context(
            "a probe of this run is left behind, since somebody holds it: the next run with a probe removes it",
        )
    }

    /// Tries to define a probe: in perf-prof itself, or in a function that every kernel has.
    ///
    /// # Errors
    /// The reason why it cannot be defined.
    pub fn try_probe(&self, host: &Host, user: bool) -> Result<()> {
        let root = self.get_as_root(ROOT_ONLY)?.root();
        let file = std::fs::File::open(host.proc.join("self/exe"))?;
        let address = match user {
            true if !has_uprobes(root) => bail!(NO_UPROBES),
            false if !has_kprobes(root) => bail!(NO_KPROBES),
            true => ProbeAddress::User { fd: file.as_raw_fd(), offset: sys::page_size() as u64 },
            false => ProbeAddress::Kernel { function: "vfs_read".to_owned(), offset: 0 },
        };
        let definition = ProbeDefinition { address, ret: false, name: "doctor".to_owned(), args: Vec::new() };
        let probes = Probes::new(root, own_group(host)?);
        match probes.define(&definition, "") {
            Ok(_) => Ok(()),
            Err(ProbeRefusal { logged: Some((logged, _)), .. }) => bail!(lower_first(&logged.what)),
            Err(ProbeRefusal { error, .. }) => Err(error.into()),
        }
    }
}

/// The group of this process: by which other runs recognise this process in /proc.
fn own_group(host: &Host) -> Result<ProbeGroup> {
    let link = std::fs::read_link(host.proc.join("self")).ok();
    let pid = link.and_then(|link| link.to_str()?.parse().ok()).context("/proc does not show this process")?;
    let start = procfs::start_ticks(host, pid).context("/proc does not tell when this process was started")?;
    Ok(ProbeGroup { pid, start, namespace: procfs::own_pid_namespace(host).filter(|_| procfs::is_nested(host)) })
}

/// True if the process of a group has certainly ended.
fn is_gone(host: &Host, group: &ProbeGroup) -> bool {
    let own = procfs::own_pid_namespace(host).filter(|_| procfs::is_nested(host));
    match group.namespace {
        namespace if namespace == own => {
            // Without an answer it may be the same process.
            let is_other = || procfs::start_ticks(host, group.pid).is_some_and(|start| start != group.start);
            !procfs::is_alive(host, group.pid) || is_other()
        }
        // A group in a nested pid namespace has ended if that namespace has no process left. Other namespaces are not
        // visible.
        Some(namespace) if own.is_none() => {
            let may_be_in = |&pid: &i32| procfs::pid_namespace(host, pid).is_none_or(|own| own == namespace);
            !processes(host).iter().any(may_be_in)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::write_stat;

    #[test]
    fn the_living_and_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host { proc: dir.path().to_owned(), ..Host::default() };
        let process = |pid: i32, state: char, start: u64, namespace: u64| {
            let task = dir.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            let of_process = dir.path().join(pid.to_string());
            let spaces = [of_process.join("ns"), task.join("ns")];
            spaces.iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
            let rest = vec!["0"; 17].join(" "); // up to the field before the start, which is the 22nd
            write_stat(&task, &format!("{pid} (a) b) {state} {rest} 0 {start} 7"));
            for dir in spaces {
                std::os::unix::fs::symlink(format!("pid:[{namespace}]"), dir.join("pid")).unwrap();
            }
        };
        const INITIAL: u64 = 4_026_531_836;
        process(7, 'S', 99, INITIAL);
        process(8, 'Z', 99, INITIAL);
        process(9, 'S', 5, 4_026_532_000);
        std::os::unix::fs::symlink("7", dir.path().join("self")).unwrap();
        assert_eq!(own_group(&host).unwrap(), ProbeGroup { pid: 7, start: 99, namespace: None });
        let gone = |pid, start, namespace| is_gone(&host, &ProbeGroup { pid, start, namespace });
        assert!(!gone(7, 99, None), "lives");
        assert!(gone(7, 98, None), "the number belongs to another one now");
        assert!(gone(8, 99, None), "a zombie holds nothing");
        assert!(gone(6, 1, None));
        assert!(!gone(1, 1, Some(4_026_532_000)), "somebody lives in there");
        assert!(gone(1, 1, Some(4_026_532_001)), "nobody is left in there");
        std::fs::remove_file(dir.path().join("self")).unwrap();
        std::os::unix::fs::symlink("9", dir.path().join("self")).unwrap();
        assert_eq!(own_group(&host).unwrap().namespace, Some(4_026_532_000));
        assert!(!gone(6, 1, None) && !gone(6, 1, Some(4_026_532_001)), "not ours to judge");
        assert!(gone(6, 1, Some(4_026_532_000)) && !gone(9, 5, Some(4_026_532_000)));
    }

    #[test]
    fn an_error_of_the_kernel_is_about_what_was_typed() {
        let site = ProbeSite { user: true, ret: false, entry: true, machine: Machine::X86_64 };
        let args = ProbeArgs { text: "a=$arg1 b=%di:u64".to_owned(), offset: 10 };
        let parsed = fetch::parse(&args.text, &site).unwrap();
        assert_eq!(column_of(&args, &parsed, 0, 2), 10, "`$arg1` is `%di` to the kernel");
        assert_eq!(column_of(&args, &parsed, 1, 2), 10 + 8 + 2);
        assert_eq!(column_of(&args, &parsed, 9, 2), 10);
        assert_eq!(lower_first("Invalid register name"), "invalid register name");
    }
}
