//! A BPF program that copies the records of a tracepoint into perf-prof's rings while an idle task is current.
//!
//! On some virtual machines the kernel writes no sample while the idle task of a CPU is current, so that interrupts of
//! idle CPUs are unseen, but the kernel runs the BPF programs of the tracepoint. This program writes the whole record
//! to a BPF output event, in the form of the tracepoint's own sample, and ignores records of other tasks. It always
//! returns 1.

use std::os::fd::{AsFd, AsRawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::assembler::{Assembler, AssemblyError, offset_of};
use crate::bpf::copier::{CURRENT_CPU, Copier};
use crate::bpf::instruction::{Helper, Instruction, JumpCondition, MoveSize, R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use crate::sys::bpf::{BpfMap, MapKind};

/// `PERF_MAX_TRACE_SIZE`: no record of a tracepoint is larger.
const RECORD_BYTES: u32 = 8192;
/// A mask for sizes, from which the kernel's verifier knows that they are bounded.
const SIZE_MASK: i32 = RECORD_BYTES as i32 - 1;
const NAME: &str = "perf_prof_idle";

/// The layout of a tracepoint's record, for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleRecord {
    /// The fields that all tracepoints begin with: `common_type` to `common_pid`. The kernel sets them only after the
    /// program has run.
    pub common: [u8; 8],
    /// Size of the record without the texts and arrays behind its fields.
    pub fixed_bytes: u16,
    pub last_array: Option<ArrayPlace>,
}

impl IdleRecord {
    /// Size of this record with the texts and arrays behind its fields.
    pub fn bytes(&self, raw: &[u8]) -> usize {
        let Some(ArrayPlace { offset, base }) = self.last_array else { return self.fixed_bytes.into() };
        let word =
            raw.get(offset.into()..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word));
        (word & 0xffff) as usize + (word >> 16) as usize + usize::from(base)
    }
}

/// The field that tells where the last text or array of a record lies: in the lower half its offset, in the upper one its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayPlace {
    pub offset: u16,
    /// Where the array's offset counts from.
    pub base: u16,
}

/// A buffer per CPU that all programs share: a CPU runs one program at a time.
#[derive(Debug)]
pub struct RecordBuffer(BpfMap);

impl RecordBuffer {
    /// # Errors
    /// The kernel refuses the map.
    pub fn new() -> Result<RecordBuffer, CopierRefusal> {
        BpfMap::new(MapKind::CpuBuffers, RECORD_BYTES, 1).map(RecordBuffer).map_err(CopierRefusal::of("a BPF map"))
    }
}

/// Loads the program. `cpus`: greater than any CPU number.
///
/// # Errors
/// The kernel refuses a map or the program.
pub fn load_copier(record: &IdleRecord, cpus: u32, buffer: &RecordBuffer) -> Result<Copier, CopierRefusal> {
    let buffer = buffer.0.as_fd().as_raw_fd();
    Copier::load(NAME, cpus, [Helper::ProbeReadKernel, Helper::ProbeRead], |output, read| {
        assemble(record, [output, buffer], read)
    })
}

/// A stack slot for the key of the look-up.
const ZERO_KEY: i16 = -4;

/// Assembles the program from the descriptors of the output map and of the buffer. Register 6 keeps the record of the
/// event, 7 the buffer, 8 the bytes of the record.
fn assemble(record: &IdleRecord, [output, buffer]: [i32; 2], read: Helper) -> Result<Vec<u8>, AssemblyError> {
    use Instruction as I;
    use MoveSize::Four;
    let mut program = Assembler::default();
    let end = program.label();
    program.add(I::copy(R6, R1));
    program.add(I::call(Helper::CurrentPidTgid));
    program.jump_if(R0, JumpCondition::NotEqual, 0, end);
    program.add(I::store_number(Four, R10, ZERO_KEY, 0));
    program.look_up(buffer, ZERO_KEY);
    program.jump_if(R0, JumpCondition::Equal, 0, end);
    program.add(I::copy(R7, R0));
    match record.last_array {
        Some(ArrayPlace { offset, base }) => {
            program.add(I::load(Four, R8, R6, offset_of(offset)?));
            program.add(I::copy(R1, R8));
            program.add(I::shift_right(R1, 16));
            program.add(I::and(R8, 0xffff));
            program.add(I::add_register(R8, R1));
            program.add(I::add(R8, base.into()));
        }
        None => program.add(I::set(R8, record.fixed_bytes.into())),
    }
    program.add(I::and(R8, SIZE_MASK));
    program.add(I::copy(R1, R7));
    program.add(I::copy(R2, R8));
    program.add(I::copy(R3, R6));
    program.add(I::call(read));
    // The kernel keeps one of its own addresses in these bytes while programs run.
    for (half, offset) in record.common.as_chunks::<4>().0.iter().zip([0, 4]) {
        program.add(I::store_number(Four, R7, offset, i32::from_ne_bytes(*half)));
    }
    program.add(I::copy(R1, R6));
    program.add_all(I::map(R2, output));
    program.add(I::set_half(R3, CURRENT_CPU));
    program.add(I::copy(R4, R7));
    program.add(I::copy(R5, R8));
    program.add(I::call(Helper::PerfEventOutput));
    program.put(end);
    program.add(I::set(R0, 1));
    program.add(I::exit());
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::exits::returns_one;

    #[test]
    fn our_program_always_returns_1() {
        let plain = IdleRecord { common: [1, 0, 8, 0, 0, 0, 0, 0], fixed_bytes: 46, last_array: None };
        let place = Some(ArrayPlace { offset: 36, base: 0 });
        for record in [plain, IdleRecord { last_array: place, ..plain }] {
            let program = assemble(&record, [3, 4], Helper::ProbeRead).unwrap();
            assert!(returns_one(&program), "{record:?}");
            assert!(program.len() / 8 < 40, "{record:?}: {} instructions", program.len() / 8);
        }
        let far = IdleRecord { last_array: Some(ArrayPlace { offset: 40_000, base: 0 }), ..plain };
        assert_eq!(assemble(&far, [3, 4], Helper::ProbeRead), Err(AssemblyError::TooFar));
    }

    #[test]
    fn the_kernel_takes_the_program() {
        let Ok(buffer) = RecordBuffer::new() else {
            eprintln!("skipped: the kernel refuses a BPF map");
            return;
        };
        let plain = IdleRecord { common: [0; 8], fixed_bytes: 46, last_array: None };
        let relative = Some(ArrayPlace { offset: 36, base: 40 });
        for record in [plain, IdleRecord { last_array: relative, ..plain }] {
            let copier = load_copier(&record, 2, &buffer).unwrap_or_else(|err| panic!("{record:?}: {err}"));
            copier.leave_out(1);
        }
    }
}
