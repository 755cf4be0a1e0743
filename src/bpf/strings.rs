//! A BPF program that copies the string arguments of system calls into perf-prof's rings, just before the record of the
//! call.
//!
//! The record of a system call has only the addresses of strings. The program is attached to the call's tracepoint,
//! reads each string at its address (a page that is not in memory then cannot be read), and writes the string to a BPF
//! output event that shares a ring with the tracepoint's event: the kernel runs the program before it writes the record
//! of the call, on the same CPU and with preemption disabled, so that no other call comes in between. The program
//! always returns 1.

use std::os::fd::{AsFd, AsRawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::assembler::{Assembler, AssemblyError, offset_of};
use crate::bpf::copier::{CURRENT_CPU, Copier};
use crate::bpf::instruction::{Helper, Instruction, JumpCondition, MoveSize, R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use crate::bpf::tasks::TaskMap;
use crate::sys::bpf::{BpfMap, MapKind};

/// Limit of the arguments of a system call.
pub const MAX_ARGUMENTS: usize = 6;
/// The longest string that the kernel takes for a path, with its NUL byte: `PATH_MAX`.
pub const PATH_BYTES: usize = 4096;
/// Limit of the bytes that are read, with the NUL byte: more than `PATH_BYTES`, so that a path that is too long is
/// recognised.
const READ_BYTES: i32 = PATH_BYTES as i32 + 8;
/// A mask for lengths, from which the kernel's verifier knows that they are bounded.
const LENGTH_MASK: i32 = 8191;
/// Bytes that the program writes in front of the string.
const HEADER_BYTES: usize = 16;
const BUFFER_BYTES: u32 = HEADER_BYTES as u32 + LENGTH_MASK as u32 + 1;
const NAME: &str = "perf_prof_paths";

/// Which arguments are strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringArguments {
    /// The event is of one system call. The number of each argument, and its offset in the event's record.
    OfCall(Vec<(u8, u16)>),
    /// The event is of all system calls.
    ByNumber {
        /// Offset of the number of the call.
        number: u16,
        /// Offset of the first argument.
        first: u16,
        /// By the number of the call, a bit for each argument that is a string.
        masks: Vec<u8>,
    },
}

/// Loads the program. `cpus`: greater than any CPU number. `tasks`: the tasks whose strings it copies; None: all tasks.
///
/// # Errors
/// The kernel refuses a map or the program.
pub fn load_copier(arguments: &StringArguments, cpus: u32, tasks: Option<&TaskMap>) -> Result<Copier, CopierRefusal> {
    let map = |kind, bytes, entries| BpfMap::new(kind, bytes, entries).map_err(CopierRefusal::of("a BPF map"));
    let buffer = map(MapKind::CpuBuffers, BUFFER_BYTES, 1)?;
    let masks = match arguments {
        StringArguments::OfCall(_) => None,
        StringArguments::ByNumber { masks, .. } => {
            let by_number = map(MapKind::Array, 4, masks.len() as u32)?;
            for (number, &mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
                let set = by_number.set(number as u32, &u32::from(mask).to_ne_bytes());
                set.map_err(CopierRefusal::of("a BPF map"))?;
            }
            Some(by_number)
        }
    };
    let fd = |map: &BpfMap| map.as_fd().as_raw_fd();
    let (buffer, masks) = (&buffer, masks.as_ref());
    Copier::load(NAME, cpus, [Helper::ProbeReadUserStr, Helper::ProbeReadStr], |output, read| {
        assemble(arguments, &MapFds { output, buffer: fd(buffer), masks: masks.map(fd) }, tasks, read)
    })
}

/// A string as the program has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedString<'a> {
    /// The number of the argument.
    pub argument: u8,
    pub address: u64,
    /// Without the NUL byte. None: the address is not in memory.
    pub text: Option<&'a [u8]>,
    /// The string goes on behind `text`.
    pub is_cut: bool,
}

impl<'a> CopiedString<'a> {
    /// Decodes the raw data of a record. None: the program has not written these bytes.
    pub fn parse(raw: &'a [u8]) -> Option<CopiedString<'a>> {
        let (header, rest) = raw.split_first_chunk::<HEADER_BYTES>()?;
        let [address, words] = [header.first_chunk::<8>()?, header.last_chunk::<8>()?].map(|word| *word);
        let (argument, result) = (words.first_chunk::<4>()?, words.last_chunk::<4>()?);
        let argument = u8::try_from(u32::from_ne_bytes(*argument)).ok()?;
        let result = i32::from_ne_bytes(*result);
        let mut copied = CopiedString { argument, address: u64::from_ne_bytes(address), text: None, is_cut: false };
        if usize::from(argument) >= MAX_ARGUMENTS || result > READ_BYTES {
            return None;
        }
        // A length of 0 is invalid, since the length includes the NUL byte.
        if let Some(len) = usize::try_from(result).ok().and_then(|bytes| bytes.checked_sub(1)) {
            let text = rest.get(..len)?;
            copied.is_cut = len >= PATH_BYTES;
            copied.text = Some(&text[..len.min(PATH_BYTES - 1)]);
        }
        Some(copied)
    }
}

/// The descriptors of the maps.
struct MapFds {
    output: i32,
    buffer: i32,
    masks: Option<i32>,
}

/// Stack slots for the keys of look-ups. `tasks` uses the slots behind them.
const ZERO_KEY: i16 = -4;
const NUMBER_KEY: i16 = -8;

/// Assembles the program. Register 6 holds the record of the event, 7 the buffer, 8 the mask of the arguments that are
/// strings.
fn assemble(
    arguments: &StringArguments,
    maps: &MapFds,
    tasks: Option<&TaskMap>,
    read: Helper,
) -> Result<Vec<u8>, AssemblyError> {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let mut program = Assembler::default();
    let end = program.label();
    program.add(I::copy(R6, R1));
    if let (StringArguments::ByNumber { number, .. }, Some(masks)) = (arguments, maps.masks) {
        program.add(I::load(Eight, R8, R6, offset_of(*number)?));
        program.add(I::store(Four, R10, NUMBER_KEY, R8));
        program.look_up(masks, NUMBER_KEY);
        program.jump_if(R0, JumpCondition::Equal, 0, end);
        program.add(I::load(Four, R8, R0, 0));
        program.jump_if(R8, JumpCondition::Equal, 0, end);
    }
    if let Some(tasks) = tasks {
        tasks.test_task(&mut program, end);
    }
    program.add(I::store_number(Four, R10, ZERO_KEY, 0));
    program.look_up(maps.buffer, ZERO_KEY);
    program.jump_if(R0, JumpCondition::Equal, 0, end);
    program.add(I::copy(R7, R0));
    match arguments {
        StringArguments::OfCall(arguments) => {
            for &(argument, offset) in arguments {
                copy_argument(&mut program, argument, offset, maps, read)?;
            }
        }
        StringArguments::ByNumber { first, .. } => {
            for argument in 0..MAX_ARGUMENTS as u8 {
                let (wanted, next) = (program.label(), program.label());
                program.jump_if(R8, JumpCondition::HasBits, 1 << argument, wanted);
                program.jump(next);
                program.put(wanted);
                let offset = first.checked_add(8 * u16::from(argument)).ok_or(AssemblyError::TooFar)?;
                copy_argument(&mut program, argument, offset, maps, read)?;
                program.put(next);
            }
        }
    }
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

/// Copies a string into the buffer behind the header, and writes both to the ring.
fn copy_argument(
    program: &mut Assembler,
    argument: u8,
    offset: u16,
    maps: &MapFds,
    read: Helper,
) -> Result<(), AssemblyError> {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let is_read = program.label();
    program.add(I::load(Eight, R3, R6, offset_of(offset)?));
    program.add(I::store(Eight, R7, 0, R3));
    program.add(I::store_number(Four, R7, 8, argument.into()));
    program.add(I::copy(R1, R7));
    program.add(I::add(R1, HEADER_BYTES as i32));
    program.add(I::set(R2, READ_BYTES));
    program.add(I::call(read));
    program.add(I::store(Four, R7, 12, R0));
    program.add(I::copy(R5, R0));
    program.jump_if(R5, JumpCondition::Greater, 0, is_read);
    program.add(I::set(R5, 0));
    program.put(is_read);
    program.add(I::and(R5, LENGTH_MASK));
    program.add(I::add(R5, HEADER_BYTES as i32));
    program.add(I::copy(R1, R6));
    program.add_all(I::map(R2, maps.output));
    program.add(I::set_half(R3, CURRENT_CPU));
    program.add(I::copy(R4, R7));
    program.add(I::call(Helper::PerfEventOutput));
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bpf::exits::returns_one;
    use crate::bpf::tasks::CopiedTasks;

    fn record(argument: u32, address: u64, result: i32, text: &[u8]) -> Vec<u8> {
        [&address.to_ne_bytes()[..], &argument.to_ne_bytes(), &result.to_ne_bytes(), text].concat()
    }

    #[test]
    fn our_program_hides_nothing() {
        let maps = MapFds { output: 3, buffer: 4, masks: Some(5) };
        let of_call = StringArguments::OfCall(vec![(0, 16), (1, 24), (3, 40)]);
        let by_number = StringArguments::ByNumber { number: 8, first: 16, masks: vec![0, 1, 3] };
        // Without the rights to create a map, the test leaves this part out.
        let tasks = TaskMap::new(CopiedTasks::Threads(&[1])).ok();
        for arguments in [of_call, by_number] {
            for (read, tasks) in [(Helper::ProbeReadUserStr, None), (Helper::ProbeReadStr, tasks.as_ref())] {
                let program = assemble(&arguments, &maps, tasks, read).unwrap();
                assert!(returns_one(&program), "{arguments:?}");
                assert!(program.len() / 8 < 256, "{arguments:?}: {} instructions", program.len() / 8);
            }
        }
        let far = StringArguments::OfCall(vec![(0, 40_000)]);
        assert_eq!(assemble(&far, &maps, None, Helper::ProbeReadStr), Err(AssemblyError::TooFar));
    }

    #[test]
    fn records_are_decoded() {
        let of = |text: Option<&'static [u8]>| CopiedString { argument: 1, address: 7, text, is_cut: false };
        let cases: [(Vec<u8>, Option<CopiedString<'_>>); 10] = [
            (record(1, 7, 5, b"/etc\0pad"), Some(of(Some(b"/etc")))),
            (record(1, 7, 1, b"\0"), Some(of(Some(b"")))),
            (record(1, 7, -libc::EFAULT, b""), Some(of(None))),
            (record(1, 7, 0, b""), Some(of(None))),
            (record(1, 7, 3, b"a\xff\0"), Some(of(Some(b"a\xff")))),
            (record(1, 7, 9, b"/etc\0"), None),
            (record(6, 7, 5, b"/etc\0"), None),
            (record(u32::MAX, 7, 5, b"/etc\0"), None),
            (record(1, 7, i32::MAX, b"/etc\0"), None),
            (vec![0; HEADER_BYTES - 1], None),
        ];
        for (raw, want) in cases {
            assert_eq!(CopiedString::parse(&raw), want, "{}", raw.escape_ascii());
        }
        for (bytes, is_cut) in [(PATH_BYTES - 1, false), (PATH_BYTES, true), (READ_BYTES as usize - 1, true)] {
            let raw = record(0, 7, bytes as i32 + 1, &[&vec![b'a'; bytes][..], b"\0"].concat());
            let copied = CopiedString::parse(&raw).unwrap();
            assert_eq!((copied.text.map(<[u8]>::len), copied.is_cut), (Some(PATH_BYTES - 1), is_cut));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(text) = CopiedString::parse(&bytes).and_then(|copied| copied.text) {
                prop_assert!(text.len() + HEADER_BYTES <= bytes.len());
            }
        }
    }
}
