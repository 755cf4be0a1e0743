//! BPF programs that copy the addresses of sockets that system calls return, such as who has connected (accept), into
//! perf-prof's rings.
//!
//! The program gives the kernel a buffer and its length, and both are only in the record of the call's entry, while the
//! address is there only at its end. So one program for each of these calls, at its entry, keeps the two pointers by
//! thread. One program at the end of all calls reads the address and writes it just before the record of the end. It
//! runs for each call of the machine, and compares its number first.

use std::os::fd::{AsFd, AsRawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::assembler::{Assembler, AssemblyError, offset_of};
use crate::bpf::copier::{CURRENT_CPU, Copier};
use crate::bpf::instruction::{
    Helper, Instruction, JumpCondition, MoveSize, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10,
};
use crate::bpf::tasks::TaskMap;
use crate::sys::bpf::{BpfMap, MapKind};

/// Most threads in such a call at once. The addresses of further ones are not copied.
const MAX_CALLS: u32 = 8192;
/// Bytes kept of a call: the address of the buffer, that of its length, and the length.
const CALL_BYTES: u32 = 24;
/// The longest address of a socket: `struct sockaddr_storage`.
const MAX_ADDRESS_BYTES: i32 = 128;
/// Bytes written of a call: the length of the address, that of the buffer, and room for the longest address.
const RECORD_BYTES: i32 = 8 + MAX_ADDRESS_BYTES;
const NAMES: [&str; 2] = ["perf_prof_socks", "perf_prof_socke"];

/// A call that returns the address of a socket: offsets in the record of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressCall {
    pub number: u32,
    /// The argument that is the buffer.
    pub buffer: u16,
    /// The argument that is the address of the buffer's length.
    pub length: u16,
}

/// Offsets in the record of the end of any call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnd {
    pub number: u16,
    pub result: u16,
}

/// Loads the program for the end, and one for the entry of each call. `cpus`: greater than any CPU number. `tasks`: the
/// tasks whose calls count; None: all tasks.
///
/// # Errors
/// The kernel refuses a map or a program.
pub fn load_copiers(
    calls: &[AddressCall],
    end: CallEnd,
    cpus: u32,
    tasks: Option<&TaskMap>,
) -> Result<(Copier, Vec<Copier>), CopierRefusal> {
    let kept = BpfMap::new(MapKind::ByNumber, CALL_BYTES, MAX_CALLS).map_err(CopierRefusal::of("a BPF map"))?;
    let kept = kept.as_fd().as_raw_fd();
    let helpers = [Helper::ProbeReadUser, Helper::ProbeRead];
    let exit = Copier::load(NAMES[1], cpus, helpers, |output, read| assemble_exit(calls, end, [kept, output], read))?;
    let enter = |call| Copier::load(NAMES[0], cpus, helpers, |_, read| assemble_enter(call, kept, tasks, read));
    Ok((exit, calls.iter().map(enter).collect::<Result<_, _>>()?))
}

/// The address in the raw data of a record. None: the program has not written these bytes.
pub fn parse(raw: &[u8]) -> Option<&[u8]> {
    let (lengths, address) = raw.split_first_chunk::<8>()?;
    let of = |length: Option<&[u8; 4]>| length.and_then(|length| usize::try_from(u32::from_ne_bytes(*length)).ok());
    // The kernel returns the whole length of an address of which it has written no more than fits in the buffer.
    let length = of(lengths.first_chunk())?.min(of(lengths.last_chunk())?);
    address.get(..length).filter(|address| address.len() <= MAX_ADDRESS_BYTES as usize)
}

/// Stack slots: the key of a thread, what is kept of its call, and the record.
const KEY: i16 = -20;
const VALUE: i16 = -48;
const RECORD: i16 = VALUE - RECORD_BYTES as i16;
const ADDRESS: i16 = RECORD + 8;

/// The program at the entry of a call. Register 6 keeps its record.
fn assemble_enter(
    call: &AddressCall,
    kept: i32,
    tasks: Option<&TaskMap>,
    read: Helper,
) -> Result<Vec<u8>, AssemblyError> {
    use Instruction as I;
    use MoveSize::Eight;
    let mut program = Assembler::default();
    let end = program.label();
    program.add(I::copy(R6, R1));
    for (offset, slot) in [(call.buffer, VALUE), (call.length, VALUE + 8)] {
        program.add(I::load(Eight, R1, R6, offset_of(offset)?));
        program.jump_if(R1, JumpCondition::Equal, 0, end); // the program does not want to know
        program.add(I::store(Eight, R10, slot, R1));
    }
    if let Some(tasks) = tasks {
        tasks.test_task(&mut program, end);
    }
    program.add(I::store_number(Eight, R10, VALUE + 16, 0));
    program.add(I::set(R2, size_of::<u32>() as i32));
    program.add(I::load(Eight, R3, R10, VALUE + 8));
    copy_to(&mut program, VALUE + 16, read);
    program.jump_if(R0, JumpCondition::NotEqual, 0, end);
    put_thread(&mut program);
    program.update(kept, KEY, VALUE);
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

/// The program at the end of all calls. Register 6 keeps its record, 7 the address of the buffer, 8 that of its length,
/// 9 the length before the call.
fn assemble_exit(
    calls: &[AddressCall],
    call_end: CallEnd,
    [kept, output]: [i32; 2],
    read: Helper,
) -> Result<Vec<u8>, AssemblyError> {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let mut program = Assembler::default();
    let [wanted, succeeded, end] = std::array::from_fn(|_| program.label());
    program.add(I::copy(R6, R1));
    program.add(I::load(Eight, R1, R6, offset_of(call_end.number)?));
    for call in calls {
        program.jump_if(R1, JumpCondition::Equal, call.number.cast_signed(), wanted);
    }
    program.jump(end);
    program.put(wanted);
    put_thread(&mut program);
    program.look_up(kept, KEY);
    program.jump_if(R0, JumpCondition::Equal, 0, end);
    program.add(I::load(Eight, R7, R0, 0));
    program.add(I::load(Eight, R8, R0, 8));
    program.add(I::load(Four, R9, R0, 16));
    program.remove(kept, KEY);
    program.add(I::load(Eight, R1, R6, offset_of(call_end.result)?));
    program.jump_if(R1, JumpCondition::Greater, -1, succeeded);
    program.jump(end);
    program.put(succeeded);
    for offset in (RECORD..VALUE).step_by(8) {
        program.add(I::store_number(Eight, R10, offset, 0));
    }
    program.add(I::store(Four, R10, RECORD + 4, R9));
    program.add(I::set(R2, size_of::<u32>() as i32));
    program.add(I::copy(R3, R8));
    copy_to(&mut program, RECORD, read);
    program.jump_if(R0, JumpCondition::NotEqual, 0, end);
    program.add(I::load(Four, R2, R10, RECORD));
    program.jump_if(R2, JumpCondition::Above, MAX_ADDRESS_BYTES, end);
    program.add(I::copy(R3, R7));
    copy_to(&mut program, ADDRESS, read);
    program.jump_if(R0, JumpCondition::NotEqual, 0, end);
    program.add(I::copy(R1, R6));
    program.add_all(I::map(R2, output));
    program.add(I::set_half(R3, CURRENT_CPU));
    program.add(I::copy(R4, R10));
    program.add(I::add(R4, RECORD.into()));
    program.add(I::set(R5, RECORD_BYTES));
    program.add(I::call(Helper::PerfEventOutput));
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

/// Copies as many bytes as register 2 says from the address in register 3 to a stack slot. Afterwards register 0 has 0,
/// or an error.
fn copy_to(program: &mut Assembler, slot: i16, read: Helper) {
    program.add(Instruction::copy(R1, R10));
    program.add(Instruction::add(R1, slot.into()));
    program.add(Instruction::call(read));
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

    const CALLS: [AddressCall; 2] =
        [AddressCall { number: 43, buffer: 24, length: 32 }, AddressCall { number: 45, buffer: 48, length: 56 }];
    const END: CallEnd = CallEnd { number: 8, result: 16 };

    #[test]
    fn our_programs_hide_nothing() {
        let enter = assemble_enter(&CALLS[0], 3, None, Helper::ProbeRead).unwrap();
        let exit = assemble_exit(&CALLS, END, [3, 4], Helper::ProbeRead).unwrap();
        assert!(returns_one(&enter) && returns_one(&exit));
        let far = AddressCall { length: 40_000, ..CALLS[0] };
        assert_eq!(assemble_enter(&far, 3, None, Helper::ProbeRead), Err(AssemblyError::TooFar));
    }

    #[test]
    fn the_kernel_takes_the_programs() {
        if BpfMap::new(MapKind::Array, 4, 1).is_err() {
            skip!("the kernel refuses a BPF map");
        }
        load_copiers(&CALLS, END, 2, None).unwrap_or_else(|err| panic!("{err}"));
    }

    #[test]
    fn records_are_decoded() {
        let record = |lengths: [u32; 2], rest: &[u8]| [&lengths.map(u32::to_ne_bytes).concat(), rest].concat();
        let longest = [7; MAX_ADDRESS_BYTES as usize + 1];
        let cases: [(Vec<u8>, Option<&[u8]>); 8] = [
            (record([2, 16], b"\x02\0pad"), Some(b"\x02\0")),
            (record([16, 2], b"\x02\0"), Some(b"\x02\0")),
            (record([16, 16], b"\x02\0"), None),
            (record([0, 16], b"pad"), Some(b"")),
            (record([16, 0], b""), Some(b"")),
            (record([u32::MAX; 2], b"pad"), None),
            (record([129; 2], &longest), None),
            (vec![0; 7], None),
        ];
        for (raw, want) in cases {
            assert_eq!(parse(&raw), want, "{raw:?}");
        }
    }
}
