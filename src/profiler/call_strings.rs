//! The strings and addresses of sockets that system calls are given, joined to the records of the calls.
//!
//! A BPF program writes each string just before the record of its call, on the same CPU ([`Evlist::copy_strings`]). For
//! each CPU the strings of one call are kept until its record arrives. A string belongs to the next record of the same
//! thread on that CPU that has its address in the argument; if records of the CPU were lost in between, it belongs to
//! none.

use std::io;

use crate::bpf::strings::{CopiedString, MAX_ARGUMENTS, Pointee, PointerArgument, StringArguments};
use crate::perf::evlist::Evlist;
use crate::perf::evlist::string_tasks::ForkEvent;
use crate::perf::{EventId, Sample};
use crate::profiler::Setup;
use crate::report::{ArgumentText, UnreadText};
use crate::task::procfs;
use crate::tep::format::Format;
use crate::tep::syscalls::syscall_strings::{
    message_argument, socket_address_argument, string_arguments, word_list_argument,
};
use crate::tep::syscalls::{number_field, without_user_text};

/// Limit of the time between a string and the record of its call, which follow each other except for interrupts and a
/// preempted virtual CPU.
const TOGETHER_NS: u64 = 5_000_000;
const MAX_CPUS: usize = 1 << 16;
/// Limit of system call numbers, above that of any architecture.
const MAX_CALLS: u32 = 1024;

/// The strings of the calls of one event.
#[derive(Debug)]
pub struct CallStrings {
    asked: AskedStrings,
    /// The event whose samples are the strings. None: strings cannot be copied.
    copies: Option<EventId>,
    /// The strings that wait for their call, by CPU.
    waiting: Vec<WaitingStrings>,
}

/// The arguments that are copied.
#[derive(Debug)]
enum AskedStrings {
    OfCall(Vec<PointerArgument>),
    /// By the number of the call, a bit for each argument, and the offset of the first.
    ByNumber {
        masks: Vec<u16>,
        first: u16,
    },
}

/// Strings on a CPU whose call is expected next.
#[derive(Debug, Default)]
struct WaitingStrings {
    tid: i32,
    time: u64,
    /// The record of the call has arrived: the strings belong to no other.
    is_over: bool,
    strings: Vec<WaitingString>,
    /// The bytes of all strings.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingString {
    argument: u8,
    pointee: Pointee,
    address: u64,
    /// Start and end in the text. None: the string could not be read.
    text: Option<(usize, usize)>,
    is_cut: bool,
}

impl CallStrings {
    /// Asks for the strings of the calls that `event` records. None: the calls have no strings, or the kernel puts them
    /// into the record.
    pub fn ask(event: EventId, format: &Format, evlist: &mut Evlist, setup: &Setup<'_>) -> Option<CallStrings> {
        let arguments = pointer_arguments(format);
        if arguments.is_empty() {
            return None;
        }
        let copied = StringArguments::OfCall(arguments.clone());
        Some(CallStrings::new(event, AskedStrings::OfCall(arguments), &copied, evlist, setup))
    }

    /// Asks for the strings of the calls with these numbers, all of which `event` records: `raw_syscalls:sys_enter`
    /// with its `format`. `formats`: the calls' own formats. None: the calls have no strings.
    pub fn ask_by_number<'f>(
        event: EventId,
        format: &Format,
        calls: impl IntoIterator<Item = (u32, &'f Format)>,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Option<CallStrings> {
        let (number, first) = (number_field(format)?, format.field("args")?);
        let (number, first) = (u16::try_from(number.offset).ok()?, u16::try_from(first.offset).ok()?);
        let mut masks = Vec::new();
        for (call, format) in calls.into_iter().filter(|(call, _)| *call < MAX_CALLS) {
            let arguments = pointer_arguments(&without_user_text(format));
            let mask = arguments.iter().fold(0, |mask, argument| mask | argument.bit());
            let at = call as usize;
            masks.resize(masks.len().max(at + 1), 0);
            masks[at] |= mask;
        }
        if masks.iter().all(|mask| *mask == 0) {
            return None;
        }
        let copied = StringArguments::ByNumber { number, first, masks: masks.clone() };
        Some(CallStrings::new(event, AskedStrings::ByNumber { masks, first }, &copied, evlist, setup))
    }

    fn new(
        event: EventId,
        asked: AskedStrings,
        copied: &StringArguments,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> CallStrings {
        limit(evlist, setup);
        let copies = evlist.copy_strings(event, copied, setup.host);
        let copies = copies.map_err(|reason| setup.degrade_strings(reason)).ok();
        CallStrings { asked, copies, waiting: Vec::new() }
    }

    /// The event whose samples must be passed to [`CallStrings::take`].
    pub fn copies(&self) -> Option<EventId> {
        self.copies
    }

    /// Takes a string. False: the sample is no string.
    pub fn take(&mut self, sample: &Sample<'_>) -> bool {
        let Some(copied) = CopiedString::parse(sample.raw) else { return false };
        let at = sample.cpu as usize;
        if at >= self.waiting.len() {
            if at >= MAX_CPUS {
                return false;
            }
            self.waiting.resize_with(at + 1, WaitingStrings::default);
        }
        self.waiting[at].add(&copied, sample);
        true
    }

    /// The strings of a call, by the offsets of their arguments. `number`: the number of the call, if the event records
    /// several calls.
    pub fn of<'s>(
        &'s mut self,
        sample: &'s Sample<'_>,
        number: Option<usize>,
    ) -> impl Iterator<Item = (u16, ArgumentText<'s>)> + 's {
        let CallStrings { asked, copies, waiting } = self;
        let waiting = waiting.get_mut(sample.cpu as usize).and_then(|waiting| waiting.next_of(sample));
        let is_copied = copies.is_some();
        asked.of(number).filter_map(move |argument| {
            let address = address_at(sample.raw, argument.offset);
            let text = match waiting {
                // The call is given none.
                _ if argument.pointee != Pointee::String && address == Some(0) => return None,
                _ if !is_copied => Err(UnreadText::Refused),
                Some(waiting) => waiting.of(argument, address),
                None => Err(UnreadText::NoCopy),
            };
            if argument.pointee == Pointee::Message && text == Ok(ArgumentText::SocketAddress(b"")) {
                return None; // it goes where the socket is connected to
            }
            Some((argument.offset, text.unwrap_or_else(|unread| unread_text(argument.pointee, unread))))
        })
    }

    /// The call with this number has arguments that are copied.
    pub fn asks_for(&self, number: Option<usize>) -> bool {
        self.asked.of(number).next().is_some()
    }

    /// Records of a CPU were lost.
    pub fn forget(&mut self, cpu: u32) {
        self.waiting.get_mut(cpu as usize).into_iter().for_each(WaitingStrings::clear);
    }
}

impl AskedStrings {
    fn of(&self, number: Option<usize>) -> impl Iterator<Item = PointerArgument> + '_ {
        let (listed, mask, first) = match self {
            AskedStrings::OfCall(arguments) => (&arguments[..], 0, 0),
            AskedStrings::ByNumber { masks, first } => {
                (&[][..], number.and_then(|number| masks.get(number)).copied().unwrap_or(0), *first)
            }
        };
        let by_mask = PointerArgument::all(first).filter(move |(bit, _)| mask & bit != 0);
        listed.iter().copied().chain(by_mask.map(|(_, argument)| argument))
    }
}

impl WaitingStrings {
    fn add(&mut self, copied: &CopiedString<'_>, sample: &Sample<'_>) {
        // The strings of a call come in the order of its arguments.
        let follows = self.strings.last().is_some_and(|last| last.argument < copied.argument);
        let is_same =
            follows && !self.is_over && self.tid == sample.tid && sample.time.wrapping_sub(self.time) <= TOGETHER_NS;
        if !is_same || self.strings.len() >= MAX_ARGUMENTS {
            self.clear();
        }
        (self.tid, self.time) = (sample.tid, sample.time);
        let start = self.text.len();
        self.text.extend_from_slice(copied.text.unwrap_or_default());
        let text = copied.text.map(|_| (start, self.text.len()));
        let CopiedString { argument, pointee, address, is_cut, .. } = *copied;
        self.strings.push(WaitingString { argument, pointee, address, text, is_cut });
    }

    fn clear(&mut self) {
        self.is_over = false;
        self.strings.clear();
        self.text.clear();
    }

    /// The strings, if they belong to this call.
    fn next_of(&mut self, sample: &Sample<'_>) -> Option<&WaitingStrings> {
        let is_next = !self.strings.is_empty()
            && !std::mem::replace(&mut self.is_over, true)
            && self.tid == sample.tid
            && sample.time.wrapping_sub(self.time) <= TOGETHER_NS;
        is_next.then_some(self)
    }

    /// # Errors
    /// Why it is not known.
    fn of(&self, argument: PointerArgument, address: Option<u64>) -> Result<ArgumentText<'_>, UnreadText> {
        let is_it = |string: &&WaitingString| {
            (string.argument, string.pointee) == (argument.argument, argument.pointee)
                && Some(string.address) == address
        };
        let string = self.strings.iter().find(is_it).ok_or(UnreadText::NoCopy)?;
        let text = string.text.and_then(|(start, end)| self.text.get(start..end)).ok_or(UnreadText::NotInMemory)?;
        Ok(match argument.pointee {
            Pointee::SocketAddress | Pointee::Message => ArgumentText::SocketAddress(text),
            Pointee::Words if string.is_cut => ArgumentText::Words(text.strip_suffix(b"\0").unwrap_or(text)),
            Pointee::Words => ArgumentText::Words(text),
            Pointee::String if string.is_cut => ArgumentText::Cut(text),
            Pointee::String => ArgumentText::Read(text),
        })
    }
}

fn unread_text(pointee: Pointee, unread: UnreadText) -> ArgumentText<'static> {
    match pointee {
        Pointee::String => ArgumentText::Unread(unread),
        Pointee::SocketAddress | Pointee::Words | Pointee::Message => ArgumentText::UnreadData(unread),
    }
}

/// The arguments of the call whose event has this format that are copied.
pub fn pointer_arguments(format: &Format) -> Vec<PointerArgument> {
    let of = |pointee| move |(argument, offset)| PointerArgument { argument, offset, pointee };
    let strings = string_arguments(format).into_iter().map(of(Pointee::String));
    let addresses = socket_address_argument(format).map(of(Pointee::SocketAddress));
    let words = word_list_argument(format).map(of(Pointee::Words));
    strings.chain(addresses).chain(words).chain(message_argument(format).map(of(Pointee::Message))).collect()
}

/// Leaves out tasks that the answer is not about, if the kernel can tell them.
pub(super) fn limit(evlist: &mut Evlist, setup: &Setup<'_>) {
    let forks = || {
        let format = setup.format("sched:sched_process_fork").map_err(io::Error::other)?;
        let child = format.field("child_pid").filter(|child| child.size == 4);
        let child = child.and_then(|child| u16::try_from(child.offset).ok());
        let child = child.ok_or_else(|| io::Error::other("no child_pid in sched:sched_process_fork"))?;
        Ok(ForkEvent { id: format.id, child })
    };
    if procfs::is_nested(setup.host) {
        return; // BPF programs see the pids of the initial namespace
    }
    if let Err(err) = evlist.limit_strings(setup.target, setup.watched.fixed().as_deref(), setup.host, forks) {
        setup.note(format!("strings of system calls are copied for all tasks of the machine: {err}"));
    }
}

fn address_at(raw: &[u8], offset: u16) -> Option<u64> {
    let word = raw.get(usize::from(offset)..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}
