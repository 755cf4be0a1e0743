//! The two events that fire for every system call, their fields and their kernel filters.

use anyhow::Result;

use crate::calls::list::CallList;
use crate::perf::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Evsel;
use crate::profiler::{RunScope, Setup};
use crate::tep::syscalls::SyscallEnd;
use crate::tep::{Field, Filter, Int64, ReadError, drift};

/// Options for the two events.
#[derive(Clone, Copy, Debug)]
pub struct WantedCalls {
    /// Only the ends of calls that fail: no latencies.
    pub only_errors: bool,
    /// Also the starts of calls with strings.
    pub paths: bool,
    /// Callchains.
    pub stacks: bool,
}

/// The open events, `sys_exit` and, where wanted, `sys_enter`.
#[derive(Debug)]
pub struct CallEvents {
    pub exit: EventId,
    pub exited: ExitFields,
    /// None: only ends are wanted.
    pub enter: Option<(EventId, EnterFields)>,
    only_errors: bool,
    /// A kernel filter of the starts, if only some calls need them.
    pub starts: Option<String>,
}

#[derive(Debug)]
pub struct EnterFields {
    pub id: Int64,
    args: Field,
}

#[derive(Clone, Copy, Debug)]
pub struct ExitFields {
    pub id: Int64,
    pub ret: Int64,
}

impl EnterFields {
    /// # Errors
    /// The record ends before them.
    pub fn args(&self, raw: &[u8]) -> Result<[u64; 6], ReadError> {
        let words = self.args.bytes(raw)?.as_chunks::<8>().0;
        let mut args = [0; 6];
        args.iter_mut().zip(words).for_each(|(arg, word)| *arg = u64::from_ne_bytes(*word));
        Ok(args)
    }
}

impl CallEvents {
    /// The events of the ends and, if they are wanted, of the starts.
    pub fn of_calls(&self) -> Vec<EventId> {
        self.enter.iter().map(|(enter, _)| *enter).chain([self.exit]).collect()
    }

    /// # Errors
    /// The kernel has no such events, or they lack a field.
    pub fn open(wanted: WantedCalls, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<CallEvents> {
        let enter = if wanted.only_errors && !wanted.paths { None } else { Some(SyscallEnd::Enter) };
        let enter = match enter {
            Some(end) => {
                let (evsel, format) = setup.tracepoint(end.raw())?;
                let id = drift::require(&format, "id")?.int64()?;
                let args = drift::require(&format, "args")?.clone();
                let evsel = with_stacks(evsel.with_abi(), wanted.stacks && !wanted.only_errors);
                Some((evlist.add(evsel)?, EnterFields { id, args }))
            }
            None => None,
        };
        let (evsel, format) = setup.tracepoint(SyscallEnd::Exit.raw())?;
        let field = |name| -> Result<Int64> { Ok(drift::require(&format, name)?.int64()?) };
        let exited = ExitFields { id: field("id")?, ret: field("ret")? };
        let exit = evlist.add(with_stacks(evsel.with_abi(), wanted.stacks && wanted.only_errors))?;
        Ok(CallEvents { exit, exited, enter, only_errors: wanted.only_errors, starts: None })
    }

    /// Has the kernel drop unwanted calls, and the calls of perf-prof's own threads, which `scope` has.
    ///
    /// # Errors
    /// tracefs cannot be read.
    pub fn filter(
        &self,
        calls: Option<&CallList>,
        scope: &RunScope,
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<()> {
        let ends = [(Some(self.exit), SyscallEnd::Exit), (self.enter.as_ref().map(|(id, _)| *id), SyscallEnd::Enter)];
        for (event, end) in ends {
            let Some(event) = event else { continue };
            let format = setup.format(end.raw())?;
            let others = scope.not_own(&format);
            let is_exit = end == SyscallEnd::Exit;
            let text = calls.map(|calls| calls.filter(end));
            let text = self.starts.clone().filter(|_| !is_exit).or(text);
            let numbers = text.and_then(|text| Filter::parse(&text, &format).ok());
            let fails = self.only_errors && is_exit;
            let fails = fails.then(|| Filter::parse("ret < 0 && ret >= -4095", &format).ok()).flatten();
            let rest = Filter::all_of([fails, others]);
            evlist.narrow(event, [Filter::all_of([numbers, rest.clone()]), rest]);
        }
        Ok(())
    }
}

/// Adds user callchains: the kernel part would only show the way to the tracepoint.
fn with_stacks(evsel: Evsel, wanted: bool) -> Evsel {
    if wanted { evsel.callchain(0).user_callchain() } else { evsel }
}
