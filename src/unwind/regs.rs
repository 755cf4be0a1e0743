//! The registers that a walk starts from, and the differences among architectures.

use serde::{Deserialize, Serialize};

/// The architecture of the walked code. Either can be walked on any host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arch {
    X86_64,
    Aarch64,
}

/// The registers of a thread at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserRegs {
    pub pc: u64,
    pub sp: u64,
    /// rbp, x29
    pub fp: u64,
    /// x30; unused on x86_64.
    pub lr: u64,
    /// General registers by DWARF number, as far as they are known.
    pub(super) general: [u64; GENERAL],
    pub(super) known: u16,
    /// Only `pc` and `sp` are known.
    pub(super) is_partial: bool,
}

/// rax to r15: hand-written code may address its frame by any of them. No code does so on aarch64.
const GENERAL: usize = 16;

impl Arch {
    /// The architecture of the host; x86_64 on hosts that are not supported.
    pub const NATIVE: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

    /// The address that a return with this word jumps to: on aarch64 the upper bits may be a pointer signature.
    pub(super) fn address(self, word: u64) -> u64 {
        const ADDRESS_BITS: u32 = 48; // larger addresses exist only for programs that ask mmap for them
        match self {
            Arch::X86_64 => word,
            Arch::Aarch64 => word & ((1 << ADDRESS_BITS) - 1),
        }
    }

    /// The stack pointer's number in DWARF.
    pub(super) fn sp(self) -> u16 {
        match self {
            Arch::X86_64 => 7,
            Arch::Aarch64 => 31,
        }
    }

    /// The frame pointer's number in DWARF.
    pub(super) fn fp(self) -> u16 {
        match self {
            Arch::X86_64 => 6,
            Arch::Aarch64 => 29,
        }
    }

    /// The DWARF number of the return address: a column without a register, or the link register.
    pub(super) fn return_address(self) -> u16 {
        match self {
            Arch::X86_64 => 16,
            Arch::Aarch64 => 30,
        }
    }

    /// Where the kernel has saved the registers of code that a signal interrupted, in bytes from the stack pointer of
    /// the signal trampoline: `struct rt_sigframe`, arch/*/include/uapi/asm/sigcontext.h.
    pub(super) fn signal_frame(self) -> SignalFrame {
        match self {
            Arch::X86_64 => SignalFrame { pc: 168, sp: 160, fp: 120, lr: None },
            Arch::Aarch64 => SignalFrame { pc: 568, sp: 560, fp: 544, lr: Some(552) },
        }
    }
}

/// See [`Arch::signal_frame`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SignalFrame {
    pub pc: u64,
    pub sp: u64,
    pub fp: u64,
    pub lr: Option<u64>,
}

impl SignalFrame {
    /// The offset of a general register of x86_64, by its DWARF number.
    pub fn general(number: u8) -> Option<u64> {
        // struct sigcontext_64: r8 to r15, di, si, bp, bx, dx, ax, cx, sp.
        const AT: [u64; GENERAL] = [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96];
        AT.get(usize::from(number)).copied()
    }
}

impl UserRegs {
    /// `lr` is 0 on x86_64.
    pub fn new(pc: u64, sp: u64, fp: u64, lr: u64) -> UserRegs {
        UserRegs { pc, sp, fp, lr, general: [0; GENERAL], known: 0, is_partial: false }
    }

    /// Registers of which only these two are known: the walk must find any other one on the stack first.
    pub fn partial(pc: u64, sp: u64) -> UserRegs {
        UserRegs { is_partial: true, ..UserRegs::new(pc, sp, 0, 0) }
    }

    pub(super) fn frame_pointer(&self) -> Option<u64> {
        (!self.is_partial).then_some(self.fp)
    }

    pub(super) fn link_register(&self) -> Option<u64> {
        (!self.is_partial).then_some(self.lr)
    }

    /// Adds a general register of x86_64, by its DWARF number: rax 0, rdx 1, rcx 2, rbx 3, rsi 4, rdi 5, rbp 6, rsp 7,
    /// r8 to r15. Some hand-written code keeps its frame address in one of them.
    #[must_use]
    pub fn with_general(mut self, number: u8, value: u64) -> UserRegs {
        if let Some(register) = self.general.get_mut(usize::from(number)) {
            *register = value;
            self.known |= 1 << number;
        }
        self
    }

    /// None: the register is not known.
    pub(super) fn general(&self, number: u8) -> Option<u64> {
        let value = self.general.get(usize::from(number))?;
        (self.known >> number & 1 == 1).then_some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_known_or_not() {
        let regs = UserRegs::new(1, 2, 3, 0).with_general(15, 7).with_general(0, 9).with_general(16, 5);
        let known: Vec<Option<u64>> = [0, 1, 15, 16, 255].map(|number| regs.general(number)).to_vec();
        assert_eq!(known, [Some(9), None, Some(7), None, None]);
    }

    #[test]
    fn signatures_are_no_part_of_an_address() {
        assert_eq!(Arch::Aarch64.address(0x003f_aaaa_bbbb_cccc), 0xaaaa_bbbb_cccc);
        assert_eq!(Arch::X86_64.address(0x00ff_aaaa_bbbb_cccc), 0x00ff_aaaa_bbbb_cccc);
    }
}
