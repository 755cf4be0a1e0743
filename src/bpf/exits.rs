//! Whether a BPF program can return anything but 1, judged from its instructions alone.
//!
//! A program on a tracepoint that returns an even number hides the event from every perf event of the machine
//! (`trace_call_bpf`, kernel/trace/bpf_trace.c; the results of all programs are put together by a bitwise AND). One
//! that ends with a constant 1 on every path hides nothing by itself (see `attached`). Of any other program the contrary is assumed.

use crate::bpf::instruction::{
    ALU, ALU64, ATOMIC, CALL, CLASS, COMPARISONS, EXIT, Instruction, JA, JA32, JMP, JMP32, LD, LD_IMM64, LDX, MODE,
    MOV32_IMM, MOV64_IMM, ST, STX,
};
use crate::sys::bpf::INSTRUCTION_BYTES;

const BPF_FUNC_TAIL_CALL: i32 = 12;
/// `src_reg` in the call of a kfunc, a kernel function that is no helper. One kfunc, `bpf_throw`, ends the program.
const PSEUDO_KFUNC_CALL: u8 = 2;

impl Instruction {
    /// The state of register 0 after the instruction, given its state before. None: the instruction is unknown.
    fn result(&self, before: Register0) -> Option<Register0> {
        let written = self.dst == 0;
        Some(match self.code & CLASS {
            ALU | ALU64 if written && matches!(self.code, MOV32_IMM | MOV64_IMM) && self.imm == 1 => Register0::One,
            ALU | ALU64 | LDX if written => Register0::Other,
            ALU | ALU64 | LDX | ST => before,
            // An atomic operation may fetch into its source, or into register 0.
            STX if self.code & MODE == ATOMIC => Register0::Other,
            STX => before,
            LD if self.code == LD_IMM64 && !written => before,
            LD => Register0::Other, // loads from packets write register 0
            JMP | JMP32 if self.code == CALL => Register0::Other,
            JMP | JMP32 => before,
            _ => return None,
        })
    }
}

/// What is known of register 0, which holds the program's return value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Register0 {
    One,
    Other,
}

/// True when every path through the program returns 1. `program`: the instructions as the kernel hands them out, with
/// further functions behind the first one.
pub fn returns_one(program: &[u8]) -> bool {
    let (instructions, rest) = program.as_chunks::<INSTRUCTION_BYTES>();
    let instructions: Vec<Instruction> = instructions.iter().map(Instruction::parse).collect();
    let throws = |instruction: &Instruction| instruction.code == CALL && instruction.src == PSEUDO_KFUNC_CALL;
    !instructions.is_empty()
        && rest.is_empty()
        && !instructions.iter().any(throws)
        && first_returns_one(&instructions).unwrap_or(false)
}

/// As [`returns_one`], for the function that begins with the first instruction: others are called, never jumped into.
/// None: the kernel would not have accepted these instructions.
fn first_returns_one(instructions: &[Instruction]) -> Option<bool> {
    // The worst state of register 0 before each instruction. A state only gets worse, so the loop ends.
    let mut worst: Vec<Option<Register0>> = vec![None; instructions.len()];
    let mut todo = vec![(0_usize, Register0::Other)];
    while let Some((at, held)) = todo.pop() {
        let (instruction, known) = (instructions.get(at)?, worst.get_mut(at)?);
        if known.is_some_and(|known| known >= held) {
            continue;
        }
        *known = Some(held);
        match instruction.code {
            EXIT if held == Register0::One => continue,
            EXIT => return Some(false),
            // After a tail call another program returns in place of this one.
            CALL if instruction.src == 0 && instruction.imm == BPF_FUNC_TAIL_CALL => return Some(false),
            _ => {}
        }
        let held = instruction.result(held)?;
        let after = |jump: i64| i64::try_from(at).ok()?.checked_add(1)?.checked_add(jump)?.try_into().ok();
        let class = instruction.code & CLASS;
        match instruction.code {
            JA => todo.push((after(instruction.off.into())?, held)),
            JA32 => todo.push((after(instruction.imm.into())?, held)),
            LD_IMM64 => todo.push((after(1)?, held)),
            CALL => todo.push((after(0)?, held)),
            code if class == JMP || class == JMP32 => {
                if !COMPARISONS.contains(&(code & 0xf0)) {
                    return None;
                }
                todo.push((after(instruction.off.into())?, held));
                todo.push((after(0)?, held));
            }
            _ => todo.push((after(0)?, held)),
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Code, target, source, offset, immediate.
    type InstructionFields = (u8, u8, u8, i16, i32);

    fn program(instructions: &[InstructionFields]) -> Vec<u8> {
        let bytes = |&(code, dst, src, off, imm): &InstructionFields| {
            let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
            let [off0, off1] = off.to_ne_bytes();
            let [imm0, imm1, imm2, imm3] = imm.to_ne_bytes();
            [code, registers, off0, off1, imm0, imm1, imm2, imm3]
        };
        instructions.iter().flat_map(bytes).collect()
    }

    const RETURN_1: InstructionFields = (MOV64_IMM, 0, 0, 0, 1);
    const RETURN_0: InstructionFields = (MOV64_IMM, 0, 0, 0, 0);
    const LEAVE: InstructionFields = (EXIT, 0, 0, 0, 0);
    const IF_R1: InstructionFields = (0x15, 1, 0, 1, 7); // if r1 == 7, skip the next

    #[test]
    fn a_constant_1_on_every_path_hides_nothing() {
        let cases: [(&str, &[InstructionFields], bool); 25] = [
            ("1", &[RETURN_1, LEAVE], true),
            ("1 in 32 bits", &[(MOV32_IMM, 0, 0, 0, 1), LEAVE], true),
            ("0", &[RETURN_0, LEAVE], false),
            ("2, of which nothing is left by the AND", &[(MOV64_IMM, 0, 0, 0, 2), LEAVE], false),
            ("a copy", &[(0xbf, 0, 1, 0, 0), LEAVE], false),
            ("nothing was set", &[LEAVE], false),
            ("another register", &[(MOV64_IMM, 1, 0, 0, 1), LEAVE], false),
            ("work behind it", &[RETURN_1, (0x07, 1, 0, 0, 8), (0x7b, 1, 2, 0, 0), LEAVE], true),
            ("added to", &[RETURN_1, (0x07, 0, 0, 0, 1), LEAVE], false),
            ("loaded over", &[RETURN_1, (0x61, 0, 1, 0, 0), LEAVE], false),
            ("an atomic fetch", &[RETURN_1, (0xdb, 1, 0, 0, 1), LEAVE], false),
            ("a helper behind it", &[RETURN_1, (CALL, 0, 0, 0, 5), LEAVE], false),
            ("a helper in front", &[(CALL, 0, 0, 0, 5), RETURN_1, LEAVE], true),
            ("a tail call", &[(CALL, 0, 0, 0, BPF_FUNC_TAIL_CALL), RETURN_1, LEAVE], false),
            ("a function of the kernel", &[(CALL, 0, PSEUDO_KFUNC_CALL, 0, 5), RETURN_1, LEAVE], false),
            ("both ways 1", &[IF_R1, RETURN_1, RETURN_1, LEAVE], true),
            ("one way 0", &[RETURN_1, IF_R1, RETURN_0, LEAVE], false),
            ("one way nothing", &[IF_R1, RETURN_1, LEAVE], false),
            ("two exits", &[RETURN_1, IF_R1, LEAVE, RETURN_0, LEAVE], false),
            ("a jump to a common exit", &[RETURN_1, (JA, 0, 0, 1, 0), RETURN_0, LEAVE], true),
            ("a long jump", &[RETURN_1, (JA32, 0, 0, 0, 1), RETURN_0, LEAVE], true),
            ("a loop", &[RETURN_1, (0x07, 1, 0, 0, -1), (0x55, 1, 0, -2, 0), LEAVE], true),
            // r1 = function behind this one; call it; r0 = 1
            ("a function that returns 0", &[(CALL, 0, 1, 0, 2), RETURN_1, LEAVE, RETURN_0, LEAVE], true),
            ("a wide constant, which only looks like an exit", &[(LD_IMM64, 1, 0, 0, 9), LEAVE, RETURN_1, LEAVE], true),
            ("a wide constant", &[RETURN_1, (LD_IMM64, 0, 0, 0, 1), (0, 0, 0, 0, 0), LEAVE], false),
        ];
        for (what, instructions, want) in cases {
            assert_eq!(returns_one(&program(instructions)), want, "{what}");
        }
    }

    #[test]
    fn invalid_programs_are_not_believed() {
        let cases: [&[InstructionFields]; 7] = [
            &[],
            &[RETURN_1],
            &[RETURN_1, (JA, 0, 0, -9, 0), LEAVE],
            &[RETURN_1, (JA, 0, 0, 9, 0), LEAVE],
            &[RETURN_1, (JA32, 0, 0, 0, i32::MIN), LEAVE],
            &[RETURN_1, (0xe5, 0, 0, 0, 0), LEAVE],
            &[RETURN_1, (0x0d, 1, 0, 0, 0), LEAVE], // an indirect jump
        ];
        for instructions in cases {
            assert!(!returns_one(&program(instructions)), "{instructions:?}");
        }
        assert!(!returns_one(&program(&[RETURN_1, LEAVE])[..15]));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            returns_one(&bytes);
        }

        /// A program with a path that returns 0 is never taken for one that returns 1.
        #[test]
        fn a_path_to_0_is_found(before in proptest::collection::vec(0_u8..4, 0..20)) {
            let step = |kind: u8| match kind {
                0 => RETURN_1,
                1 => (0x07, 1, 0, 0, 8),
                2 => (0x15, 1, 0, 0, 7),
                _ => (CALL, 0, 0, 0, 5),
            };
            let mut instructions: Vec<_> = before.into_iter().map(step).collect();
            instructions.extend([RETURN_0, LEAVE]);
            prop_assert!(!returns_one(&program(&instructions)));
        }
    }
}
