//! The arguments of programs as they are executed, for the lineages of processes: copied at the entry of the call, so that they
//! are known of processes that end at once.

use crate::bpf::strings::{CopiedString, Pointee};
use crate::perf::evlist::Evlist;
use crate::perf::{EventId, Sample};
use crate::profiler::call_strings::pointer_arguments;
use crate::profiler::{Context, Setup};
use crate::tep::syscalls::SyscallEnd;

/// The calls that execute a program.
const CALLS: [&str; 2] = ["execve", "execveat"];

/// The events whose samples are arguments of programs. None: the kernel copies none for us.
#[derive(Debug, Default)]
pub struct ExecutedPrograms {
    copies: Vec<EventId>,
}

impl ExecutedPrograms {
    /// Asks for the arguments of all programs of the machine. To be called when all other events of the profiler are in the list.
    /// `beside`: one of them.
    pub fn ask(beside: EventId, evlist: &mut Evlist, setup: &Setup<'_>) -> ExecutedPrograms {
        let mut copies = Vec::new();
        let calls = if evlist.is_forecast() { &[][..] } else { &CALLS[..] };
        for call in calls {
            let Ok((enter, format)) = setup.tracepoint(&SyscallEnd::Enter.event(call)) else { continue };
            let words = pointer_arguments(&format).into_iter().filter(|argument| argument.pointee == Pointee::Words);
            match evlist.copy_words(beside, enter, words.collect(), setup.host) {
                Ok(copy) => copies.push(copy),
                Err(reason) => setup.degrade_executed(reason),
            }
        }
        ExecutedPrograms { copies }
    }

    /// Takes the arguments of a program that is about to be executed. False: the sample is of another event.
    pub fn take(&self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> bool {
        if !self.copies.contains(&event) {
            return false;
        }
        let copied = CopiedString::parse(sample.raw).and_then(|copied| Some((copied.text?, copied.is_cut)));
        if let Some((words, is_cut)) = copied {
            ctx.tasks.executes(sample.pid, words, is_cut);
        }
        true
    }
}
