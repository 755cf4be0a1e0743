//! Weighted stacks with their names: those that read the same are put together.

use rustc_hash::FxHashMap;

use crate::output::escape::escape;
use crate::stats::weights::Weighted;
use crate::symbol::StackId;
use crate::symbol::names::Named;
use crate::task::Comm;

/// Kernel functions in which an idle CPU waits. What happens in the idle task anywhere else is work: interrupts.
const IDLE: [&str; 22] = [
    "acpi_idle_do_entry",
    "acpi_idle_enter",
    "acpi_processor_ffh_cstate_enter",
    "acpi_safe_halt",
    "arch_cpu_idle",
    "cpu_do_idle",
    "cpu_idle",
    "cpu_startup_entry",
    "cpuidle_enter_state",
    "default_idle",
    "default_idle_call",
    "do_idle",
    "intel_idle",
    "intel_idle_ibrs",
    "intel_idle_irq",
    "mwait_idle",
    "mwait_idle_with_hints",
    "mwait_idle_with_hints.constprop.0",
    "native_safe_halt",
    "poll_idle",
    "pv_native_safe_halt",
    "xen_safe_halt",
];

/// The part of a stack that a name stands for in folded text: what the field's tools write for a frame of the kernel.
const IN_KERNEL: &str = "_[k]";

/// Where there was no callchain, or it was not kept.
const NO_STACK: &str = "[no stack]";

/// Stacks told apart at most. What comes beyond is counted in one place.
const MOST: usize = 1 << 16;

/// Stacks of one program that read the same.
#[derive(Clone, Debug)]
pub struct Group {
    pub comm: Comm,
    /// None: several processes.
    pub pid: Option<i32>,
    /// Innermost first; the addresses are those of the heaviest of them.
    pub frames: Vec<Named>,
    pub weight: u64,
    heaviest: u64,
}

/// A function, or why there is no name for it, with its module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: Result<std::sync::Arc<str>, &'static str>,
    pub module: Option<std::sync::Arc<str>>,
}

/// Stacks of tasks on a CPU that was not idle, with their sums by function and by stack.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    groups: FxHashMap<String, Group>,
    functions: FxHashMap<Function, u64>,
    total: u64,
}

impl Folded {
    pub fn new(rows: &[Weighted], name: impl FnMut(StackId) -> Vec<Named>) -> Folded {
        let mut folded = Folded::default();
        folded.extend(rows, name);
        folded
    }

    /// Adds what fell on more stacks.
    pub fn extend(&mut self, rows: &[Weighted], mut name: impl FnMut(StackId) -> Vec<Named>) {
        for row in rows {
            let frames = row.stack.map_or_else(Vec::new, &mut name);
            if !is_idle(row.pid, &frames) {
                self.add(row, frames);
            }
        }
    }

    fn add(&mut self, row: &Weighted, mut frames: Vec<Named>) {
        self.total = self.total.saturating_add(row.weight);
        let function = self.functions.entry(innermost(&frames)).or_default();
        *function = function.saturating_add(row.weight);
        let (mut key, mut comm) = (line(row.comm, &frames), row.comm);
        if self.groups.len() >= MOST && !self.groups.contains_key(&key) {
            (comm, frames) = (Comm::new(b"<others>"), Vec::new());
            key = line(comm, &frames);
        }
        let group = self.groups.entry(key).or_insert_with(|| Group {
            comm,
            pid: Some(row.pid),
            frames: Vec::new(),
            weight: 0,
            heaviest: 0,
        });
        group.weight = group.weight.saturating_add(row.weight);
        group.pid = group.pid.filter(|pid| *pid == row.pid);
        if row.weight > group.heaviest {
            group.heaviest = row.weight;
            group.frames = frames;
        }
    }

    /// Of all stacks.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// `comm;outermost;...;innermost WEIGHT`, sorted.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.groups.iter().map(|(line, group)| format!("{line} {}", group.weight)).collect();
        lines.sort_unstable();
        lines
    }

    /// The heaviest first.
    pub fn heaviest(&self, most: usize) -> Vec<&Group> {
        let mut groups: Vec<(&String, &Group)> = self.groups.iter().collect();
        groups.sort_unstable_by(|(a, one), (b, other)| other.weight.cmp(&one.weight).then(a.cmp(b)));
        groups.into_iter().take(most).map(|(_, group)| group).collect()
    }

    /// What fell on each function itself, without those it called; the heaviest first.
    pub fn functions(&self, most: usize) -> Vec<(Function, u64)> {
        let mut sums: Vec<(&Function, u64)> = self.functions.iter().map(|(function, &sum)| (function, sum)).collect();
        let text = |function: &Function| (function.name.clone().unwrap_or_default(), function.module.clone());
        sums.sort_unstable_by(|(a, one), (b, other)| other.cmp(one).then_with(|| text(a).cmp(&text(b))));
        sums.into_iter().take(most).map(|(function, sum)| (function.clone(), sum)).collect()
    }
}

fn innermost(frames: &[Named]) -> Function {
    match frames.first() {
        Some(frame) => Function { name: frame.symbol.clone(), module: frame.module.clone() },
        None => Function { name: Err("no stack"), module: None },
    }
}

/// True for the idle task while it waits.
fn is_idle(pid: i32, frames: &[Named]) -> bool {
    let waits = |frame: &Named| frame.symbol.as_ref().map_or(true, |symbol| IDLE.contains(&&**symbol));
    pid == 0 && frames.first().is_some_and(|frame| is_kernel(frame) && waits(frame))
}

fn is_kernel(frame: &Named) -> bool {
    // From /proc/TID/stack: no address, but a module; unlike the mark of a cut stack.
    frame.addr.map_or(frame.module.is_some(), |addr| addr >> 63 == 1)
}

/// The folded text of a stack, without its weight: the program, then outermost to innermost.
fn line(comm: Comm, frames: &[Named]) -> String {
    let mut line = neutral(&if comm.is_empty() { "<gone>".to_owned() } else { escape(comm.as_bytes()) });
    if line.starts_with('#') {
        line.replace_range(..1, "\\x23"); // it would be a comment
    }
    if frames.is_empty() {
        line.push(';');
        line.push_str(NO_STACK);
    }
    for frame in frames.iter().rev() {
        line.push(';');
        push_frame(frame, &mut line);
    }
    line
}

fn push_frame(frame: &Named, line: &mut String) {
    match (&frame.symbol, frame.module.as_deref()) {
        (Ok(symbol), _) => {
            line.push_str(&neutral(&escape(symbol.as_bytes())));
            if is_kernel(frame) {
                line.push_str(IN_KERNEL);
            }
        }
        (Err(reason), Some(module)) => {
            let name = module.rsplit('/').next().unwrap_or(module).trim_matches(['[', ']']);
            line.push_str(&neutral(&format!("[{} ({reason})]", escape(name.as_bytes()))));
        }
        (Err(reason), None) => line.push_str(&neutral(&format!("[{reason}]"))),
    }
}

/// Without what has a meaning in folded text: a semicolon, and a number behind a blank, which would be a weight.
fn neutral(text: &str) -> String {
    let text = text.replace(';', ":");
    match text.rsplit_once(' ') {
        Some((head, number)) if number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
            format!("{head}_{number}")
        }
        _ => text,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    pub fn named(addr: u64, symbol: Result<&str, &'static str>, module: Option<&str>) -> Named {
        Named { addr: Some(addr), symbol: symbol.map(Into::into), offset: 0, module: module.map(Into::into) }
    }

    fn truncated() -> Named {
        Named { addr: None, symbol: Ok("[truncated]".into()), offset: 0, module: None }
    }

    /// Rows with a stack each, of pid, comm, weight and frames innermost first.
    pub fn folded(rows: &[(i32, &str, u64, Vec<Named>)]) -> Folded {
        let mut folded = Folded::default();
        for (pid, comm, weight, frames) in rows {
            let row = Weighted { pid: *pid, comm: Comm::new(comm.as_bytes()), stack: None, weight: *weight };
            if !is_idle(*pid, frames) {
                folded.add(&row, frames.clone());
            }
        }
        folded
    }

    #[test]
    fn lines_are_merged_and_sorted() {
        let stack = || {
            vec![
                named(KERNEL, Ok("schedule"), Some("[kernel]")),
                named(1, Ok("read; 7"), Some("/lib/libc.so.6")),
                named(2, Err("stripped"), Some("/usr/bin/x y;z")),
                truncated(),
            ]
        };
        let whole = || stack()[..3].to_vec();
        let bad = vec![named(3, Err("not mapped when last seen"), None), named(4, Ok("a\nb 12"), None)];
        let folded = folded(&[
            (7, "b", 1, stack()),
            (8, "b", 2, stack()),
            (8, "b", 4, whole()),
            (9, "a;1", 8, bad),
            (9, "", 16, Vec::new()),
        ]);
        let want = [
            "<gone>;[no stack] 16",
            "a:1;a\\x0ab_12;[not mapped when last seen] 8",
            "b;[truncated];[x y:z (stripped)];read:_7;schedule_[k] 3",
            "b;[x y:z (stripped)];read:_7;schedule_[k] 4",
        ];
        assert_eq!(folded.lines(), want);
        assert_eq!(folded.total(), 31);
        let pids: Vec<Option<i32>> = folded.heaviest(3).iter().map(|group| group.pid).collect();
        assert_eq!(pids, [Some(9), Some(9), Some(8)]);
        assert_eq!(folded.heaviest(9)[3].pid, None);
    }

    #[test]
    fn functions_are_summed_over_stacks() {
        let function = |name, module| named(1, Ok(name), Some(module));
        let folded = folded(&[
            (1, "a", 3, vec![function("f", "x"), function("main", "x")]),
            (2, "b", 4, vec![function("f", "x")]),
            (2, "b", 5, vec![function("f", "y")]),
            (2, "b", 1, Vec::new()),
        ]);
        let brief: Vec<(String, u64)> = folded
            .functions(9)
            .into_iter()
            .map(|(function, sum)| (function.module.as_deref().unwrap_or("-").to_owned(), sum))
            .collect();
        assert_eq!(brief, [("x".into(), 7), ("y".into(), 5), ("-".into(), 1)]);
        assert_eq!(folded.functions(1).len(), 1);
    }

    #[test]
    fn an_idle_cpu_is_no_work_but_its_interrupts_are() {
        let kernel = |name| vec![named(KERNEL, name, Some("[kernel]"))];
        let folded = folded(&[
            (0, "swapper", 100, kernel(Ok("pv_native_safe_halt"))),
            (0, "swapper", 10, kernel(Err("no-perm"))),
            (0, "swapper", 2, kernel(Ok("net_rx_action"))),
            (5, "spin", 1, kernel(Ok("poll_idle"))),
            (0, "", 4, vec![named(1, Ok("main"), None)]),
        ]);
        assert_eq!(folded.total(), 7);
    }

    #[test]
    fn each_row_is_named_by_its_stack() {
        let id = crate::symbol::Stacks::new(1 << 20, 127).address(7, true, 1, &mut Default::default()).unwrap();
        let row = Weighted { pid: 1, comm: Comm::new(b"a"), stack: Some(id), weight: 2 };
        let folded = Folded::new(&[row, Weighted { stack: None, ..row }], |_| vec![named(7, Ok("main"), None)]);
        assert_eq!(folded.lines(), ["a;[no stack] 2", "a;main 2"]);
    }
}
