//! The paths and other strings that calls are given: kept from the entry of a call to its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::Sample;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::EventId;
use crate::profiler::Setup;
use crate::profiler::call_strings::CallStrings;
use crate::profilers::syscalls::args::CallList;
use crate::profilers::syscalls::kinds::CallNumber;
use crate::report::ArgumentText;
use crate::tep::format::Format;
use crate::tep::syscall_strings::string_arguments;
use crate::tep::syscalls::{self, SyscallEnd};

/// Threads whose strings are kept at most.
const MOST_THREADS: usize = 100_000;
/// Distinct strings that are kept at most; those that rows hold live on.
const MOST_STRINGS: usize = 16_384;

/// A call that has strings, by its number, and the format of its event.
pub type CallWithStrings = (u32, Arc<Format>);

/// The strings of the calls that go on.
#[derive(Debug)]
pub struct CallPaths {
    strings: CallStrings,
    /// By thread.
    held: FxHashMap<i32, HeldStrings>,
    known: FxHashSet<Arc<[u8]>>,
}

/// The first strings of a call.
#[derive(Clone, Debug)]
struct HeldStrings {
    call: CallNumber,
    first: PathOfCall,
    second: PathOfCall,
}

/// A string that a call was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathOfCall {
    /// The call has none.
    #[default]
    None,
    Read(Arc<[u8]>),
    /// Why it is not known.
    Unread(&'static str),
}

impl PathOfCall {
    pub fn text(&self) -> Option<Arc<[u8]>> {
        if let PathOfCall::Read(text) = self { Some(text.clone()) } else { None }
    }
}

/// The calls that have strings, of those that are wanted.
///
/// # Errors
/// tracefs cannot be read.
pub fn calls_with_strings(wanted: Option<&CallList>, setup: &Setup<'_>) -> Result<Vec<CallWithStrings>> {
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
        let format = setup.format(&name)?;
        if !string_arguments(&syscalls::without_user_text(&format)).is_empty() {
            calls.push((number, format));
        }
    }
    Ok(calls)
}

/// A kernel filter of the raw event that passes these calls.
pub fn filter_of(calls: &[CallWithStrings]) -> Option<String> {
    let numbers: BTreeSet<u32> = calls.iter().map(|(number, _)| *number).collect();
    syscalls::numbers_filter("id", &numbers, &(0..1024).collect())
}

impl CallPaths {
    /// Asks for the strings of `calls`, which the raw event `enter` records. None: there are none.
    pub fn ask(
        enter: EventId,
        calls: &[CallWithStrings],
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<Option<CallPaths>> {
        let format = setup.format(SyscallEnd::Enter.raw())?;
        let calls = calls.iter().map(|(number, format)| (*number, &**format));
        let strings = CallStrings::ask_by_number(enter, &format, calls, evlist, setup);
        Ok(strings.map(|strings| CallPaths { strings, held: FxHashMap::default(), known: FxHashSet::default() }))
    }

    /// Takes a sample that is a string. False: it is of another event.
    pub fn take(&mut self, event: EventId, sample: &Sample<'_>) -> bool {
        self.strings.copies() == Some(event) && {
            self.strings.take(sample);
            true
        }
    }

    /// Keeps the strings of a call that begins.
    pub fn entered(&mut self, call: CallNumber, sample: &Sample<'_>) {
        let CallPaths { strings, held, known } = self;
        let number = if call.is_compat { None } else { usize::try_from(call.number).ok() };
        let mut texts = strings.of(sample, number).map(|(_, text)| path_of(text, known));
        let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        drop(texts);
        if first == PathOfCall::None {
            return; // what is held of an earlier call is of a call with another number
        }
        if held.len() >= MOST_THREADS {
            held.clear(); // their strings are unread
        }
        held.insert(sample.tid, HeldStrings { call, first, second });
    }

    /// The strings of the call of a thread.
    pub fn of(&self, tid: i32, call: CallNumber) -> [PathOfCall; 2] {
        let held = self.held.get(&tid).filter(|held| held.call == call);
        held.map_or_else(Default::default, |held| [held.first.clone(), held.second.clone()])
    }

    /// The strings of a call that ends.
    pub fn ended(&mut self, tid: i32, call: CallNumber) -> [PathOfCall; 2] {
        let paths = self.of(tid, call);
        self.held.remove(&tid);
        paths
    }

    pub fn forget(&mut self, tid: i32) {
        self.held.remove(&tid);
    }

    /// Records of a CPU were lost: a thread that began a call there may have begun another one since.
    pub fn lost(&mut self, cpu: u32) {
        self.strings.forget(cpu);
        // A thread may have gone on to this CPU, and its next call is among what was lost.
        self.held.clear();
    }
}

fn path_of(text: ArgumentText<'_>, known: &mut FxHashSet<Arc<[u8]>>) -> PathOfCall {
    match text {
        ArgumentText::Read(text) | ArgumentText::Cut(text) | ArgumentText::Late(text) => {
            if let Some(known) = known.get(text) {
                return PathOfCall::Read(known.clone());
            }
            if known.len() >= MOST_STRINGS {
                known.clear();
            }
            let text: Arc<[u8]> = Arc::from(text);
            known.insert(text.clone());
            PathOfCall::Read(text)
        }
        ArgumentText::Unread(unread) => PathOfCall::Unread(unread.reason()),
    }
}
