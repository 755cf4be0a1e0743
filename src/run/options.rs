//! The options of a run, and of each of its views.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cli::values::{CommPattern, PidOrName, RingSize};
use crate::cli::{CallGraph, CgroupList, CpuList, RunArgs, TaskList, TidList, ViewArgs, usage};
use crate::destination::{FlameGraph, Heatmap, MetricsAddress};
use crate::digits::format_ns;
use crate::escape::escape;
use crate::host::{Host, processes, threads};
use crate::output::drawing::heatmap::TICK;
use crate::perf::evlist::Watermark;
use crate::perf::evsels::halves::ChainHalves;
use crate::perf::target::{Cgroup, Target, Tasks, find_cgroup};
use crate::task::{family, listed, procfs, script_of};
use crate::tep::format::{likeness, nearest};

/// The name of a run of several views.
pub const SEVERAL: &str = "run";

/// How often metrics are published without `-i`.
const METRICS_PERIOD: Duration = Duration::from_secs(1);

const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// The shortest counting time with which a dry run is meaningful.
const SHORTEST_COUNTING: Duration = Duration::from_millis(100);

/// The options of a run, independent of its profilers.
#[derive(Debug)]
pub struct Options {
    /// What lines about the whole run begin with: the name of its one view, or `run`.
    pub name: String,
    pub views: Vec<ViewOptions>,
    pub target: Target,
    pub interval: Option<Duration>,
    /// Some output wants tables this often, independent of how often they are printed.
    pub quiet: Option<Duration>,
    /// Where the metrics are served.
    pub metrics: Option<MetricsAddress>,
    pub ring: Option<RingSize>,
    /// When a ring wakes the reader.
    pub watermark: Watermark,
    /// The run stops after this time.
    pub duration: Option<Duration>,
    pub output: Option<PathBuf>,
    pub json: bool,
    /// Whether a screen is wanted.
    pub live: LiveWish,
    pub demangle: bool,
    /// Memory for symbols of files, in bytes.
    pub symbol_memory: Option<u64>,
    pub verbose: bool,
    pub strict_loss: bool,
    pub workload: Vec<OsString>,
    /// `--dry-run`: only forecast the cost.
    pub dry_run: bool,
    /// The run must go on even while a CPU answers no interrupts.
    pub paced: bool,
    /// The output must survive a crash of the machine.
    pub durable: bool,
    /// Names of the processes of the target. A process that gets such a name later belongs to the target.
    pub names: Vec<CommPattern>,
    /// Notes for the user on how the options were understood.
    pub notes: Vec<String>,
}

/// Whether the user wants a screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveWish {
    /// A screen where it is useful.
    #[default]
    Fitting,
    /// `--live`
    Always,
    /// `--no-live`
    Never,
}

impl LiveWish {
    /// # Errors
    /// `--live` with an option that leaves nothing to show.
    pub fn of(args: &RunArgs) -> Result<LiveWish> {
        if !args.live {
            return Ok(if args.no_live { LiveWish::Never } else { LiveWish::Fitting });
        }
        let others = [("--json", args.json), ("-o", args.output.is_some()), ("--dry-run", args.dry_run)];
        if let Some((option, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
            return Err(usage(format!("--live shows tables on the terminal, and {option} asks for something else")));
        }
        if args.interval.is_none() {
            return Err(usage("--live shows the tables of intervals: give their length, as in -i 1000"));
        }
        Ok(LiveWish::Always)
    }
}

/// The options of a view: one profiler of a run.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// The name of the view for the user: by default the profiler's.
    pub name: String,
    pub profiler: &'static str,
    /// `-g`
    pub shows_stacks: bool,
    /// How the callchains of programs are found.
    pub call_graph: CallGraph,
    /// Which halves of callchains are wanted.
    pub halves: ChainHalves,
    pub flame: Option<FlameGraph>,
    pub heatmap: Option<Heatmap>,
    /// Unit of the widths of the flame graph.
    pub weight: Arc<str>,
    /// The view stops after this number of samples.
    pub samples: Option<u64>,
    /// The profiler has tables, at the end of each interval.
    pub reports: bool,
    /// The profiler's first table.
    pub main_table: &'static str,
    /// Options that make the kernel write fewer samples of the profiler's most frequent event.
    pub narrowings: &'static [&'static str],
}

impl ViewOptions {
    /// `weight`: unit of the widths of a flame graph.
    pub fn new(args: &ViewArgs, profiler: &'static str, weight: &str) -> ViewOptions {
        ViewOptions {
            name: profiler.to_owned(),
            profiler,
            shows_stacks: args.call_graph.is_some(),
            call_graph: args.call_graph.unwrap_or_default(),
            halves: ChainHalves { user: args.callchains.user(), kernel: args.callchains.kernel() },
            flame: args.flame_graph.clone(),
            heatmap: args.heatmap.clone(),
            weight: weight.into(),
            samples: args.exit_n,
            reports: true,
            main_table: "",
            narrowings: &[],
        }
    }

    /// `-g`, or a flame graph.
    pub fn stacks(&self) -> bool {
        self.shows_stacks || self.flame.is_some()
    }
}

impl Options {
    /// # Errors
    /// A process, thread or cgroup that does not exist; an interval of zero; two views that want the same file.
    pub fn new(args: RunArgs, views: Vec<ViewOptions>) -> Result<Options> {
        check_times(&args)?;
        check_drawings(&args, &views)?;
        let live = LiveWish::of(&args)?;
        let host = Host::default();
        let always_so = args.always_so().filter(|_| args.verbose);
        let mut notes: Vec<String> = always_so.map(str::to_owned).collect();
        let names = args.pids.iter().flat_map(|TaskList(list)| list).filter_map(|word| match word {
            PidOrName::Name(name) => Some(name.clone()),
            PidOrName::Pid(_) => None,
        });
        let names = names.collect();
        let tasks = tasks_of(&args, &host, &mut notes)?;
        let interval = args.interval();
        let for_maps = views.iter().any(|view| view.heatmap.is_some()).then_some(TICK);
        let for_metrics = args.metrics.filter(|_| interval.is_none()).map(|_| METRICS_PERIOD);
        let quiet = for_maps.or(for_metrics); // the shorter one
        Ok(Options {
            name: if let [view] = &views[..] { view.name.clone() } else { SEVERAL.to_owned() },
            views,
            target: Target { wanted: args.cpus.map(|CpuList(cpus)| cpus), tasks },
            interval,
            quiet,
            metrics: args.metrics,
            ring: args.mmap_pages,
            watermark: args.watermark.map(Watermark).unwrap_or_default(),
            duration: args.duration.map(|time| Duration::from_nanos(time.0)),
            output: args.output,
            json: args.json,
            live,
            demangle: !args.no_demangle,
            symbol_memory: args.symbol_memory,
            verbose: args.verbose,
            strict_loss: args.strict_loss,
            workload: args.workload,
            dry_run: args.dry_run,
            paced: false,
            durable: false,
            names,
            notes,
        })
    }

    /// Whether only drawings go to stdout.
    pub fn draws_to_stdout(&self) -> bool {
        self.views.iter().any(|view| view.flame == Some(FlameGraph::Stdout))
    }
}

/// Refuses times that are too short to see anything.
fn check_times(args: &RunArgs) -> Result<()> {
    if let Some(interval) = args.interval().filter(|interval| *interval < SHORTEST_INTERVAL) {
        let asked = format_ns(interval.as_nanos() as u64);
        return Err(usage(format!("-i {asked} is too short: the shortest interval is 1ms")));
    }
    if args.duration.is_some_and(|time| time.0 == 0) {
        return Err(usage("--for 0 would show nothing: give it a time, as in 10s"));
    }
    if args.dry_run && args.duration.is_some_and(|time| Duration::from_nanos(time.0) < SHORTEST_COUNTING) {
        return Err(usage("--dry-run counts for 100 ms at least: give --for more, or leave it out for a second"));
    }
    Ok(())
}

/// The tasks of the target. `notes`: receives notes for the user on how they were found.
fn tasks_of(args: &RunArgs, host: &Host, notes: &mut Vec<String>) -> Result<Tasks> {
    if let Some(TaskList(list)) = &args.pids {
        let pids = resolve_processes(host, list, notes)?;
        return Ok(Tasks::Processes(with_children(host, pids, args.children, notes)));
    }
    if let Some(TidList(tids)) = &args.tids {
        if let Some(tid) = tids.iter().find(|&&tid| procfs::comm(host, tid).is_none()) {
            bail!("no thread {tid}: it may have exited, `ps -eL` lists those that live");
        }
        return Ok(Tasks::Threads(tids.clone()));
    }
    let Some(CgroupList(names)) = &args.cgroups else { return Ok(Tasks::All) };
    let mut groups: Vec<Cgroup> = names.iter().map(|name| find_cgroup(host, name)).collect::<Result<_>>()?;
    // The events of a cgroup include those of the cgroups below it, and each event must be seen once.
    groups.sort_by(|a, b| a.path.cmp(&b.path));
    groups.dedup_by(|below, above| below.path.starts_with(&above.path));
    Ok(Tasks::Cgroups(groups))
}

/// Refuses files that two outputs want.
fn check_drawings(args: &RunArgs, views: &[ViewOptions]) -> Result<()> {
    let flames: Vec<&FlameGraph> = views.iter().filter_map(|view| view.flame.as_ref()).collect();
    let maps: Vec<&Heatmap> = views.iter().filter_map(|view| view.heatmap.as_ref()).collect();
    let to_stdout = flames.iter().filter(|flame| ***flame == FlameGraph::Stdout).count();
    if args.json && !args.dry_run && args.output.is_none() && to_stdout > 0 {
        return Err(usage("--flame-graph - and --json both want stdout: send the JSON lines to a file with -o"));
    }
    if maps.contains(&&Heatmap::Text) && (args.json && !args.dry_run || to_stdout > 0) {
        let other = if args.json { "--json" } else { "--flame-graph -" };
        return Err(usage(format!(
            "--heatmap - is text below the tables, {other} leaves no place for it: give it FILE.svg"
        )));
    }
    let flames = flames.into_iter().map(|flame| ("--flame-graph", "flame graph", flame.path()));
    let maps = maps.into_iter().filter_map(|map| Some(("--heatmap", "heat map", Some(map.path()?))));
    let drawings: Vec<(&str, &str, Option<&Path>)> = flames.chain(maps).collect();
    for (index, (option, what, path)) in drawings.iter().enumerate() {
        if path.is_some() && *path == args.output.as_deref() {
            return Err(usage(format!("-o and {option} name the same file: give each its own")));
        }
        match drawings[..index].iter().find(|(_, _, other)| other == path) {
            Some((other, ..)) if other == option => {
                return Err(usage(format!(
                    "two views draw their {what} in the same place: give each a file of its own"
                )));
            }
            Some((other, ..)) => {
                return Err(usage(format!("{other} and {option} name the same file: give each its own")));
            }
            None => {}
        }
    }
    Ok(())
}

/// The processes of a list. A name without a process becomes a note if other processes were found.
fn resolve_processes(host: &Host, list: &[PidOrName], notes: &mut Vec<String>) -> Result<Vec<i32>> {
    let own = std::process::id() as i32;
    let (mut pids, mut absent) = (Vec::new(), Vec::new());
    for word in list {
        match word {
            PidOrName::Pid(pid) if threads(host, *pid).is_empty() => {
                bail!("no process {pid}: it may have exited, `ps -e` lists those that live");
            }
            PidOrName::Pid(pid) => pids.push(*pid),
            PidOrName::Name(name) => {
                let (mut named, mut scripts) = (Vec::new(), Vec::new());
                for pid in processes(host).into_iter().filter(|pid| *pid != own) {
                    let Some(comm) = procfs::comm(host, pid) else { continue };
                    if name.matches(comm.as_bytes()) {
                        named.push(pid);
                    } else if let Some(script) = script_of(host, pid, comm).filter(|script| name.matches_name(script)) {
                        scripts.push(format!("{} {pid} runs {}", escape(comm.as_bytes()), escape(&script)));
                        named.push(pid);
                    }
                }
                if named.is_empty() {
                    absent.push(name);
                }
                if !scripts.is_empty() {
                    notes.push(format!("by the names of scripts: {}", listed(&scripts)));
                }
                pids.append(&mut named);
            }
        }
    }
    for name in absent {
        let nobody = format!("no process is named '{}'", escape(name.typed().as_bytes()));
        if pids.is_empty() {
            bail!("{nobody}; {}", thread_of_name(host, name).unwrap_or_else(|| like(host, name.typed())));
        }
        notes.push(format!("{nobody}: the others are watched, and so is one that starts later"));
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// The processes with those of their descendants that live already, if they are asked for; else a note tells their number.
fn with_children(host: &Host, mut pids: Vec<i32>, are_asked: bool, notes: &mut Vec<String>) -> Vec<i32> {
    let born = family::family(host, &pids, std::process::id() as i32);
    if are_asked {
        pids.extend(born);
        pids.sort_unstable();
    } else if !born.is_empty() {
        let (children, are) = if born.len() == 1 { ("child", "is") } else { ("children", "are") };
        notes.push(format!(
            "-p: {} {children} that lived before {are} not watched, only later ones: --children watches them, too",
            born.len()
        ));
    }
    pids
}

/// What to say of a name that only threads have.
fn thread_of_name(host: &Host, name: &CommPattern) -> Option<String> {
    let all = processes(host).into_iter().flat_map(|pid| threads(host, pid).into_iter().map(move |tid| (pid, tid)));
    let is_named = |tid: i32| procfs::comm(host, tid).is_some_and(|comm| name.matches(comm.as_bytes()));
    let mut named = all.filter(|(_, tid)| is_named(*tid));
    let (pid, tid) = named.next()?;
    let process = procfs::comm(host, pid).map(|comm| escape(comm.as_bytes())).unwrap_or_default();
    let more = match named.count() {
        0 => String::new(),
        more => format!(" and of {more} more"),
    };
    Some(format!("it is the name of thread {tid} of {process} {pid}{more}: use -t {tid}, or -p {pid}"))
}

/// The names of processes that are most like a name that no process has.
fn like(host: &Host, name: &str) -> String {
    let own = std::process::id() as i32;
    let others = processes(host).into_iter().filter(|pid| *pid != own);
    let mut names: Vec<String> = others.filter_map(|pid| Some(escape(procfs::comm(host, pid)?.as_bytes()))).collect();
    names.sort_unstable();
    names.dedup();
    let alike = names.iter().map(String::as_str).filter(|other| likeness(name, other) > 0);
    match nearest(name, alike, 3).as_slice() {
        [] => "`ps -eo comm` lists the names".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_a_screen_are_refused() {
        let live = RunArgs { live: true, interval: Some(crate::cli::values::Time(1)), ..RunArgs::default() };
        assert_eq!(LiveWish::of(&live).unwrap(), LiveWish::Always);
        let json = RunArgs { json: true, ..live.clone() };
        let at_end = RunArgs { interval: None, ..live.clone() };
        let to_file = RunArgs { output: Some("x".into()), ..live };
        for (args, word) in [(json, "--json"), (at_end, "-i 1000"), (to_file, "-o")] {
            let told = LiveWish::of(&args).unwrap_err().to_string();
            assert!(told.contains(word), "{told}");
        }
        let never = RunArgs { no_live: true, json: true, ..RunArgs::default() };
        assert_eq!(LiveWish::of(&never).unwrap(), LiveWish::Never);
        assert_eq!(LiveWish::of(&RunArgs::default()).unwrap(), LiveWish::Fitting);
    }
}
