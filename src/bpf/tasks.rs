//! The tasks whose strings a BPF program copies: the target's tasks and the processes that they start.
//!
//! A tracepoint runs its programs for every task of the machine. The wanted tasks are in a map. A second program,
//! attached to `sched:sched_process_fork`, adds their children; this tracepoint fires before the child runs. The pids
//! and tids are those of the initial pid namespace. A child that finds the map full makes the programs copy the strings
//! of all tasks: it costs more, but nothing of the answer is missing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::bpf::assembler::{Assembler, AssemblyError, Label, offset_of};
use crate::bpf::instruction::{Helper, Instruction, JumpCondition, MoveSize, R0, R1, R6, R10};
use crate::sys;
use crate::sys::bpf::{BpfMap, MapKind, id_of, load_tracepoint_program};

/// Room in the map for processes that are started during a run. Ended ones stay in the map.
const MAX_STARTED: u32 = 16_384;
const NAME: &str = "perf_prof_forks";

/// The tasks whose strings are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedTasks<'a> {
    /// Threads, without the threads that they start.
    Threads(&'a [i32]),
    /// Processes, and the processes that they start. `child`: offset of the child's pid in the record of the fork.
    Processes { pids: &'a [i32], child: u16 },
}

/// The map of the tasks whose strings are copied.
#[derive(Debug)]
pub struct TaskMap {
    tasks: BpfMap,
    /// A map with one value: not 0 once the tasks no longer fit in the map of tasks.
    is_full: BpfMap,
    by_process: bool,
    /// The program that adds children.
    forks: Option<OwnedFd>,
}

impl TaskMap {
    /// Makes the map, with the tasks in it.
    ///
    /// # Errors
    /// The kernel refuses a map or the program.
    pub fn new(copied: CopiedTasks<'_>) -> io::Result<TaskMap> {
        let (tids, room, child) = match copied {
            CopiedTasks::Threads(tids) => (tids, 1, None),
            CopiedTasks::Processes { pids, child } => (pids, MAX_STARTED, Some(child)),
        };
        let entries = u32::try_from(tids.len()).unwrap_or(u32::MAX).saturating_add(room);
        let tasks = BpfMap::new(MapKind::ByNumber, 4, entries)?;
        let is_full = BpfMap::new(MapKind::Array, 4, 1)?;
        let mut map = TaskMap { tasks, is_full, by_process: child.is_some(), forks: None };
        tids.iter().try_for_each(|&tid| map.insert(tid))?;
        if let Some(child) = child {
            let program = map.assemble_forks(child).map_err(io::Error::other)?;
            map.forks = Some(load_tracepoint_program(NAME, &program)?);
        }
        Ok(map)
    }

    /// Adds a process of which strings are copied from now on.
    ///
    /// # Errors
    /// The kernel's errno. E2BIG is not returned: a full map makes the programs copy the strings of all tasks.
    pub fn insert(&self, tid: i32) -> io::Result<()> {
        let one = 1_u32.to_ne_bytes();
        match self.tasks.set(tid.cast_unsigned(), &one) {
            Err(err) if err.raw_os_error() == Some(libc::E2BIG) => self.is_full.set(0, &one),
            set => set,
        }
    }

    /// Attaches the program that adds children to the tracepoint of `fork`, for as long as `fork` is open.
    ///
    /// # Errors
    /// The tracepoint has 64 programs already, the kernel's limit.
    pub fn attach(&self, fork: BorrowedFd<'_>) -> io::Result<()> {
        self.forks.as_ref().map_or(Ok(()), |forks| sys::perf::attach_program(fork, forks.as_fd()))
    }

    /// The id of the program that adds children.
    pub fn id(&self) -> Option<u32> {
        id_of(self.forks.as_ref()?.as_fd()).ok()
    }

    /// Adds instructions that jump to `other` unless the current task is in the map.
    pub(super) fn test_task(&self, program: &mut Assembler, other: Label) {
        use Instruction as I;
        let wanted = program.label();
        self.look_up_current(program);
        program.jump_if(R0, JumpCondition::NotEqual, 0, wanted);
        program.add(I::store_number(MoveSize::Four, R10, KEY, 0));
        program.look_up(self.is_full.as_fd().as_raw_fd(), KEY);
        program.jump_if(R0, JumpCondition::Equal, 0, other);
        program.add(I::load(MoveSize::Four, R0, R0, 0));
        program.jump_if(R0, JumpCondition::Equal, 0, other);
        program.put(wanted);
    }

    /// `r0 =` the address of the current task's value in the map, or 0.
    fn look_up_current(&self, program: &mut Assembler) {
        program.add(Instruction::call(Helper::CurrentPidTgid));
        if self.by_process {
            program.add(Instruction::shift_right(R0, 32)); // the pid is in the upper half
        }
        program.add(Instruction::store(MoveSize::Four, R10, KEY, R0));
        program.look_up(self.tasks.as_fd().as_raw_fd(), KEY);
    }

    /// The program at forks: it adds the child of a task that is in the map.
    fn assemble_forks(&self, child: u16) -> Result<Vec<u8>, AssemblyError> {
        use Instruction as I;
        use MoveSize::Four;
        let mut program = Assembler::default();
        let end = program.label();
        program.add(I::copy(R6, R1));
        self.look_up_current(&mut program);
        program.jump_if(R0, JumpCondition::Equal, 0, end);
        program.add(I::load(Four, R1, R6, offset_of(child)?));
        program.add(I::store(Four, R10, KEY, R1));
        program.add(I::store_number(Four, R10, VALUE, 1));
        program.update(self.tasks.as_fd().as_raw_fd(), KEY, VALUE);
        program.jump_if(R0, JumpCondition::Equal, 0, end);
        program.add(I::store_number(Four, R10, KEY, 0));
        program.look_up(self.is_full.as_fd().as_raw_fd(), KEY);
        program.jump_if(R0, JumpCondition::Equal, 0, end);
        program.add(I::store_number(Four, R0, 0, 1));
        program.put(end);
        program.add(I::set(R0, 1));
        program.add(I::exit());
        program.finish()
    }
}

/// Stack slots for a key and a value, behind the slots that the copying program uses.
const KEY: i16 = -12;
const VALUE: i16 = -16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::exits::returns_one;

    /// A map of tasks. None without the rights to load BPF programs.
    fn map(by_process: bool) -> Option<TaskMap> {
        let tasks = BpfMap::new(MapKind::ByNumber, 4, 2).ok()?;
        let is_full = BpfMap::new(MapKind::Array, 4, 1).ok()?;
        Some(TaskMap { tasks, is_full, by_process, forks: None })
    }

    #[test]
    fn our_program_at_forks_hides_nothing() {
        let Some(map) = map(true) else {
            skip!("the kernel refuses a BPF map");
        };
        assert!(returns_one(&map.assemble_forks(44).unwrap()));
        assert_eq!(map.assemble_forks(40_000), Err(AssemblyError::TooFar));
    }

    #[test]
    fn a_full_map_is_no_error() {
        let Some(map) = map(false) else {
            skip!("the kernel refuses a BPF map");
        };
        for tid in [1, 2, 2, 3] {
            map.insert(tid).unwrap();
        }
    }
}
