//! One instruction of a BPF program.

use crate::sys::bpf::INSTRUCTION_BYTES;

// include/uapi/linux/bpf_common.h, include/uapi/linux/bpf.h
pub(super) const CLASS: u8 = 0x07;
pub(super) const LD: u8 = 0x00;
pub(super) const LDX: u8 = 0x01;
pub(super) const ST: u8 = 0x02;
pub(super) const STX: u8 = 0x03;
pub(super) const ALU: u8 = 0x04;
pub(super) const JMP: u8 = 0x05;
pub(super) const JMP32: u8 = 0x06;
pub(super) const ALU64: u8 = 0x07;
pub(super) const ATOMIC: u8 = 0xc0;
pub(super) const MODE: u8 = 0xe0;
/// `LD | IMM | DW`, which takes two instructions.
pub(super) const LD_IMM64: u8 = 0x18;
/// `ALU | MOV | K` and `ALU64 | MOV | K`
pub(super) const MOV32_IMM: u8 = 0xb4;
pub(super) const MOV64_IMM: u8 = 0xb7;
pub(super) const JA: u8 = 0x05;
pub(super) const JA32: u8 = 0x06;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;
/// The operations of `JMP` and `JMP32` that compare and jump: JEQ 0x10 to JSLE 0xd0, without CALL and EXIT.
pub(super) const COMPARISONS: [u8; 11] = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0];

/// `ALU64 | MOV | X`, `ALU64 | ADD | K`, `ALU64 | ADD | X`, `ALU64 | AND | K`, `ALU64 | RSH | K`
const MOV64: u8 = 0xbf;
const ADD64_IMM: u8 = 0x07;
const ADD64: u8 = 0x0f;
const AND64_IMM: u8 = 0x57;
const RSH64_IMM: u8 = 0x77;
const MEM: u8 = 0x60;
/// `src_reg` of a wide constant that is the descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;

/// `struct bpf_insn`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub(super) code: u8,
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i16,
    pub(super) imm: i32,
}

/// A register: 0 holds results; 1 to 5 hold arguments, and a call clobbers them; a call preserves 6 to 9; 10 is the end
/// of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub(super) u8);

pub const R0: Register = Register(0);
pub const R1: Register = Register(1);
pub const R2: Register = Register(2);
pub const R3: Register = Register(3);
pub const R4: Register = Register(4);
pub const R5: Register = Register(5);
pub const R6: Register = Register(6);
pub const R7: Register = Register(7);
pub const R8: Register = Register(8);
pub const R9: Register = Register(9);
pub const R10: Register = Register(10);

/// Bytes that a load or a store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveSize {
    Four,
    Eight,
}

impl MoveSize {
    fn code(self) -> u8 {
        match self {
            MoveSize::Four => 0x00,
            MoveSize::Eight => 0x18,
        }
    }
}

/// A comparison of a register with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpCondition {
    Equal,
    NotEqual,
    /// Compares signed numbers.
    Greater,
    /// Of unsigned numbers.
    Above,
    /// Some bits of both are the same.
    HasBits,
}

/// A function of the kernel that programs may call: `enum bpf_func_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    /// Before 5.5, of the kernel's and the program's memory alike.
    ProbeRead = 4,
    /// The tid in the lower half, the pid in the upper half.
    CurrentPidTgid = 14,
    PerfEventOutput = 25,
    /// For kernels before 5.5: reads kernel and user memory.
    ProbeReadStr = 45,
    ProbeReadUser = 112,
    ProbeReadKernel = 113,
    ProbeReadUserStr = 114,
}

impl Instruction {
    pub(super) fn parse(bytes: &[u8; INSTRUCTION_BYTES]) -> Instruction {
        let [code, registers, off0, off1, imm0, imm1, imm2, imm3] = *bytes;
        // struct bpf_insn has bit fields: the target register is in the low half of a little-endian machine.
        let [low, high] = [registers & 0xf, registers >> 4];
        let [dst, src] = if cfg!(target_endian = "little") { [low, high] } else { [high, low] };
        let (off, imm) = (i16::from_ne_bytes([off0, off1]), i32::from_ne_bytes([imm0, imm1, imm2, imm3]));
        Instruction { code, dst, src, off, imm }
    }

    pub fn bytes(self) -> [u8; INSTRUCTION_BYTES] {
        let [dst, src] = [self.dst, self.src];
        let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        let [off0, off1] = self.off.to_ne_bytes();
        let [imm0, imm1, imm2, imm3] = self.imm.to_ne_bytes();
        [self.code, registers, off0, off1, imm0, imm1, imm2, imm3]
    }

    fn new(code: u8, dst: Register, src: Register, off: i16, imm: i32) -> Instruction {
        Instruction { code, dst: dst.0, src: src.0, off, imm }
    }

    /// `to = from`
    pub fn copy(to: Register, from: Register) -> Instruction {
        Instruction::new(MOV64, to, from, 0, 0)
    }

    /// `to = number`
    pub fn set(to: Register, number: i32) -> Instruction {
        Instruction::new(MOV64_IMM, to, R0, 0, number)
    }

    /// `to = number`, of 32 bits, whose upper half is 0.
    pub fn set_half(to: Register, number: u32) -> Instruction {
        Instruction::new(MOV32_IMM, to, R0, 0, number.cast_signed())
    }

    /// `to += number`
    pub fn add(to: Register, number: i32) -> Instruction {
        Instruction::new(ADD64_IMM, to, R0, 0, number)
    }

    /// `to += other`
    pub fn add_register(to: Register, other: Register) -> Instruction {
        Instruction::new(ADD64, to, other, 0, 0)
    }

    /// `to &= number`
    pub fn and(to: Register, number: i32) -> Instruction {
        Instruction::new(AND64_IMM, to, R0, 0, number)
    }

    /// `to >>= bits`
    pub fn shift_right(to: Register, bits: i32) -> Instruction {
        Instruction::new(RSH64_IMM, to, R0, 0, bits)
    }

    /// `to = *(at + off)`
    pub fn load(size: MoveSize, to: Register, at: Register, off: i16) -> Instruction {
        Instruction::new(LDX | MEM | size.code(), to, at, off, 0)
    }

    /// `*(at + off) = from`
    pub fn store(size: MoveSize, at: Register, off: i16, from: Register) -> Instruction {
        Instruction::new(STX | MEM | size.code(), at, from, off, 0)
    }

    /// `*(at + off) = number`
    pub fn store_number(size: MoveSize, at: Register, off: i16, number: i32) -> Instruction {
        Instruction::new(ST | MEM | size.code(), at, R0, off, number)
    }

    /// `r0 = helper(r1, r2, r3, r4, r5)`
    pub fn call(helper: Helper) -> Instruction {
        Instruction::new(CALL, R0, R0, 0, helper as i32)
    }

    /// Returns `r0`.
    pub fn exit() -> Instruction {
        Instruction::new(EXIT, R0, R0, 0, 0)
    }

    /// `to = map`, by its descriptor. It takes two instructions.
    pub fn map(to: Register, fd: i32) -> [Instruction; 2] {
        let first = Instruction::new(LD_IMM64, to, Register(PSEUDO_MAP_FD), 0, fd);
        [first, Instruction::new(0, R0, R0, 0, 0)]
    }

    /// A jump, or a conditional jump if there is a comparison. The jump distance is set later.
    pub(super) fn jump(condition: Option<(Register, JumpCondition, i32)>) -> Instruction {
        let Some((register, comparison, number)) = condition else { return Instruction::new(JA, R0, R0, 0, 0) };
        let operation = match comparison {
            JumpCondition::Equal => 0x10,
            JumpCondition::Above => 0x20,
            JumpCondition::HasBits => 0x40,
            JumpCondition::NotEqual => 0x50,
            JumpCondition::Greater => 0x60,
        };
        Instruction::new(JMP | operation, register, R0, 0, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_kernel_has_them() {
        let [wide, rest] = Instruction::map(R1, 7);
        // As `bpftool prog dump xlated opcodes` prints such instructions.
        let cases = [
            (Instruction::copy(R6, R1), "bf 16 00 00 00 00 00 00"),
            (Instruction::set(R0, 1), "b7 00 00 00 01 00 00 00"),
            (Instruction::set_half(R3, u32::MAX), "b4 03 00 00 ff ff ff ff"),
            (Instruction::add(R2, -4), "07 02 00 00 fc ff ff ff"),
            (Instruction::add_register(R8, R1), "0f 18 00 00 00 00 00 00"),
            (Instruction::and(R5, 0x1fff), "57 05 00 00 ff 1f 00 00"),
            (Instruction::shift_right(R0, 32), "77 00 00 00 20 00 00 00"),
            (Instruction::load(MoveSize::Eight, R3, R6, 24), "79 63 18 00 00 00 00 00"),
            (Instruction::load(MoveSize::Four, R8, R0, 0), "61 08 00 00 00 00 00 00"),
            (Instruction::store(MoveSize::Eight, R7, 0, R3), "7b 37 00 00 00 00 00 00"),
            (Instruction::store(MoveSize::Four, R10, -8, R8), "63 8a f8 ff 00 00 00 00"),
            (Instruction::store_number(MoveSize::Four, R10, -4, 0), "62 0a fc ff 00 00 00 00"),
            (Instruction::call(Helper::ProbeReadUserStr), "85 00 00 00 72 00 00 00"),
            (Instruction::exit(), "95 00 00 00 00 00 00 00"),
            (wide, "18 11 00 00 07 00 00 00"),
            (rest, "00 00 00 00 00 00 00 00"),
            (Instruction::jump(None), "05 00 00 00 00 00 00 00"),
            (Instruction::jump(Some((R0, JumpCondition::Equal, 0))), "15 00 00 00 00 00 00 00"),
            (Instruction::jump(Some((R0, JumpCondition::NotEqual, 0))), "55 00 00 00 00 00 00 00"),
            (Instruction::jump(Some((R5, JumpCondition::Greater, -1))), "65 05 00 00 ff ff ff ff"),
            (Instruction::jump(Some((R2, JumpCondition::Above, 128))), "25 02 00 00 80 00 00 00"),
            (Instruction::jump(Some((R8, JumpCondition::HasBits, 4))), "45 08 00 00 04 00 00 00"),
        ];
        for (instruction, want) in cases {
            let bytes = instruction.bytes();
            let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            if cfg!(target_endian = "little") {
                assert_eq!(text.join(" "), want, "{instruction:?}");
            }
            assert_eq!(Instruction::parse(&bytes), instruction);
        }
    }
}
