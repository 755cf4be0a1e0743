//! Weighted stacks with names. Stacks with equal names are merged, and shared frames are stored once, in `tree`.

mod sum;
mod tree;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::escape::escape;
use crate::output::stack_weights::fold::sum::FoldSum;
use crate::output::stack_weights::fold::tree::{
    FrameNode, FrameTree, FunctionTable, IN_SOURCE, NO_ADDRESS, NONE, PROGRAM, TextTable,
};
use crate::stats::TopK;
use crate::stats::weights::{Weight, Weighted};
use crate::symbol::StackId;
use crate::symbol::naming::name_cache::FunctionName;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::unnamed::Unnamed;
use crate::task::Comm;

/// Kernel functions in which an idle CPU waits. Samples of the idle task in any other function are work: interrupts.
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

/// Suffix of a kernel frame in folded text, as the other flame graph tools write it.
const IN_KERNEL: &str = "_[k]";
/// Suffix of a frame of code generated at run time, named by a perf map.
pub const MADE_AT_RUN_TIME: &str = "_[j]";

/// Stands for a stack whose callchain was missing or not kept.
const NO_STACK: &str = "[no stack]";

/// Approximate limit of the bytes of all stacks. Beyond it, the lightest stacks are summed up in one.
const MAX_BYTES: usize = 16 << 20;

/// Bytes of an entry in a map that is two thirds full.
const GROUP_BYTES: usize = size_of::<(FoldKey, FoldSum)>() * 3 / 2;

/// Stacks of one program with equal names.
#[derive(Clone, Debug)]
pub struct StackGroup {
    pub comm: Comm,
    /// None: several processes.
    pub pid: Option<i32>,
    pub weight: Weight,
    /// Innermost first. The address of a frame is one of several that have the same name.
    pub frames: Vec<NamedFrame>,
}

/// Weights of stacks, without those of idle CPUs, summed up by function and by stack.
///
/// Memory is bounded, since a run may last for days and see new stacks all the time. When there are too many, the
/// weights of the lightest stacks are moved to `<others>`; a stack that was moved and is seen again starts from zero.
#[derive(Clone, Debug)]
pub struct Folded {
    groups: FxHashMap<FoldKey, FoldSum>,
    tree: FrameTree,
    texts: TextTable,
    programs: FxHashMap<u32, Comm>,
    functions: FunctionTable,
    total: Weight,
    bytes: usize,
    most_bytes: usize,
}

/// The identity of a stack: the text of its program, and the nodes where its two parts end in the tree. There are two
/// parts because most stacks combine one of few kernel parts with one of few user parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FoldKey {
    program: u32,
    /// The node of the frames outside of the outermost kernel frame.
    outer: u32,
    inner: u32,
}

impl Default for Folded {
    fn default() -> Folded {
        Folded::within(MAX_BYTES)
    }
}

impl Folded {
    pub fn new(rows: &[Weighted], name: impl FnMut(StackId) -> Vec<NamedFrame>) -> Folded {
        let mut folded = Folded::default();
        folded.extend(rows, name);
        folded
    }

    /// The stacks of one of `count` views, which share the limit of bytes.
    pub fn of_one_of(count: usize) -> Folded {
        Folded::within(MAX_BYTES / count.max(1))
    }

    fn within(most_bytes: usize) -> Folded {
        Folded {
            groups: FxHashMap::default(),
            tree: FrameTree::default(),
            texts: TextTable::default(),
            programs: FxHashMap::default(),
            functions: FunctionTable::default(),
            total: Weight::default(),
            bytes: 0,
            most_bytes,
        }
    }

    /// Adds the weights of more stacks.
    pub fn extend(&mut self, rows: &[Weighted], mut name: impl FnMut(StackId) -> Vec<NamedFrame>) {
        for row in rows {
            let frames = row.stack.map_or_else(Vec::new, &mut name);
            if !is_idle(row.pid, &frames) {
                self.add(row, &frames);
            }
        }
    }

    fn add(&mut self, row: &Weighted, frames: &[NamedFrame]) {
        self.total = self.total.and(row.weight);
        let innermost = self.function(innermost(frames));
        self.functions.add(innermost, row.weight);
        self.count(row.comm, FoldSum::new(row, frames), frames);
        if self.bytes > self.most_bytes {
            self.thin();
        }
    }

    /// Adds to the weight of a stack.
    fn count(&mut self, comm: Comm, sum: FoldSum, frames: &[NamedFrame]) {
        let program = self.text(&program(comm));
        self.programs.entry(program).or_insert(comm);
        // An address that only looks like a kernel address is in no module.
        let is_kernels = |frame: &NamedFrame| frame.module.is_some() && is_kernel(frame);
        let kernel = frames.iter().rposition(is_kernels).map_or(0, |outermost| outermost + 1);
        let (inner, outer) = frames.split_at(kernel);
        let outer = if outer.is_empty() { NONE } else { self.part(outer, PROGRAM | program, sum.weight.amount) };
        let key = FoldKey { program, outer, inner: self.part(inner, NONE, sum.weight.amount) };
        match self.groups.entry(key) {
            Entry::Occupied(entry) => entry.into_mut().add(sum),
            Entry::Vacant(entry) => {
                self.bytes += GROUP_BYTES;
                entry.insert(sum);
            }
        }
    }

    /// The node where frames, innermost first, end in the tree, inside of `root`.
    fn part(&mut self, frames: &[NamedFrame], root: u32, heaviest: u64) -> u32 {
        frames.iter().rev().fold(root, |around, frame| {
            let text = self.text(&frame_text(frame));
            let function = self.function(frame.function());
            let (addr, offset) = match frame.line {
                Some(line) => (IN_SOURCE, line.into()),
                None => (frame.addr.unwrap_or(NO_ADDRESS), frame.offset),
            };
            let (number, bytes) = self.tree.number(FrameNode { around, text, function, addr, offset, heaviest });
            self.bytes += bytes;
            number
        })
    }

    fn text(&mut self, text: &str) -> u32 {
        let (number, bytes) = self.texts.number(text);
        self.bytes += bytes;
        number
    }

    fn function(&mut self, function: FunctionName) -> u32 {
        let (number, bytes) = self.functions.number(function);
        self.bytes += bytes;
        number
    }

    /// Keeps the heaviest functions and stacks, in half of the bytes.
    fn thin(&mut self) {
        let before = std::mem::replace(self, Folded::within(self.most_bytes));
        self.total = before.total;
        self.keep_functions(before.functions.sums.iter().filter(|(_, sum)| sum.amount > 0).cloned().collect());
        let mut groups: Vec<(FoldKey, FoldSum)> = before.groups.iter().map(|(key, sum)| (*key, *sum)).collect();
        groups.sort_unstable_by_key(|(_, sum)| Reverse(sum.weight));
        let mut others = Weight::default();
        for (key, sum) in groups {
            if self.bytes < self.most_bytes / 2 {
                self.count(before.comm(key), sum, &before.frames(key, sum.guessed));
            } else {
                others = others.and(sum.weight);
            }
        }
        self.count(Comm::new(b"<others>"), FoldSum { pid: Some(0), weight: others, guessed: None }, &[]);
    }

    fn keep_functions(&mut self, mut functions: Vec<(Arc<FunctionName>, Weight)>) {
        const PART: usize = 8; // functions may take 1/PART of the bytes
        functions.sort_unstable_by_key(|(_, sum)| Reverse(*sum));
        let mut others = Weight::default();
        for (function, sum) in functions {
            if self.bytes < self.most_bytes / PART {
                let function = self.function((*function).clone());
                self.functions.add(function, sum);
            } else {
                others = others.and(sum);
            }
        }
        let function = self.function(FunctionName { name: Err("others".into()), module: None });
        self.functions.add(function, others);
    }

    /// Weight of all stacks.
    pub fn total(&self) -> Weight {
        self.total
    }

    /// Folded lines, sorted: `comm;outermost;...;innermost WEIGHT`.
    pub fn lines(&self) -> Vec<String> {
        let groups = self.groups.iter();
        let mut lines: Vec<String> =
            groups.map(|(key, sum)| format!("{} {}", self.line(*key), sum.weight.amount)).collect();
        lines.sort_unstable();
        lines
    }

    fn line(&self, key: FoldKey) -> String {
        let mut texts: Vec<&str> = self.nodes(key).map(|node| self.texts.text(node.text)).collect();
        if texts.is_empty() {
            texts.push(NO_STACK);
        }
        texts.push(self.texts.text(key.program));
        texts.reverse();
        texts.join(";")
    }

    /// Nodes of the frames, innermost first.
    fn nodes(&self, key: FoldKey) -> impl Iterator<Item = &FrameNode> {
        self.tree.outwards(key.inner).chain(self.tree.outwards(key.outer))
    }

    fn frames(&self, key: FoldKey, guessed: Option<u16>) -> Vec<NamedFrame> {
        let named = |(at, node): (usize, &FrameNode)| {
            let (function, _) = self.functions.sums.get(node.function as usize)?;
            Some(NamedFrame {
                addr: (node.addr < IN_SOURCE).then_some(node.addr),
                symbol: function.name.clone(),
                offset: if node.addr == IN_SOURCE { 0 } else { node.offset },
                module: function.module.clone(),
                line: (node.addr == IN_SOURCE).then_some(node.offset as u32),
                guessed: guessed.is_some_and(|first| usize::from(first) == at),
            })
        };
        self.nodes(key).enumerate().filter_map(named).collect()
    }

    fn comm(&self, key: FoldKey) -> Comm {
        self.programs.get(&key.program).copied().unwrap_or_default()
    }

    /// The `most` heaviest stacks, the heaviest first.
    pub fn heaviest(&self, most: usize) -> Vec<StackGroup> {
        let mut groups: Vec<(FoldKey, FoldSum)> = self.groups.iter().map(|(key, sum)| (*key, *sum)).collect();
        let by_weight = |(_, one): &(FoldKey, FoldSum), (_, other): &(FoldKey, FoldSum)| other.weight.cmp(&one.weight);
        // Lines are long, so they are made only for stacks that may be among the `most` heaviest.
        if let Some(last) = most.checked_sub(1).filter(|last| *last < groups.len()) {
            let least = groups.select_nth_unstable_by(last, by_weight).1.1.weight;
            groups.retain(|(_, sum)| sum.weight >= least);
        }
        groups.sort_by_cached_key(|(key, sum)| (Reverse(sum.weight), self.line(*key)));
        let group = |(key, sum): (FoldKey, FoldSum)| StackGroup {
            comm: self.comm(key),
            pid: sum.pid,
            weight: sum.weight,
            frames: self.frames(key, sum.guessed),
        };
        groups.into_iter().take(most).map(group).collect()
    }

    /// The functions with the greatest weight of their own, without the functions they called; the heaviest first.
    pub fn functions(&self, most: usize) -> Vec<(FunctionName, Weight)> {
        let sums = self.functions.sums.iter().filter(|(_, sum)| sum.amount > 0);
        let heaviest = TopK::of(most, sums.map(|(function, sum)| ((*sum, Reverse(by_name(function))), function)));
        heaviest.into_sorted().into_iter().map(|((sum, _), function)| ((**function).clone(), sum)).collect()
    }
}

fn by_name(function: &FunctionName) -> (&str, Option<&str>, Option<u64>) {
    let start = function.name.as_ref().err().and_then(|unnamed| unnamed.function);
    (function.name.as_deref().unwrap_or_default(), function.module.as_deref(), start)
}

fn innermost(frames: &[NamedFrame]) -> FunctionName {
    match frames.first() {
        Some(frame) => frame.function(),
        None => FunctionName { name: Err("no stack".into()), module: None },
    }
}

/// True for the idle task while it waits.
fn is_idle(pid: i32, frames: &[NamedFrame]) -> bool {
    let waits = |frame: &NamedFrame| frame.symbol.as_ref().map_or(true, |symbol| IDLE.contains(&&**symbol));
    pid == 0 && frames.first().is_some_and(|frame| is_kernel(frame) && waits(frame))
}

fn is_kernel(frame: &NamedFrame) -> bool {
    // A frame from /proc/TID/stack has no address, but a module; the marker of a truncated stack has no module either.
    frame.addr.map_or(frame.module.is_some() && frame.line.is_none(), |addr| addr >> 63 == 1)
}

/// True for memory that belongs to no file: code there has a name only if a perf map gave it one.
fn is_no_file(module: &str) -> bool {
    module.starts_with("//anon") || module == "[heap]" || module.starts_with("[anon:") || module == "[stack]"
}

/// The first part of a folded line: the program.
fn program(comm: Comm) -> String {
    let mut text = neutral(&if comm.is_empty() { "<gone>".to_owned() } else { escape(comm.as_bytes()) });
    if text.starts_with('#') {
        text.replace_range(..1, "\\x23"); // a line that starts with `#` would be a comment
    }
    text
}

fn frame_text(frame: &NamedFrame) -> String {
    match (&frame.symbol, frame.module.as_deref()) {
        (Ok(symbol), _) => {
            let mut text = neutral(&escape(symbol.as_bytes()));
            if is_kernel(frame) {
                text.push_str(IN_KERNEL);
            } else if frame.module.as_deref().is_some_and(is_no_file) {
                text.push_str(MADE_AT_RUN_TIME);
            }
            text
        }
        (Err(Unnamed { reason, function }), Some(module)) => {
            let name = module.rsplit('/').next().unwrap_or(module).trim_matches(['[', ']']);
            let name = escape(name.as_bytes());
            neutral(&match function {
                Some(start) => format!("{name}+{start:#x}"),
                None => format!("[{name} ({reason})]"),
            })
        }
        (Err(Unnamed { reason, .. }), None) => neutral(&format!("[{reason}]")),
    }
}

/// Replaces characters with a meaning in folded text: semicolons, and the blank before a number at the end, which would
/// be read as a weight.
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

    pub fn named(addr: u64, symbol: Result<&str, &'static str>, module: Option<&str>) -> NamedFrame {
        let frame = NamedFrame::new(symbol.map(Into::into).map_err(Into::into), 0, module.map(Into::into));
        NamedFrame { addr: Some(addr), ..frame }
    }

    fn truncated() -> NamedFrame {
        NamedFrame::new(Ok("[truncated]".into()), 0, None)
    }

    fn seen(samples: u64) -> Weight {
        Weight { amount: samples, samples }
    }

    /// Folds rows of pid, comm, weight and frames, innermost first.
    pub fn folded(rows: &[(i32, &str, u64, Vec<NamedFrame>)]) -> Folded {
        let mut folded = Folded::default();
        for (pid, comm, weight, frames) in rows {
            let row = Weighted { pid: *pid, comm: Comm::new(comm.as_bytes()), stack: None, weight: seen(*weight) };
            if !is_idle(*pid, frames) {
                folded.add(&row, frames);
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
        assert_eq!(folded.total().amount, 31);
        let pids: Vec<Option<i32>> = folded.heaviest(3).iter().map(|group| group.pid).collect();
        assert_eq!(pids, [Some(9), Some(9), Some(8)]);
        assert_eq!(folded.heaviest(9)[3].pid, None);
    }

    #[test]
    fn shared_frames_are_kept_once() {
        let stack = |user: &'static str, addr: u64| {
            let kernel = |name| named(KERNEL + addr, Ok(name), Some("[kernel]"));
            vec![
                kernel("schedule"),
                kernel("do_syscall_64"),
                named(addr, Ok(user), None),
                named(addr, Ok("main"), None),
            ]
        };
        let folded = folded(&[(1, "a", 2, stack("f", 1)), (1, "a", 3, stack("g", 2)), (2, "b", 1, stack("f", 3))]);
        assert_eq!(folded.tree.nodes.len(), 2 + 3 + 2, "f and g of one program share main");
        let heaviest = folded.heaviest(9);
        let brief = |group: &StackGroup| {
            let names = group.frames.iter().map(|frame| frame.symbol.clone().unwrap().to_string());
            (group.comm, group.weight.amount, names.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(brief(&heaviest[0]), (Comm::new(b"a"), 3, "schedule do_syscall_64 g main".to_owned()));
        assert_eq!(brief(&heaviest[1]), (Comm::new(b"a"), 2, "schedule do_syscall_64 f main".to_owned()));
        let addrs =
            |group: &StackGroup| group.frames.iter().map(|frame| frame.addr.unwrap() & 0xff).collect::<Vec<_>>();
        assert_eq!(heaviest.iter().map(addrs).collect::<Vec<_>>(), [[2, 2, 2, 2], [2, 2, 1, 2], [2, 2, 3, 3]]);
        assert_eq!(folded.lines()[2], "b;main;f;do_syscall_64_[k];schedule_[k] 1");
    }

    #[test]
    fn functions_of_a_source_are_no_kernel_functions() {
        let python = |name, line| NamedFrame { addr: None, line: Some(line), ..named(0, Ok(name), Some("a.py")) };
        let stack =
            |line| vec![named(1 << 63 | 2, Ok("schedule"), Some("[kernel]")), python("f", line), python("g", 0)];
        let folded = folded(&[(1, "a", 2, stack(7)), (1, "a", 3, stack(8))]);
        assert_eq!(folded.lines(), ["a;g;f;schedule_[k] 5"]);
        let lines: Vec<Option<u32>> = folded.heaviest(1)[0].frames.iter().map(|frame| frame.line).collect();
        assert_eq!(lines, [None, Some(8), Some(0)], "of the heaviest");
    }

    #[test]
    fn what_one_sample_proves_is_no_guess_in_another() {
        let frame = |name, guessed| NamedFrame { guessed, ..named(1, Ok(name), Some("/a")) };
        let stack = |first: Option<usize>| -> Vec<NamedFrame> {
            ["f", "g", "main"].iter().enumerate().map(|(at, name)| frame(*name, first == Some(at))).collect()
        };
        let guessed = |rows: &[Option<usize>]| -> Vec<bool> {
            let rows: Vec<_> = rows.iter().map(|first| (1, "a", 1, stack(*first))).collect();
            let folded = folded(&rows);
            assert_eq!(folded.lines(), [format!("a;main;g;f {}", rows.len())], "a graph shows no guesses");
            folded.heaviest(1)[0].frames.iter().map(|frame| frame.guessed).collect()
        };
        assert_eq!(guessed(&[Some(1), Some(1)]), [false, true, false]);
        assert_eq!(guessed(&[Some(1), Some(2)]), [false, false, true]);
        assert_eq!(guessed(&[Some(1), None]), [false; 3]);
    }

    #[test]
    fn functions_without_a_name_are_told_apart() {
        let at = |start| NamedFrame {
            symbol: Err(Unnamed { reason: "stripped", function: Some(start) }),
            ..named(1, Ok(""), Some("/bin/my gzip"))
        };
        let folded = folded(&[
            (1, "a", 3, vec![at(0x50), at(0x70)]),
            (1, "a", 2, vec![at(0x60), at(0x70)]),
            (1, "a", 2, vec![at(0x50)]),
            (1, "a", 2, vec![at(0x40)]),
        ]);
        let want = ["gzip+0x40 2", "gzip+0x50 2", "gzip+0x70;my gzip+0x50 3", "gzip+0x70;my gzip+0x60 2"];
        assert_eq!(folded.lines(), want.map(|line| format!("a;my {line}")));
        let functions = folded.functions(9);
        let starts = functions.iter().map(|(function, sum)| (function.name.clone().unwrap_err().function, sum.amount));
        assert_eq!(starts.collect::<Vec<_>>(), [(Some(0x50), 5), (Some(0x40), 2), (Some(0x60), 2)]);
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
            .map(|(function, sum)| (function.module.as_deref().unwrap_or("-").to_owned(), sum.amount))
            .collect();
        assert_eq!(brief, [("x".into(), 7), ("y".into(), 5), ("-".into(), 1)]);
        assert_eq!(folded.functions(1).len(), 1);
    }

    #[test]
    fn idle_samples_are_left_out_but_interrupts_are_counted() {
        let kernel = |name| vec![named(KERNEL, name, Some("[kernel]"))];
        let folded = folded(&[
            (0, "swapper", 100, kernel(Ok("pv_native_safe_halt"))),
            (0, "swapper", 10, kernel(Err("no-perm"))),
            (0, "swapper", 2, kernel(Ok("net_rx_action"))),
            (5, "spin", 1, kernel(Ok("poll_idle"))),
            (0, "", 4, vec![named(1, Ok("main"), None)]),
        ]);
        assert_eq!(folded.total().amount, 7);
    }

    #[test]
    fn each_row_has_the_frames_of_its_stack() {
        let id = crate::symbol::Stacks::new(1 << 20, 127)
            .intern_address(7, true, Default::default(), 1, &mut Default::default())
            .unwrap();
        let row = Weighted { pid: 1, comm: Comm::new(b"a"), stack: Some(id), weight: seen(2) };
        let folded = Folded::new(&[row, Weighted { stack: None, ..row }], |_| vec![named(7, Ok("main"), None)]);
        assert_eq!(folded.lines(), ["a;[no stack] 2", "a;main 2"]);
    }

    /// `many` stacks in `most_bytes`, each seen once, with its own process and function; and one stack that is seen as
    /// often as all of these.
    fn thinned(many: u64, most_bytes: usize) -> Folded {
        let mut folded = Folded::within(most_bytes);
        let mut add = |pid: i32, name: &str| {
            let frames = [named(7, Ok(name), Some("/bin/x")), named(8, Ok("main"), Some("/bin/x"))];
            folded.add(&Weighted { pid, comm: Comm::new(b"x"), stack: None, weight: seen(1) }, &frames);
            assert!(folded.bytes <= most_bytes);
        };
        for number in 0..many {
            add(1, "hot");
            add(number as i32, &format!("cold {number} of them"));
        }
        folded
    }

    #[test]
    fn the_lightest_stacks_are_counted_together() {
        let many = 20_000;
        let folded = thinned(many, 64 << 10);
        assert!(folded.groups.len() < 1000 && folded.functions.sums.len() < 1000 && folded.texts.texts.len() < 1000);
        let heaviest = folded.heaviest(2);
        assert_eq!((heaviest[0].weight.amount, heaviest[0].pid, heaviest[0].frames.len()), (many, Some(1), 2));
        assert_eq!((heaviest[0].frames[0].addr, heaviest[0].frames[0].offset), (Some(7), 0));
        assert_eq!((heaviest[1].comm, heaviest[1].frames.len()), (Comm::new(b"<others>"), 0));
        let sum: u64 = folded.lines().iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!((sum, folded.total().amount), (2 * many, 2 * many), "nothing is lost");
        let functions = folded.functions(usize::MAX);
        assert_eq!((functions[0].0.name.as_deref(), functions[0].1.amount), (Ok("hot"), many));
        assert_eq!(functions[1].0.name, Err("others".into()));
        assert_eq!(functions.iter().map(|(_, sum)| sum.amount).sum::<u64>(), 2 * many);
    }

    #[test]
    fn stacks_that_fit_stay_separate() {
        let folded = thinned(100, 64 << 10);
        assert_eq!((folded.groups.len(), folded.functions(usize::MAX).len()), (101, 101));
        assert_eq!(folded.heaviest(3).iter().map(|group| group.weight.amount).collect::<Vec<u64>>(), [100, 1, 1]);
        assert_eq!(folded.lines()[0], "x;main;cold 0 of them 1");
    }
}
