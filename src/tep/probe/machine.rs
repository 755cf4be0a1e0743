//! Where a function finds its arguments, by the calling convention of its machine.

use serde::{Deserialize, Serialize};

/// The architecture that code is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Machine {
    X86_64,
    X86,
    Aarch64,
    Arm,
    Other,
}

/// Registers of x86_64, by the kernel's names: regoffset_table, arch/x86/kernel/ptrace.c.
const X86: [&str; 19] = [
    "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "bp", "bx", "ax", "cx", "dx", "si", "di", "ip", "sp", "cs",
    "flags",
];
const SYSTEM_V: [&str; 6] = ["di", "si", "dx", "cx", "r8", "r9"];
/// AAPCS64: x0 to x7; AAPCS32: r0 to r3, which a 64-bit kernel calls x0 to x3.
const AARCH64_ARGUMENTS: u32 = 8;
const ARM_ARGUMENTS: u32 = 4;

impl Machine {
    /// The machine of the running kernel.
    pub fn of_kernel() -> Machine {
        if cfg!(target_arch = "x86_64") {
            Machine::X86_64
        } else if cfg!(target_arch = "aarch64") {
            Machine::Aarch64
        } else {
            Machine::Other
        }
    }

    /// By `e_machine`, elf(5).
    pub fn of_elf(number: u16) -> Machine {
        match number {
            3 => Machine::X86,
            40 => Machine::Arm,
            62 => Machine::X86_64,
            183 => Machine::Aarch64,
            _ => Machine::Other,
        }
    }

    /// True when a kernel of this machine runs programs of the `other`.
    pub fn runs(self, other: Machine) -> bool {
        use Machine::*;
        self == other || matches!((self, other), (X86_64, X86) | (Aarch64, Arm) | (Other, _))
    }

    /// Where argument `number`, counted from 1, is when a function starts, as the kernel writes it.
    pub fn argument(self, number: u32) -> Option<String> {
        let before = number.checked_sub(1)?;
        // The first word on the stack of x86 is the return address.
        Some(match self {
            Machine::X86_64 => match SYSTEM_V.get(before as usize) {
                Some(register) => format!("%{register}"),
                None => format!("$stack{}", before - 5),
            },
            Machine::X86 => format!("+{}($stack)", u64::from(number) * 4),
            Machine::Aarch64 if before < AARCH64_ARGUMENTS => format!("%x{before}"),
            Machine::Aarch64 => format!("$stack{}", before - AARCH64_ARGUMENTS),
            Machine::Arm if before < ARM_ARGUMENTS => format!("%x{before}"),
            Machine::Arm => format!("+{}($stack)", u64::from(before - ARM_ARGUMENTS) * 4),
            Machine::Other => return None,
        })
    }

    /// The type of a word of the machine, where that is shorter than the kernel's.
    pub fn word(self) -> Option<&'static str> {
        matches!(self, Machine::X86 | Machine::Arm).then_some("x32")
    }

    /// The kernel's name of a register; it calls `rdi` `di`. None when there is no such register.
    pub fn register(self, name: &str) -> Option<&str> {
        match self {
            Machine::X86_64 | Machine::X86 => {
                let short = name.strip_prefix(['r', 'e']).unwrap_or(name);
                [name, short].into_iter().find(|name| X86.contains(name) || *name == "ss")
            }
            Machine::Aarch64 | Machine::Arm => {
                let number = name.strip_prefix('x').and_then(|number| number.parse::<u32>().ok());
                let known = number.is_some_and(|number| number <= 30 && name == format!("x{number}"));
                (known || matches!(name, "sp" | "pc" | "pstate")).then_some(name)
            }
            Machine::Other => Some(name),
        }
    }

    /// The names of all registers, for a message.
    pub fn registers(self) -> String {
        match self {
            Machine::X86_64 | Machine::X86 => X86.join(" "),
            _ => "x0 to x30, sp, pc, pstate".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_by_convention() {
        use Machine::*;
        let cases = [
            (X86_64, 1, Some("%di")),
            (X86_64, 4, Some("%cx")),
            (X86_64, 6, Some("%r9")),
            (X86_64, 7, Some("$stack1")),
            (X86, 1, Some("+4($stack)")),
            (Aarch64, 1, Some("%x0")),
            (Aarch64, 8, Some("%x7")),
            (Aarch64, 9, Some("$stack0")),
            (Arm, 4, Some("%x3")),
            (Arm, 5, Some("+0($stack)")),
            (Other, 1, None),
            (X86_64, 0, None),
            (X86, u32::MAX, Some("+17179869180($stack)")),
        ];
        for (machine, number, want) in cases {
            assert_eq!(machine.argument(number).as_deref(), want, "{machine:?} {number}");
        }
    }

    #[test]
    fn registers_by_the_kernels_names() {
        use Machine::*;
        let cases = [
            (X86_64, "di", Some("di")),
            (X86_64, "rdi", Some("di")),
            (X86_64, "eax", Some("ax")),
            (X86_64, "r8", Some("r8")),
            (X86_64, "x0", None),
            (X86_64, "r16", None),
            (Aarch64, "x30", Some("x30")),
            (Aarch64, "x31", None),
            (Aarch64, "x01", None),
            (Aarch64, "di", None),
            (Other, "a0", Some("a0")),
        ];
        for (machine, name, want) in cases {
            assert_eq!(machine.register(name), want, "{machine:?} {name}");
        }
    }

    #[test]
    fn foreign_programs_do_not_run() {
        assert!(Machine::X86_64.runs(Machine::X86) && Machine::Aarch64.runs(Machine::Arm));
        assert!(!Machine::X86_64.runs(Machine::Aarch64) && !Machine::Aarch64.runs(Machine::X86));
        assert!(Machine::Other.runs(Machine::of_elf(243)));
    }
}
