//! The common part of perf-prof's copying BPF programs: how they are loaded and attached, and the events that they
//! write their output to.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::bpf::CopierRefusal;
use crate::bpf::assembler::AssemblyError;
use crate::bpf::instruction::Helper;
use crate::sys;
use crate::sys::bpf::{BpfMap, MapKind, id_of, load_tracepoint_program};

/// `BPF_F_CURRENT_CPU`
pub(super) const CURRENT_CPU: u32 = u32::MAX;

/// A loaded program, with the map of BPF output events that it writes to.
#[derive(Debug)]
pub struct Copier {
    output: BpfMap,
    program: OwnedFd,
    id: Option<u32>,
}

impl Copier {
    /// Loads the program that `assemble` makes from the descriptor of the map of events and the helper that reads
    /// memory: the first of `helpers`, or the second on older kernels. `cpus`: greater than any CPU number.
    ///
    /// # Errors
    /// The kernel refuses a map or the program.
    pub(super) fn load(
        name: &str,
        cpus: u32,
        helpers: [Helper; 2],
        assemble: impl Fn(i32, Helper) -> Result<Vec<u8>, AssemblyError>,
    ) -> Result<Copier, CopierRefusal> {
        let output = BpfMap::new(MapKind::PerfEvents, 4, cpus).map_err(CopierRefusal::of("a BPF map"))?;
        let load = |helper| {
            let program = assemble(output.as_fd().as_raw_fd(), helper).map_err(io::Error::other)?;
            load_tracepoint_program(name, &program)
        };
        let program = match load(helpers[0]) {
            Err(err) if err.raw_os_error() == Some(libc::EINVAL) => load(helpers[1]).map_err(|_| err),
            loaded => loaded,
        };
        let program = program.map_err(CopierRefusal::of("a BPF program"))?;
        let id = id_of(program.as_fd()).ok();
        Ok(Copier { output, program, id })
    }

    /// From now on the program's output on `cpu` goes to `event`, a BPF output event of that CPU.
    ///
    /// # Errors
    /// `cpu` is not below the number of CPUs, or `event` is no such event.
    pub fn write_through(&self, cpu: u32, event: BorrowedFd<'_>) -> io::Result<()> {
        self.output.set(cpu, &event.as_raw_fd().to_ne_bytes())
    }

    /// Stops the program's output on `cpu`.
    pub fn leave_out(&self, cpu: u32) {
        let _ = self.output.remove(cpu); // the CPU has no event in the map
    }

    /// Attaches the program to the tracepoint of `event`, on all CPUs, for as long as `event` is open.
    ///
    /// # Errors
    /// The tracepoint has 64 programs already, the kernel's limit.
    pub fn attach(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        sys::perf::attach_program(event, self.program.as_fd())
    }

    /// The id of the program, where the kernel has such ids.
    pub fn id(&self) -> Option<u32> {
        self.id
    }
}
