//! Task states, decoded with the kernel's own table in the print format of `sched_switch`, never with numbers of ours.

use std::sync::Arc;

use crate::report::Value;
use crate::tep::{FlagTable, Format, drift};

/// A task state, as an index into tables. The first seven are fixed; others get an index and a label when they first
/// occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchedState(u8);

impl SchedState {
    pub const RUNNING: SchedState = SchedState(0);
    pub const SLEEP: SchedState = SchedState(1);
    pub const DISK: SchedState = SchedState(2);
    pub const STOPPED: SchedState = SchedState(3);
    pub const TRACED: SchedState = SchedState(4);
    pub const IDLE: SchedState = SchedState(5);
    pub const RUN_DELAY: SchedState = SchedState(6);

    /// The state at a table's index.
    pub const fn at(index: usize) -> SchedState {
        SchedState(index as u8)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a task does, as far as events tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// Not seen, or its events contradict each other.
    #[default]
    Unknown,
    /// It left its CPU by a hidden switch: it may be blocked, or runnable.
    Away,
    Running,
    /// Waiting for a CPU: after a wake-up, or because it was preempted.
    Runnable {
        woken: bool,
    },
    Blocked(SchedState),
    /// Excluded for the rest of the run.
    Hidden,
}

impl Activity {
    /// None: not known.
    #[inline]
    pub fn state(self) -> Option<SchedState> {
        match self {
            Activity::Running => Some(SchedState::RUNNING),
            Activity::Runnable { .. } => Some(SchedState::RUN_DELAY),
            Activity::Blocked(state) => Some(state),
            Activity::Unknown | Activity::Away | Activity::Hidden => None,
        }
    }
}

const LABELS: [&str; 7] = ["R", "S", "D", "T", "t", "I", "RD"];
/// Unknown states with an index of their own; further ones share the last index.
const MAX_OTHERS: usize = 8;
/// A power of two: running, sleeping and in D state are 0, 1 and 2.
const RECENT: usize = 4;
/// All states that can occur.
pub const STATES: usize = LABELS.len() + MAX_OTHERS;

/// How a task left its CPU, by the `prev_state` of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedOut {
    /// It stays runnable.
    Runnable {
        /// It yielded. False: it was preempted, as far as is known: `prev_state` alone does not distinguish the two.
        yields: bool,
    },
    Blocked(SchedState),
    Dead,
}

impl SwitchedOut {
    pub const PREEMPTED: SwitchedOut = SwitchedOut::Runnable { yields: false };
}

/// Why a task waits for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunDelayKind {
    #[default]
    Woken,
    /// It has not run yet.
    New,
    /// It was preempted.
    Preempted,
    /// It yielded.
    Yielded,
    /// /proc said that it waits; how that began is not known.
    Found,
}

/// Decodes `prev_state`. Decoded values are cached: few different ones occur.
#[derive(Debug)]
pub struct States {
    table: FlagTable,
    met: Vec<(u64, SwitchedOut)>,
    /// The latest entry of `met`, by the low bits of the value.
    recent: [(u64, SwitchedOut); RECENT],
    others: Vec<Arc<str>>,
}

impl States {
    /// Takes the table from the print format. None if the print format has no table for `prev_state`.
    pub fn new(format: &Format) -> Option<States> {
        let table = drift::task_states(format)?;
        let mut states =
            States { table, met: Vec::new(), recent: [(0, SwitchedOut::PREEMPTED); RECENT], others: Vec::new() };
        let zero = states.look_up(0);
        states.recent = [(0, zero); RECENT];
        Some(states)
    }

    #[inline(always)]
    pub fn decode(&mut self, prev_state: u64) -> SwitchedOut {
        let recent = prev_state as usize % RECENT;
        if self.recent[recent].0 != prev_state {
            self.recent[recent] = (prev_state, self.look_up(prev_state));
        }
        self.recent[recent].1
    }

    #[inline(never)]
    fn look_up(&mut self, prev_state: u64) -> SwitchedOut {
        match self.met.iter().find(|(value, _)| *value == prev_state) {
            Some((_, decoded)) => *decoded,
            None => self.meet(prev_state),
        }
    }

    #[cold]
    fn meet(&mut self, prev_state: u64) -> SwitchedOut {
        const MAX_MET: usize = 64;
        let bits = self.table.masked(prev_state);
        let decoded = if bits == 0 { SwitchedOut::PREEMPTED } else { self.name(bits, prev_state) };
        if self.met.len() < MAX_MET {
            self.met.push((prev_state, decoded));
        }
        decoded
    }

    fn name(&mut self, bits: u64, prev_state: u64) -> SwitchedOut {
        let has = |letter: &str| {
            self.table.entries.iter().any(|(mask, name)| name == letter && *mask != 0 && bits & mask == *mask)
        };
        if has("X") || has("Z") || has("x") {
            return SwitchedOut::Dead;
        }
        // Before 4.14 an idle kernel thread is D with the bit "no load" (N).
        let state = if has("I") || has("D") && has("N") {
            SchedState::IDLE
        } else if has("D") {
            SchedState::DISK
        } else if has("S") {
            SchedState::SLEEP
        } else if has("T") {
            SchedState::STOPPED
        } else if has("t") {
            SchedState::TRACED
        } else {
            self.other(prev_state)
        };
        SwitchedOut::Blocked(state)
    }

    /// A state without a fixed index, labelled with the text that the kernel prints for it.
    fn other(&mut self, prev_state: u64) -> SchedState {
        let mut text = Vec::new();
        self.table.render(prev_state, &mut text);
        let label: Arc<str> = String::from_utf8_lossy(&text).into();
        let at = match self.others.iter().position(|other| *other == label) {
            Some(at) => at,
            None if self.others.len() < MAX_OTHERS => {
                self.others.push(label);
                self.others.len() - 1
            }
            None => MAX_OTHERS - 1,
        };
        SchedState((LABELS.len() + at) as u8)
    }

    /// The state that a letter of /proc/TID/stat stands for. None for running and dead tasks.
    pub fn of_letter(letter: u8) -> Option<SchedState> {
        match letter {
            b'S' => Some(SchedState::SLEEP),
            b'D' => Some(SchedState::DISK),
            b'T' => Some(SchedState::STOPPED),
            b't' => Some(SchedState::TRACED),
            b'I' => Some(SchedState::IDLE),
            _ => None,
        }
    }

    /// Whether the letter of /proc/TID/stat may stand for `state`.
    pub fn is_letter_of(letter: u8, state: SchedState) -> bool {
        match States::of_letter(letter) {
            Some(other) => other == state,
            None => state.index() >= LABELS.len() && !matches!(letter, b'R' | b'X' | b'Z'),
        }
    }

    pub fn label(&self, state: SchedState) -> Value {
        match LABELS.get(state.index()) {
            Some(label) => Value::Word(label),
            None => self
                .others
                .get(state.index() - LABELS.len())
                .map_or(Value::Word("?"), |label| Value::Text(label.clone())),
        }
    }

    /// The bits of `prev_state` of which every task that is not runnable has at least one, for a kernel filter.
    pub fn mask(&self) -> u64 {
        self.table.masked(u64::MAX)
    }

    /// The bits of `prev_state` that stand for a letter, for a kernel filter.
    pub fn bit(&self, letter: &str) -> Option<u64> {
        self.table.entries.iter().find(|(mask, name)| name == letter && *mask != 0).map(|(mask, _)| *mask)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A sched_switch whose print format has `table` after the mask of `prev_state`.
    pub fn sched_switch(mask: &str, table: &str) -> Format {
        let text = format!(
            "name: sched_switch\nID: 1\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
             \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
             \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
             \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
             \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
             \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
             \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
             print fmt: \"prev_state=%s\", (REC->prev_state & {mask}) ? __print_flags(REC->prev_state & {mask}, \"|\", {table}) : \"R\"\n"
        );
        Format::parse("sched", &text).unwrap()
    }

    pub const NEW: (&str, &str) = (
        "((0x100 - 1))",
        r#"{ 1, "S" }, { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "X" }, { 32, "Z" }, { 64, "P" }, { 128, "I" }"#,
    );
    const OLD: (&str, &str) = (
        "(2048-1)",
        r#"{ 1, "S"} , { 2, "D" }, { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" }, { 256, "W" }, { 512, "P" }, { 1024, "N" }"#,
    );

    #[test]
    fn letters_come_from_the_kernels_own_table() {
        let cases = [
            (NEW, 0, SwitchedOut::PREEMPTED),
            (NEW, 0x100, SwitchedOut::PREEMPTED), // preempted
            (NEW, 1, SwitchedOut::Blocked(SchedState::SLEEP)),
            (NEW, 2, SwitchedOut::Blocked(SchedState::DISK)),
            (NEW, 4, SwitchedOut::Blocked(SchedState::STOPPED)),
            (NEW, 8, SwitchedOut::Blocked(SchedState::TRACED)),
            (NEW, 16, SwitchedOut::Dead),
            (NEW, 32, SwitchedOut::Dead),
            (NEW, 128, SwitchedOut::Blocked(SchedState::IDLE)),
            (OLD, 130, SwitchedOut::Blocked(SchedState::DISK)), // killable
            (OLD, 0x402, SwitchedOut::Blocked(SchedState::IDLE)),
            (OLD, 64, SwitchedOut::Dead),
        ];
        for ((mask, table), value, want) in cases {
            let mut states = States::new(&sched_switch(mask, table)).unwrap();
            assert_eq!(states.decode(value), want, "{value:#x}");
            assert_eq!(states.decode(value), want, "{value:#x} the second time");
        }
    }

    #[test]
    fn unknown_states_keep_the_kernels_text() {
        let mut states = States::new(&sched_switch(NEW.0, NEW.1)).unwrap();
        let SwitchedOut::Blocked(parked) = states.decode(64) else { panic!("parked is a wait") };
        assert_eq!(states.label(parked), Value::Text("P".into()));
        assert_eq!(states.label(SchedState::RUN_DELAY), Value::Word("RD"));
        assert_eq!((states.bit("D"), states.bit("Q")), (Some(2), None));
        assert_eq!(states.mask(), 255);
        assert_eq!(States::new(&sched_switch(OLD.0, OLD.1)).unwrap().mask(), 2047);
    }
}
