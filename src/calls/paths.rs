//! The paths and other strings, and the socket addresses, that calls are given: kept from the entry of a call to its
//! end.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::calls::kinds::CallNumber;
use crate::calls::list::CallList;
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::Setup;
use crate::profiler::call_strings::{CallStrings, pointer_arguments};
use crate::report::{ArgumentText, LateSource};
use crate::tep::format::Format;
use crate::tep::syscalls::call_text::{PathStart, is_relative, path_starts, socket_address};
use crate::tep::syscalls::{self, SyscallEnd};

/// Most threads whose strings are kept.
const MAX_THREADS: usize = 100_000;
/// Most distinct strings in the table; strings that rows hold live on.
const MAX_STRINGS: usize = 16_384;
/// Size of the table of call numbers: no architecture has as many calls.
const MAX_CALLS: u64 = 1024;

/// A call that has strings, by its number, and the format of its event.
pub type CallWithStrings = (u32, Arc<Format>);

/// The strings of the calls in progress.
#[derive(Debug)]
pub struct CallPaths {
    strings: CallStrings,
    /// By thread.
    held: FxHashMap<i32, HeldStrings>,
    known: FxHashSet<Arc<[u8]>>,
    /// By call number, the directory at which relative paths of the call begin.
    starts: Vec<[Option<PathStart>; 2]>,
    /// Offset of the first argument.
    args: usize,
}

/// The kept strings of a call.
#[derive(Clone, Debug)]
struct HeldStrings {
    call: CallNumber,
    /// The first argument.
    descriptor: i32,
    first: PathOfCall,
    second: PathOfCall,
}

/// A string that a call was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathOfCall {
    /// The call has none.
    #[default]
    None,
    Read {
        text: Arc<[u8]>,
        /// The descriptor of the directory to which the path is relative, if it is a relative path.
        directory: Option<i32>,
    },
    /// The address of a string that could not be read, and why.
    Unread { address: u64, reason: &'static str },
    /// The address of a socket.
    Socket(Arc<[u8]>),
    /// The arguments of a program.
    Words(Arc<[u8]>),
    /// A socket address, or the arguments of a program, that could not be read.
    UnreadData { reason: &'static str },
}

impl PathOfCall {
    pub fn text(&self) -> Option<Arc<[u8]>> {
        match self {
            PathOfCall::Read { text, .. } | PathOfCall::Socket(text) | PathOfCall::Words(text) => Some(text.clone()),
            PathOfCall::None | PathOfCall::Unread { .. } | PathOfCall::UnreadData { .. } => None,
        }
    }

    /// Which part of the string can still be looked up.
    pub fn to_look_up(&self) -> Option<LateSource> {
        match *self {
            PathOfCall::Read { directory: Some(fd), .. } => Some(LateSource::Directory(fd)),
            PathOfCall::Unread { address, .. } if address != 0 => Some(LateSource::String(address)),
            _ => None,
        }
    }
}

/// Calls that are made for each piece of data, mostly without an address: where only failures are counted, recording
/// the starts of all of these would cost too much, unless the user names the call.
const FREQUENT: [u32; 2] = [libc::SYS_sendto as u32, libc::SYS_sendmsg as u32];

/// Of the wanted calls, those that have strings or socket addresses. `starts_too`: the starts of all calls are recorded
/// anyway.
///
/// # Errors
/// tracefs cannot be read.
pub fn calls_with_strings(
    wanted: Option<&CallList>,
    starts_too: bool,
    setup: &Setup<'_>,
) -> Result<Vec<CallWithStrings>> {
    let names = setup.tracefs.get()?.matching(&format!("{}:sys_enter_*", syscalls::SYSTEM))?;
    let mut calls = Vec::new();
    for name in names {
        let Some((SyscallEnd::Enter, number)) =
            name.split_once(':').and_then(|(_, event)| syscalls::end_and_number(event))
        else {
            continue;
        };
        if !wanted.is_none_or(|wanted| i32::try_from(number).is_ok_and(|number| wanted.contains(number))) {
            continue;
        }
        if FREQUENT.contains(&number) && !starts_too && wanted.is_none() {
            continue;
        }
        let format = setup.format(&name)?;
        if !pointer_arguments(&syscalls::without_user_text(&format)).is_empty() {
            calls.push((number, format));
        }
    }
    Ok(calls)
}

/// Whether some of these calls are connect.
pub fn has_connect(calls: &[CallWithStrings]) -> bool {
    calls.iter().any(|(number, _)| i64::from(*number) == libc::SYS_connect)
}

/// A kernel filter of the raw event that passes these calls.
pub fn filter_of(calls: &[CallWithStrings]) -> Option<String> {
    let numbers: BTreeSet<u32> = calls.iter().map(|(number, _)| *number).collect();
    syscalls::numbers_filter("id", &numbers, &(0..1024).collect())
}

impl CallPaths {
    /// Requests the strings of `calls`, which the raw event `enter` records. None: no call has strings.
    pub fn ask(
        enter: EventId,
        calls: &[CallWithStrings],
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<Option<CallPaths>> {
        let format = setup.format(SyscallEnd::Enter.raw())?;
        let Some(args) = format.field("args").map(|args| args.offset) else { return Ok(None) };
        let starts = (0..MAX_CALLS).map(path_starts).collect();
        let calls = calls.iter().map(|(number, format)| (*number, &**format));
        let strings = CallStrings::ask_by_number(enter, &format, calls, evlist, setup);
        Ok(strings.map(|strings| CallPaths {
            strings,
            held: FxHashMap::default(),
            known: FxHashSet::default(),
            starts,
            args,
        }))
    }

    /// Handles a sample that is a string. False: the sample is of another event.
    pub fn take(&mut self, event: EventId, sample: &Sample<'_>) -> bool {
        self.strings.copies() == Some(event) && {
            self.strings.take(sample);
            true
        }
    }

    /// Keeps the strings of a call that begins.
    pub fn entered(&mut self, call: CallNumber, sample: &Sample<'_>) {
        let CallPaths { strings, held, known, starts, args } = self;
        let number = if call.is_compat { None } else { usize::try_from(call.number).ok() };
        let starts = number.and_then(|number| starts.get(number)).copied().unwrap_or_default();
        let word = |offset: usize| sample.raw.get(offset..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let directory = |start| match start {
            PathStart::Current => Some(libc::AT_FDCWD),
            PathStart::Descriptor(at) => word(*args + 8 * usize::from(at)).map(|fd| fd as i32),
        };
        let starts = starts.into_iter().chain(std::iter::repeat(None));
        let texts = strings.of(sample, number).zip(starts);
        let mut texts = texts.map(|((offset, text), start)| match text {
            ArgumentText::Read(text) | ArgumentText::Cut(text) | ArgumentText::Late(text) => {
                let directory = start.filter(|_| is_relative(text)).and_then(directory);
                PathOfCall::Read { text: kept(text, known), directory }
            }
            ArgumentText::Unread(unread) => {
                PathOfCall::Unread { address: word(offset.into()).unwrap_or(0), reason: unread.reason() }
            }
            ArgumentText::SocketAddress(address) => {
                PathOfCall::Socket(kept(socket_address::meaningful(address), known))
            }
            ArgumentText::Words(list) => PathOfCall::Words(kept(list, known)),
            ArgumentText::UnreadData(unread) => PathOfCall::UnreadData { reason: unread.reason() },
        });
        let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        drop(texts);
        if first == PathOfCall::None {
            // Strings kept for an earlier call belong to another call number, or are a socket address.
            if strings.asks_for(number) {
                held.remove(&sample.tid);
            }
            return;
        }
        if held.len() >= MAX_THREADS {
            held.clear(); // the strings of calls in progress count as unread
        }
        let descriptor = word(*args).unwrap_or(0) as i32;
        held.insert(sample.tid, HeldStrings { call, descriptor, first, second });
    }

    /// The strings of the call that a thread is in.
    pub fn of(&self, tid: i32, call: CallNumber) -> [PathOfCall; 2] {
        let held = self.held.get(&tid).filter(|held| held.call == call);
        held.map_or_else(Default::default, |held| [held.first.clone(), held.second.clone()])
    }

    /// The first argument of the call that a thread is in, if the call has strings or an address.
    pub fn descriptor(&self, tid: i32, call: CallNumber) -> Option<i32> {
        self.held.get(&tid).filter(|held| held.call == call).map(|held| held.descriptor)
    }

    /// The strings of a call that ends.
    pub fn ended(&mut self, tid: i32, call: CallNumber) -> [PathOfCall; 2] {
        let paths = self.of(tid, call);
        self.held.remove(&tid);
        paths
    }

    /// The strings of a failed call, without the arguments of an executed program: rows are not by these.
    pub fn failed(&mut self, tid: i32, call: CallNumber) -> [PathOfCall; 2] {
        let without_words = |path| if let PathOfCall::Words(_) = path { PathOfCall::None } else { path };
        self.ended(tid, call).map(without_words)
    }

    pub fn forget(&mut self, tid: i32) {
        self.held.remove(&tid);
    }

    /// A thread gets another tid.
    pub fn took_over(&mut self, old: i32, new: i32) {
        if let Some(held) = self.held.remove(&old) {
            self.held.insert(new, held);
        }
    }

    /// Records of a CPU were lost: a thread that began a call there may have begun another call since.
    pub fn lost(&mut self, cpu: u32) {
        self.strings.forget(cpu);
        // A thread may have migrated to this CPU, and its next call is among the lost records.
        self.held.clear();
    }
}

/// The text, shared between all calls that have the same text.
fn kept(text: &[u8], known: &mut FxHashSet<Arc<[u8]>>) -> Arc<[u8]> {
    if let Some(known) = known.get(text) {
        return known.clone();
    }
    if known.len() >= MAX_STRINGS {
        known.clear();
    }
    let text: Arc<[u8]> = Arc::from(text);
    known.insert(text.clone());
    text
}
