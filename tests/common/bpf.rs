//! BPF programs of a few instructions, made by hand, on tracepoints that no other test uses: events that they
//! hide are hidden from the whole machine.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use perf_prof::perf::Attr;
use perf_prof::perf::attr::MissingFeatures;
use perf_prof::profiler::TracefsFinder;
use perf_prof::sys::bpf::load_tracepoint_program;
use perf_prof::sys::perf::{Watch, attach_program, attached_programs};

/// The effect of a program on the events.
#[derive(Clone, Copy, Debug)]
pub enum Returns {
    /// Hides all events.
    Zero,
    One,
    /// Hides nothing, but its instructions do not show that.
    SumOfOne,
    /// One, after so much work that an interrupt may well come meanwhile.
    OneAfterLong,
}

impl Returns {
    fn instructions(self) -> Vec<u8> {
        // struct bpf_insn: code, registers, offset, immediate
        let step = |code: u8, imm: i32| {
            let [a, b, c, d] = imm.to_ne_bytes();
            [code, 0, 0, 0, a, b, c, d]
        };
        let set = |imm| step(0xb7, imm);
        let exit = step(0x95, 0);
        match self {
            Returns::Zero => [set(0), exit].concat(),
            Returns::One => [set(1), exit].concat(),
            Returns::OneAfterLong => {
                const CALLS: usize = 20_000;
                const KTIME_GET_NS: i32 = 5;
                [step(0x85, KTIME_GET_NS).repeat(CALLS), [set(1), exit].concat()].concat()
            }
            Returns::SumOfOne => [set(0), step(0x07, 1), exit].concat(),
        }
    }
}

/// A program on a tracepoint, as long as this lives.
pub struct OnTracepoint {
    _event: OwnedFd,
    _program: OwnedFd,
    pub id: u64,
}

impl OnTracepoint {
    /// # Errors
    /// The kernel refuses bpf(2), or the event is unknown.
    pub fn attach(event: &str, name: &str, returns: Returns) -> io::Result<OnTracepoint> {
        let (system, of_system) = event.split_once(':').expect("system:event");
        let finder = TracefsFinder::default();
        let tracefs = finder.get().map_err(io::Error::other)?;
        let format = tracefs.format(system, of_system).map_err(io::Error::other)?;
        let program = load_tracepoint_program(name, &returns.instructions())?;
        let watch = Watch::Cpu(super::online_cpus()[0]); // any CPU stands for all
        let fd = MissingFeatures::default().open(&mut Attr::tracepoint(format.id), watch)?;
        let before = attached_programs(fd.as_fd())?;
        attach_program(fd.as_fd(), program.as_fd())?;
        let now = attached_programs(fd.as_fd())?;
        let id = now.iter().find(|id| !before.contains(id)).copied().expect("the new program");
        Ok(OnTracepoint { _event: fd, _program: program, id: id.into() })
    }
}
