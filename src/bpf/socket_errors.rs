//! Two BPF programs that copy what getsockopt returns for `SO_ERROR` into perf-prof's rings: the result of a connect
//! that went on in the background.
//!
//! The address of the error number is known only at the entry of the call, and the number only at its end. So the first
//! program, at the entry, keeps the descriptor and the address by thread, and the second program, at the end, reads the
//! number and writes both. Each program is attached to the tracepoint of getsockopt alone: for other system calls the
//! kernel only tests a bit.

use std::os::fd::{AsFd, AsRawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::assembler::{Assembler, AssemblyError, offset_of};
use crate::bpf::copier::{CURRENT_CPU, Copier};
use crate::bpf::instruction::{Helper, Instruction, JumpCondition, MoveSize, R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use crate::bpf::tasks::TaskMap;
use crate::sys::bpf::{BpfMap, MapKind};

/// Most threads in such a call at once. Nothing is copied for further threads.
const MAX_CALLS: u32 = 1024;
/// Bytes kept of a call: the address of the error number, and the descriptor.
const CALL_BYTES: u32 = 16;
/// Bytes written of a call: the descriptor, and the error number.
const RECORD_BYTES: usize = 8;
/// Size of the error number. The kernel cuts it to the caller's buffer, which has this size in all programs that were
/// seen.
const NUMBER_BYTES: i32 = 4;
const NAMES: [&str; 2] = ["perf_prof_sockop", "perf_prof_soerr"];

/// Offsets of the arguments of getsockopt in the record of its entry, and of its result in that of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptionCall {
    pub descriptor: u16,
    pub level: u16,
    pub option: u16,
    pub value: u16,
    pub result: u16,
}

/// Loads the programs for the entry and the end. `cpus`: greater than any CPU number. `tasks`: the tasks whose calls
/// count; None: all tasks.
///
/// # Errors
/// The kernel refuses a map or a program.
pub fn load_copiers(call: &SocketOptionCall, cpus: u32, tasks: Option<&TaskMap>) -> Result<[Copier; 2], CopierRefusal> {
    let calls = BpfMap::new(MapKind::ByNumber, CALL_BYTES, MAX_CALLS).map_err(CopierRefusal::of("a BPF map"))?;
    let calls = calls.as_fd().as_raw_fd();
    let helpers = [Helper::ProbeReadUser, Helper::ProbeRead];
    let enter = Copier::load(NAMES[0], cpus, helpers, |_, _| assemble_enter(call, calls, tasks))?;
    let exit = Copier::load(NAMES[1], cpus, helpers, |output, read| assemble_exit(call, calls, output, read))?;
    Ok([enter, exit])
}

/// The error of a socket that a thread has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketError {
    pub descriptor: i32,
    /// 0: no error.
    pub errno: u32,
}

impl SocketError {
    /// Decodes the raw data of a record. None: the program has not written these bytes.
    pub fn parse(raw: &[u8]) -> Option<SocketError> {
        let (descriptor, rest) = raw.split_first_chunk::<4>()?;
        let errno = rest.first_chunk()?;
        Some(SocketError { descriptor: i32::from_ne_bytes(*descriptor), errno: u32::from_ne_bytes(*errno) })
    }
}

/// Stack slots: the key of a thread, and the bytes that are kept or written of its call.
const KEY: i16 = -20;
const VALUE: i16 = -40;
const DESCRIPTOR: i16 = VALUE + 8;

/// The program at the entry. Register 6 keeps its record.
fn assemble_enter(call: &SocketOptionCall, calls: i32, tasks: Option<&TaskMap>) -> Result<Vec<u8>, AssemblyError> {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let mut program = Assembler::default();
    let end = program.label();
    program.add(I::copy(R6, R1));
    for (offset, wanted) in [(call.level, SOL_SOCKET), (call.option, SO_ERROR)] {
        program.add(I::load(Four, R1, R6, offset_of(offset)?));
        program.jump_if(R1, JumpCondition::NotEqual, wanted, end);
    }
    if let Some(tasks) = tasks {
        tasks.test_task(&mut program, end);
    }
    put_thread(&mut program);
    program.add(I::load(Eight, R1, R6, offset_of(call.value)?));
    program.add(I::store(Eight, R10, VALUE, R1));
    program.add(I::load(Four, R1, R6, offset_of(call.descriptor)?));
    program.add(I::store(Eight, R10, DESCRIPTOR, R1));
    program.update(calls, KEY, VALUE);
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

// include/uapi/asm-generic/socket.h
const SOL_SOCKET: i32 = libc::SOL_SOCKET;
const SO_ERROR: i32 = libc::SO_ERROR;

/// The program at the end. Register 6 keeps its record, 7 the address of the number, 8 the descriptor.
fn assemble_exit(call: &SocketOptionCall, calls: i32, output: i32, read: Helper) -> Result<Vec<u8>, AssemblyError> {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let mut program = Assembler::default();
    let end = program.label();
    program.add(I::copy(R6, R1));
    put_thread(&mut program);
    program.look_up(calls, KEY);
    program.jump_if(R0, JumpCondition::Equal, 0, end);
    program.add(I::load(Eight, R7, R0, 0));
    program.add(I::load(Four, R8, R0, DESCRIPTOR - VALUE));
    program.remove(calls, KEY);
    program.add(I::load(Eight, R1, R6, offset_of(call.result)?));
    program.jump_if(R1, JumpCondition::NotEqual, 0, end);
    program.add(I::store(Four, R10, VALUE, R8));
    program.add(I::store_number(Four, R10, VALUE + 4, 0));
    program.add(I::copy(R1, R10));
    program.add(I::add(R1, (VALUE + 4).into()));
    program.add(I::set(R2, NUMBER_BYTES));
    program.add(I::copy(R3, R7));
    program.add(I::call(read));
    program.jump_if(R0, JumpCondition::NotEqual, 0, end);
    program.add(I::copy(R1, R6));
    program.add_all(I::map(R2, output));
    program.add(I::set_half(R3, CURRENT_CPU));
    program.add(I::copy(R4, R10));
    program.add(I::add(R4, VALUE.into()));
    program.add(I::set(R5, RECORD_BYTES as i32));
    program.add(I::call(Helper::PerfEventOutput));
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

/// Puts the tid of the current thread into its stack slot.
fn put_thread(program: &mut Assembler) {
    program.add(Instruction::call(Helper::CurrentPidTgid));
    program.add(Instruction::store(MoveSize::Four, R10, KEY, R0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::exits::returns_one;

    const CALL: SocketOptionCall = SocketOptionCall { descriptor: 16, level: 24, option: 32, value: 40, result: 16 };

    #[test]
    fn our_programs_hide_nothing() {
        let enter = assemble_enter(&CALL, 3, None).unwrap();
        let exit = assemble_exit(&CALL, 3, 4, Helper::ProbeRead).unwrap();
        assert!(returns_one(&enter) && returns_one(&exit));
        let far = SocketOptionCall { value: 40_000, ..CALL };
        assert_eq!(assemble_enter(&far, 3, None), Err(AssemblyError::TooFar));
    }

    #[test]
    fn the_kernel_takes_the_programs() {
        if BpfMap::new(MapKind::Array, 4, 1).is_err() {
            skip!("the kernel refuses a BPF map");
        }
        load_copiers(&CALL, 2, None).unwrap_or_else(|err| panic!("{err}"));
    }

    #[test]
    fn records_are_decoded() {
        let record = [9_i32.to_ne_bytes(), 111_u32.to_ne_bytes()].concat();
        assert_eq!(SocketError::parse(&record), Some(SocketError { descriptor: 9, errno: 111 }));
        assert_eq!(SocketError::parse(&[&record[..], b"pad"].concat()), SocketError::parse(&record));
        for cut in 0..record.len() {
            assert_eq!(SocketError::parse(&record[..cut]), None);
        }
    }
}
