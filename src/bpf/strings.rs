//! A BPF program that copies the strings, lists of strings and socket addresses that the arguments of system calls
//! point to into perf-prof's rings, just before the record of the call.
//!
//! The record of a system call has only pointers. The program is attached to the call's tracepoint, reads each string
//! at its address (a page that is not in memory then cannot be read), and writes it to a BPF output event that shares a
//! ring with the tracepoint's event: the kernel runs the program before it writes the record of the call, on the same
//! CPU and with preemption disabled, so that no other call comes in between. The program always returns 1.

use std::os::fd::{AsFd, AsRawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::assembler::{Assembler, AssemblyError, offset_of};
use crate::bpf::copier::{CURRENT_CPU, Copier};
use crate::bpf::instruction::{
    Helper, Instruction, JumpCondition, MoveSize, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10,
};
use crate::bpf::tasks::TaskMap;
use crate::sys::bpf::{BpfMap, MapKind};

/// Limit of the arguments of a system call.
pub const MAX_ARGUMENTS: usize = 6;
/// The longest string that the kernel takes for a path, with its NUL byte: `PATH_MAX`.
pub const PATH_BYTES: usize = 4096;
/// Limit of the bytes that are read, with the NUL byte: more than `PATH_BYTES`, so that a path that is too long is
/// recognised.
const READ_BYTES: i32 = PATH_BYTES as i32 + 8;
/// The longest address of a socket that the kernel takes: `struct sockaddr_storage`.
const MAX_SOCKET_ADDRESS: i32 = 128;
/// Flags in the number of an argument: it is the address of a socket; it is a list of strings; this list is complete.
const IS_SOCKET_ADDRESS: u32 = 1 << 8;
const IS_WORDS: u32 = 1 << 9;
const IS_COMPLETE: u32 = 1 << 10;
/// It is the message that a socket sends, whose address is copied.
const IS_MESSAGE: u32 = 1 << 11;
/// `struct user_msghdr` (include/linux/socket.h): the bytes that are read, and in them the address and its length.
const MESSAGE_BYTES: i32 = 16;
const MESSAGE_ADDRESS: i16 = 0;
const MESSAGE_ADDRESS_BYTES: i16 = 8;
/// Strings of a list that are copied at most, bytes of each of them, and bytes after which no further one is begun.
const MAX_WORDS: i32 = 16;
const WORD_BYTES: i32 = 512;
const WORDS_MASK: i32 = 1023;
/// A mask for lengths, which tells the kernel that they are bounded.
const LENGTH_MASK: i32 = 8191;
/// Bytes that the program writes in front of the string.
const HEADER_BYTES: usize = 16;
const BUFFER_BYTES: u32 = HEADER_BYTES as u32 + LENGTH_MASK as u32 + 1;
const NAME: &str = "perf_prof_paths";

/// An argument whose memory is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerArgument {
    /// Its number.
    pub argument: u8,
    /// In the event's record.
    pub offset: u16,
    pub pointee: Pointee,
}

/// What a pointer argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointee {
    String,
    /// The address of a socket. The next argument is its length.
    SocketAddress,
    /// A list of strings, up to its null pointer: the arguments of a program.
    Words,
    /// A message, of which the address is copied that it is sent to. Empty: it has none.
    Message,
}

impl PointerArgument {
    /// Arguments that are no strings in some call, with their bits: of connect and bind, of sendto, of execve, of
    /// execveat, of sendmsg.
    const OTHERS: [(u16, u8, Pointee); 5] = [
        (1 << 6, 1, Pointee::SocketAddress),
        (1 << 7, 4, Pointee::SocketAddress),
        (1 << 8, 1, Pointee::Words),
        (1 << 9, 2, Pointee::Words),
        (1 << 10, 1, Pointee::Message),
    ];

    /// All arguments that a mask may have, each with its bit. `first`: offset of the first argument.
    pub fn all(first: u16) -> impl Iterator<Item = (u16, PointerArgument)> {
        let of = move |argument: u8, pointee| {
            let offset = first.saturating_add(8 * u16::from(argument));
            PointerArgument { argument, offset, pointee }
        };
        let strings = (0..MAX_ARGUMENTS as u8).map(move |argument| (1 << argument, of(argument, Pointee::String)));
        let others = PointerArgument::OTHERS.into_iter();
        strings.chain(others.map(move |(bit, argument, pointee)| (bit, of(argument, pointee))))
    }

    /// The bit of the argument in a mask. 0: it has none.
    pub fn bit(&self) -> u16 {
        let is_it =
            |(_, other): &(u16, PointerArgument)| (other.argument, other.pointee) == (self.argument, self.pointee);
        PointerArgument::all(0).find(is_it).map_or(0, |(bit, _)| bit)
    }
}

/// Which arguments are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringArguments {
    /// The event is of one system call.
    OfCall(Vec<PointerArgument>),
    /// The event is of all system calls.
    ByNumber {
        /// Offset of the number of the call.
        number: u16,
        /// Offset of the first argument.
        first: u16,
        /// By the number of the call, a bit for each argument that is copied.
        masks: Vec<u16>,
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

/// A string, or the address of a socket, as the program has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedString<'a> {
    /// The number of the argument.
    pub argument: u8,
    pub pointee: Pointee,
    pub address: u64,
    /// Without the NUL byte; of a list the strings, each with it. None: the address is not in memory.
    pub text: Option<&'a [u8]>,
    /// The string goes on behind `text`, or the list has further strings.
    pub is_cut: bool,
}

impl<'a> CopiedString<'a> {
    /// Decodes the raw data of a record. None: the program has not written these bytes.
    pub fn parse(raw: &'a [u8]) -> Option<CopiedString<'a>> {
        let (header, rest) = raw.split_first_chunk::<HEADER_BYTES>()?;
        let [address, words] = [header.first_chunk::<8>()?, header.last_chunk::<8>()?].map(|word| *word);
        let (argument, result) = (words.first_chunk::<4>()?, words.last_chunk::<4>()?);
        let argument = u32::from_ne_bytes(*argument);
        let pointee = match argument & (IS_SOCKET_ADDRESS | IS_WORDS | IS_MESSAGE) {
            0 => Pointee::String,
            IS_WORDS => Pointee::Words,
            IS_MESSAGE => Pointee::Message,
            _ => Pointee::SocketAddress,
        };
        let is_complete = argument & IS_COMPLETE != 0;
        let argument = u8::try_from(argument & !(IS_SOCKET_ADDRESS | IS_WORDS | IS_COMPLETE | IS_MESSAGE)).ok()?;
        let result = i32::from_ne_bytes(*result);
        let address = u64::from_ne_bytes(address);
        let mut copied = CopiedString { argument, pointee, address, text: None, is_cut: false };
        if usize::from(argument) >= MAX_ARGUMENTS || result > READ_BYTES {
            return None;
        }
        if pointee != Pointee::String {
            copied.is_cut = pointee == Pointee::Words && !is_complete;
            if let Ok(len) = usize::try_from(result) {
                copied.text = Some(rest.get(..len)?);
            }
            return Some(copied);
        }
        // A length of 0 is none: the NUL byte counts.
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
    let read = if read == Helper::ProbeReadUserStr { [read, Helper::ProbeReadUser] } else { [read, Helper::ProbeRead] };
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
            for argument in arguments {
                copy_argument(&mut program, argument, maps, read)?;
            }
        }
        StringArguments::ByNumber { first, masks, .. } => {
            let any = masks.iter().fold(0, |any, mask| any | mask);
            for (bit, argument) in PointerArgument::all(*first).filter(|(bit, _)| any & bit != 0) {
                let (wanted, next) = (program.label(), program.label());
                program.jump_if(R8, JumpCondition::HasBits, bit.into(), wanted);
                program.jump(next);
                program.put(wanted);
                copy_argument(&mut program, &argument, maps, read)?;
                program.put(next);
            }
        }
    }
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

/// Copies what an argument points to into the buffer, behind its header, and writes both. `read`: what reads strings, and
/// what reads bytes.
fn copy_argument(
    program: &mut Assembler,
    argument: &PointerArgument,
    maps: &MapFds,
    [read_string, read_bytes]: [Helper; 2],
) -> Result<(), AssemblyError> {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let PointerArgument { argument, offset, pointee } = *argument;
    let (is_read, next) = (program.label(), program.label());
    program.add(I::load(Eight, R3, R6, offset_of(offset)?));
    program.add(I::store(Eight, R7, 0, R3));
    match pointee {
        Pointee::String => {
            program.add(I::store_number(Four, R7, 8, argument.into()));
            program.add(I::copy(R1, R7));
            program.add(I::add(R1, HEADER_BYTES as i32));
            program.add(I::set(R2, READ_BYTES));
            program.add(I::call(read_string));
        }
        Pointee::SocketAddress => {
            program.jump_if(R3, JumpCondition::Equal, 0, next); // the program passes no address
            program.add(I::store_number(Four, R7, 8, (IS_SOCKET_ADDRESS | u32::from(argument)).cast_signed()));
            program.add(I::load(Four, R2, R6, offset_of(offset.saturating_add(8))?));
            copy_bytes(program, read_bytes);
        }
        Pointee::Message => {
            program.jump_if(R3, JumpCondition::Equal, 0, next);
            program.add(I::store_number(Four, R7, 8, (IS_MESSAGE | u32::from(argument)).cast_signed()));
            copy_address_of_message(program, read_bytes);
        }
        Pointee::Words => {
            program.jump_if(R3, JumpCondition::Equal, 0, next);
            copy_words(program, argument, [read_string, read_bytes]);
        }
    }
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
    program.put(next);
    Ok(())
}

/// Copies the address that the message at the address in register 3 is sent to. Afterwards register 0 has its length,
/// or an error.
fn copy_address_of_message(program: &mut Assembler, read: Helper) {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let end = program.label();
    program.add(I::copy(R1, R7));
    program.add(I::add(R1, HEADER_BYTES as i32));
    program.add(I::set(R2, MESSAGE_BYTES));
    program.add(I::call(read));
    program.jump_if(R0, JumpCondition::NotEqual, 0, end);
    program.add(I::load(Eight, R3, R7, HEADER_BYTES as i16 + MESSAGE_ADDRESS));
    program.add(I::load(Four, R2, R7, HEADER_BYTES as i16 + MESSAGE_ADDRESS_BYTES));
    program.jump_if(R3, JumpCondition::Equal, 0, end); // register 0 is 0
    copy_bytes(program, read);
    program.put(end);
}

/// Copies as many bytes from the address in register 3 as register 2 says. Afterwards register 0 has the length, or an
/// error.
fn copy_bytes(program: &mut Assembler, read: Helper) {
    use Instruction as I;
    use MoveSize::Four;
    let (is_long, is_known, failed) = (program.label(), program.label(), program.label());
    program.jump_if(R2, JumpCondition::Above, MAX_SOCKET_ADDRESS, is_long);
    program.jump(is_known);
    program.put(is_long);
    program.add(I::set(R2, MAX_SOCKET_ADDRESS));
    program.put(is_known);
    program.add(I::store(Four, R7, 12, R2));
    program.add(I::copy(R1, R7));
    program.add(I::add(R1, HEADER_BYTES as i32));
    program.add(I::call(read));
    program.jump_if(R0, JumpCondition::NotEqual, 0, failed);
    program.add(I::load(Four, R0, R7, 12));
    program.put(failed);
}

/// Stack slots for a pointer of a list, and for the bytes of the strings so far.
const POINTER: i16 = -24;
const WORDS_BYTES: i16 = -32;

/// Copies the strings of the list whose address is in register 3, one behind the other. Afterwards register 0 has their
/// bytes.
fn copy_words(program: &mut Assembler, argument: u8, [read_string, read_bytes]: [Helper; 2]) {
    use Instruction as I;
    use MoveSize::{Eight, Four};
    let (complete, out) = (program.label(), program.label());
    let header = IS_WORDS | u32::from(argument);
    program.add(I::copy(R9, R3));
    program.add(I::store_number(Four, R7, 8, header.cast_signed()));
    program.add(I::store_number(Eight, R10, WORDS_BYTES, 0));
    for word in 0..MAX_WORDS {
        let is_read = program.label();
        program.add(I::copy(R1, R10));
        program.add(I::add(R1, POINTER.into()));
        program.add(I::set(R2, size_of::<u64>() as i32));
        program.add(I::copy(R3, R9));
        program.add(I::add(R3, word * size_of::<u64>() as i32));
        program.add(I::call(read_bytes));
        program.jump_if(R0, JumpCondition::NotEqual, 0, out);
        program.add(I::load(Eight, R3, R10, POINTER));
        program.jump_if(R3, JumpCondition::Equal, 0, complete);
        program.add(I::load(Eight, R4, R10, WORDS_BYTES));
        program.add(I::and(R4, WORDS_MASK)); // in bounds, but the verifier forgets bounds of values on the stack
        program.add(I::copy(R1, R7));
        program.add(I::add_register(R1, R4));
        program.add(I::add(R1, HEADER_BYTES as i32));
        program.add(I::set(R2, WORD_BYTES));
        program.add(I::call(read_string));
        program.jump_if(R0, JumpCondition::Greater, 0, is_read);
        program.jump(out);
        program.put(is_read);
        program.add(I::load(Eight, R1, R10, WORDS_BYTES));
        program.add(I::add_register(R1, R0));
        program.add(I::store(Eight, R10, WORDS_BYTES, R1));
        program.jump_if(R1, JumpCondition::Above, WORDS_MASK, out);
    }
    program.jump(out);
    program.put(complete);
    program.add(I::store_number(Four, R7, 8, (header | IS_COMPLETE).cast_signed()));
    program.put(out);
    program.add(I::load(Eight, R0, R10, WORDS_BYTES));
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
        let string = |argument, offset| PointerArgument { argument, offset, pointee: Pointee::String };
        let address = |argument, offset| PointerArgument { argument, offset, pointee: Pointee::SocketAddress };
        let words = |argument, offset| PointerArgument { argument, offset, pointee: Pointee::Words };
        let message = |argument, offset| PointerArgument { argument, offset, pointee: Pointee::Message };
        let bits = [string(5, 0), address(1, 0), address(4, 0), words(1, 0), words(2, 0), message(1, 0)]
            .map(|argument| argument.bit());
        assert_eq!(bits, [1 << 5, 1 << 6, 1 << 7, 1 << 8, 1 << 9, 1 << 10]);
        let of_call =
            StringArguments::OfCall(vec![string(0, 16), string(1, 24), address(3, 40), words(1, 24), message(1, 24)]);
        let by_number = StringArguments::ByNumber { number: 8, first: 16, masks: vec![0, 1, 3, u16::MAX] };
        // Without the rights to have a map, that part is left out.
        let tasks = TaskMap::new(CopiedTasks::Threads(&[1])).ok();
        for arguments in [of_call, by_number] {
            for (read, tasks) in [(Helper::ProbeReadUserStr, None), (Helper::ProbeReadStr, tasks.as_ref())] {
                let program = assemble(&arguments, &maps, tasks, read).unwrap();
                assert!(returns_one(&program), "{arguments:?}");
                assert!(program.len() / 8 < 1200, "{arguments:?}: {} instructions", program.len() / 8);
            }
        }
        let far = StringArguments::OfCall(vec![string(0, 40_000)]);
        assert_eq!(assemble(&far, &maps, None, Helper::ProbeReadStr), Err(AssemblyError::TooFar));
    }

    /// All at once, as the longest program has it.
    #[test]
    fn the_kernel_takes_the_program() {
        if BpfMap::new(MapKind::Array, 4, 1).is_err() {
            skip!("the kernel refuses a BPF map");
        }
        let arguments = StringArguments::ByNumber { number: 8, first: 16, masks: vec![u16::MAX] };
        load_copier(&arguments, 2, None).unwrap_or_else(|err| panic!("{err}"));
    }

    #[test]
    fn records_are_decoded() {
        let of = |text: Option<&'static [u8]>| {
            let (argument, pointee) = (1, Pointee::String);
            CopiedString { argument, pointee, address: 7, text, is_cut: false }
        };
        let address = |text| Some(CopiedString { pointee: Pointee::SocketAddress, ..of(text) });
        let words = |text, is_cut| Some(CopiedString { pointee: Pointee::Words, is_cut, ..of(Some(text)) });
        let message = |text| Some(CopiedString { pointee: Pointee::Message, ..of(text) });
        let cases: [(Vec<u8>, Option<CopiedString<'_>>); 20] = [
            (record(0x801, 7, 4, b"\x02\0\0\0pad"), message(Some(b"\x02\0\0\0"))),
            (record(0x801, 7, 0, b"pad"), message(Some(b""))),
            (record(0x801, 7, -libc::EFAULT, b""), message(None)),
            (record(0x601, 7, 6, b"ls\0-l\0pad"), words(b"ls\0-l\0", false)),
            (record(0x201, 7, 3, b"ls\0pad"), words(b"ls\0", true)),
            (record(0x601, 7, 6, b"ls\0-l"), None),
            (record(0x101, 7, 4, b"\x02\0\0\0pad"), address(Some(b"\x02\0\0\0"))),
            (record(0x101, 7, 0, b""), address(Some(b""))),
            (record(0x101, 7, -libc::EFAULT, b""), address(None)),
            (record(0x101, 7, 4, b"\x02"), None),
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
