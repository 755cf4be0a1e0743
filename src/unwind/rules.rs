//! Rules: how the caller's registers are found from those of a function, at one address. A rule is the result of
//! executing the CFA instructions of an FDE. DWARF 5, 6.4.2.
//!
//! Only instructions that compilers and well-known assembly use are understood. Expressions are not evaluated: each
//! known form is recognised by its bytes ([`Form`]). Anything else is [`Rule::Missing`].

use gimli::{BaseAddresses, CallFrameInstruction, Register, UnwindExpression, UnwindSection};

use crate::unwind::Arch;
use crate::unwind::cfi::{Bytes, Fde};
use crate::unwind::forms::{Form, form};

/// What the tables say of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The tables say nothing, or nothing that is understood.
    Missing,
    /// There is no caller.
    End,
    /// A signal trampoline: the kernel has saved the registers of the interrupted code on the stack.
    Signal,
    Frame(FrameRule),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameRule {
    pub cfa: Cfa,
    pub fp: Saved,
    pub return_address: ReturnAddress,
}

/// The canonical frame address: the caller's stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// `base + offset`
    At(Base, i32),
    /// `*(base + offset) + addend`
    Behind(Base, i32, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Sp,
    Fp,
    /// A general register by its DWARF number.
    General(u8),
}

/// Where the caller's frame pointer or another of its registers is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// Still in the register.
    Kept,
    /// Overwritten and not saved.
    Lost,
    /// In memory, in words of 8 bytes from the canonical frame address.
    Cfa(i16),
    /// In memory, in words from the frame pointer.
    Fp(i16),
    /// In memory, in words from the stack pointer.
    Sp(i16),
}

/// Where the return address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReturnAddress {
    /// Still in the link register.
    Kept,
    /// In memory, in words from the canonical frame address, the frame pointer or the stack pointer.
    Cfa(i16),
    Fp(i16),
    Sp(i16),
    /// In memory, in words from the canonical frame address. The code at that address was interrupted, it is not behind
    /// a call.
    Interrupted(i16),
}

/// Limit of the instructions executed for one rule.
const MAX_INSTRUCTIONS: usize = 4096;
/// Limit of the states on the stack of DW_CFA_remember_state; compilers use one.
const MAX_REMEMBERED: usize = 8;

/// One row of the table that the instructions describe, with the registers that are needed here.
#[derive(Clone, Copy, Debug)]
struct Row {
    cfa: CfaRule,
    sp: RegisterRule,
    fp: RegisterRule,
    return_address: RegisterRule,
    followed: RegisterRule,
}

/// The registers of a [`Row`].
#[derive(Clone, Copy)]
struct Columns {
    arch: Arch,
    /// One further register, by its DWARF number.
    followed: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum CfaRule {
    Unset,
    Register(Register, i64),
    Expression(UnwindExpression<usize>),
}

#[derive(Clone, Copy, Debug)]
enum RegisterRule {
    /// No instruction has set it.
    Unset,
    Same,
    Undefined,
    /// Saved in memory, in bytes from the canonical frame address.
    Cfa(i64),
    /// The value is the canonical frame address plus this many bytes.
    ValueOfCfa(i64),
    Expression(UnwindExpression<usize>),
    NotUnderstood,
}

/// The rule for an address that the FDE covers.
pub(super) fn rule<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &Fde<'a>,
    address: u64,
    arch: Arch,
    budget: &mut usize,
) -> Option<Rule> {
    let row = row_within(section, bases, fde, address, Columns { arch, followed: None }, budget)?;
    let rule = row.and_then(|row| row.rule(section, fde.is_signal_trampoline(), address, arch));
    Some(rule.unwrap_or(Rule::Missing))
}

/// Where one further register of the caller is, at an address that the FDE covers.
pub(super) fn saved<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &Fde<'a>,
    address: u64,
    (arch, register): (Arch, u8),
    budget: &mut usize,
) -> Option<Saved> {
    let columns = Columns { arch, followed: Some(register.into()) };
    let row = row_within(section, bases, fde, address, columns, budget)?;
    Some(row.and_then(|row| row.followed.saved(section, arch)).unwrap_or(Saved::Lost))
}

/// The row for an address. None: the budget is used up.
fn row_within<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &Fde<'a>,
    address: u64,
    columns: Columns,
    budget: &mut usize,
) -> Option<Option<Row>> {
    let most = MAX_INSTRUCTIONS.min(*budget);
    let mut left = most;
    let row = row(section, bases, fde, address, columns, &mut left);
    *budget -= most - left;
    if row.is_none() && left == 0 && *budget == 0 { None } else { Some(row) }
}

/// Executes the instructions up to an address. None: the entry is malformed.
fn row<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &Fde<'a>,
    address: u64,
    columns: Columns,
    left: &mut usize,
) -> Option<Row> {
    let cie = fde.cie();
    if cie.return_address_register().0 != columns.arch.return_address() {
        return None;
    }
    let factors = (cie.code_alignment_factor(), cie.data_alignment_factor());
    let mut row = Row::UNSET;
    let mut instructions = cie.instructions(section, bases);
    while let Some(instruction) = instructions.next().ok()? {
        *left = left.checked_sub(1)?;
        row.apply(&instruction, factors.1, &Row::UNSET, columns)?;
    }
    let initial = row;
    let mut remembered = [Row::UNSET; MAX_REMEMBERED];
    let mut depth = 0;
    let mut at = fde.initial_address();
    let mut instructions = fde.instructions(section, bases);
    while let Some(instruction) = instructions.next().ok()? {
        *left = left.checked_sub(1)?;
        match instruction {
            CallFrameInstruction::AdvanceLoc { delta } => at = at.checked_add(factors.0.checked_mul(delta.into())?)?,
            CallFrameInstruction::SetLoc { address } if address >= at => at = address,
            CallFrameInstruction::SetLoc { .. } => return None,
            CallFrameInstruction::RememberState => {
                *remembered.get_mut(depth)? = row;
                depth += 1;
            }
            CallFrameInstruction::RestoreState => {
                depth = depth.checked_sub(1)?;
                row = remembered[depth];
            }
            _ => row.apply(&instruction, factors.1, &initial, columns)?,
        }
        if at > address {
            break;
        }
    }
    Some(row)
}

impl Row {
    const UNSET: Row = Row {
        cfa: CfaRule::Unset,
        sp: RegisterRule::Unset,
        fp: RegisterRule::Unset,
        return_address: RegisterRule::Unset,
        followed: RegisterRule::Unset,
    };

    /// Executes one instruction. None: it is not allowed at this place.
    fn apply(
        &mut self,
        instruction: &CallFrameInstruction<usize>,
        factor: i64,
        initial: &Row,
        columns: Columns,
    ) -> Option<()> {
        use CallFrameInstruction as I;
        let signed = |offset: u64| i64::try_from(offset).ok();
        let factored = |offset: u64| signed(offset)?.checked_mul(factor);
        match *instruction {
            I::DefCfa { register, offset } => self.cfa = CfaRule::Register(register, signed(offset)?),
            I::DefCfaSf { register, factored_offset } => {
                self.cfa = CfaRule::Register(register, factored_offset.checked_mul(factor)?);
            }
            I::DefCfaRegister { register } => match &mut self.cfa {
                CfaRule::Register(old, _) => *old = register,
                CfaRule::Unset | CfaRule::Expression(_) => return None,
            },
            I::DefCfaOffset { offset } => self.set_cfa_offset(signed(offset)?)?,
            I::DefCfaOffsetSf { factored_offset } => self.set_cfa_offset(factored_offset.checked_mul(factor)?)?,
            I::DefCfaExpression { expression } => self.cfa = CfaRule::Expression(expression),
            I::Undefined { register } => self.set(register, RegisterRule::Undefined, columns),
            I::SameValue { register } => self.set(register, RegisterRule::Same, columns),
            I::Offset { register, factored_offset } => {
                self.set(register, RegisterRule::Cfa(factored(factored_offset)?), columns);
            }
            I::OffsetExtendedSf { register, factored_offset } => {
                self.set(register, RegisterRule::Cfa(factored_offset.checked_mul(factor)?), columns);
            }
            I::ValOffset { register, factored_offset } => {
                self.set(register, RegisterRule::ValueOfCfa(factored(factored_offset)?), columns);
            }
            I::ValOffsetSf { register, factored_offset } => {
                self.set(register, RegisterRule::ValueOfCfa(factored_offset.checked_mul(factor)?), columns);
            }
            I::Expression { register, expression } => self.set(register, RegisterRule::Expression(expression), columns),
            I::Register { dest_register: register, .. } | I::ValExpression { register, .. } => {
                self.set(register, RegisterRule::NotUnderstood, columns);
            }
            I::Restore { register } => {
                let mut initial = *initial;
                if let (Some(column), Some(first)) = (self.column(register, columns), initial.column(register, columns))
                {
                    *column = *first;
                }
            }
            // The signature of a return address is always cut off.
            I::NegateRaState | I::ArgsSize { .. } | I::Nop => {}
            // These instructions are allowed only in FDEs, where the caller handles them.
            I::AdvanceLoc { .. } | I::SetLoc { .. } | I::RememberState | I::RestoreState => return None,
        }
        Some(())
    }

    fn set_cfa_offset(&mut self, offset: i64) -> Option<()> {
        match &mut self.cfa {
            CfaRule::Register(_, old) => *old = offset,
            CfaRule::Unset | CfaRule::Expression(_) => return None,
        }
        Some(())
    }

    fn set(&mut self, register: Register, to: RegisterRule, columns: Columns) {
        if let Some(column) = self.column(register, columns) {
            *column = to;
        }
    }

    /// None: the register is not needed.
    fn column(&mut self, register: Register, Columns { arch, followed }: Columns) -> Option<&mut RegisterRule> {
        match register.0 {
            number if number == arch.sp() => Some(&mut self.sp),
            number if number == arch.fp() => Some(&mut self.fp),
            number if number == arch.return_address() => Some(&mut self.return_address),
            number if Some(number) == followed => Some(&mut self.followed),
            _ => None,
        }
    }

    /// The rule of the row. None: it is not understood.
    fn rule<'a>(
        &self,
        section: &impl UnwindSection<Bytes<'a>>,
        is_of_signal: bool,
        address: u64,
        arch: Arch,
    ) -> Option<Rule> {
        if matches!(self.return_address, RegisterRule::Undefined) {
            return Some(Rule::End);
        }
        let cfa = match self.cfa {
            CfaRule::Unset => return None,
            CfaRule::Register(register, offset) => Cfa::At(Base::of(register.0, arch)?, i32::try_from(offset).ok()?),
            CfaRule::Expression(expression) => Cfa::of(form_of(section, expression)?, address, arch)?,
        };
        if is_of_signal
            && matches!(cfa, Cfa::Behind(Base::Sp, at, 0) if u64::try_from(at) == Ok(arch.signal_frame().sp))
        {
            return Some(Rule::Signal);
        }
        if !matches!(self.sp, RegisterRule::Unset | RegisterRule::ValueOfCfa(0)) {
            return None; // the caller's stack pointer is not the canonical frame address
        }
        let return_address = match self.return_address.saved(section, arch)? {
            Saved::Cfa(words) if is_of_signal => ReturnAddress::Interrupted(words),
            _ if is_of_signal => return None,
            Saved::Kept if arch == Arch::Aarch64 => ReturnAddress::Kept,
            Saved::Kept | Saved::Lost => return None, // no register holds the return address
            Saved::Cfa(words) => ReturnAddress::Cfa(words),
            Saved::Fp(words) => ReturnAddress::Fp(words),
            Saved::Sp(words) => ReturnAddress::Sp(words),
        };
        // The walk can go on without it until a frame is addressed by it.
        let fp = self.fp.saved(section, arch).unwrap_or(Saved::Lost);
        Some(Rule::Frame(FrameRule { cfa, fp, return_address }))
    }
}

impl RegisterRule {
    /// Where the register is. None: it is not understood.
    fn saved<'a>(self, section: &impl UnwindSection<Bytes<'a>>, arch: Arch) -> Option<Saved> {
        match self {
            RegisterRule::Unset | RegisterRule::Same => Some(Saved::Kept),
            RegisterRule::Undefined => Some(Saved::Lost),
            RegisterRule::Cfa(offset) => Some(Saved::Cfa(words(offset)?)),
            RegisterRule::Expression(expression) => match form_of(section, expression)? {
                Form::Register(register, offset) if register == arch.fp() => Some(Saved::Fp(words(offset)?)),
                Form::Register(register, offset) if register == arch.sp() => Some(Saved::Sp(words(offset)?)),
                _ => None,
            },
            RegisterRule::ValueOfCfa(_) | RegisterRule::NotUnderstood => None,
        }
    }
}

fn form_of<'a>(section: &impl UnwindSection<Bytes<'a>>, expression: UnwindExpression<usize>) -> Option<Form> {
    form(expression.get(section).ok()?.0.slice())
}

impl Base {
    fn of(register: u16, arch: Arch) -> Option<Base> {
        match register {
            number if number == arch.sp() => Some(Base::Sp),
            number if number == arch.fp() => Some(Base::Fp),
            number if arch == Arch::X86_64 && number < 16 => Some(Base::General(u8::try_from(number).ok()?)),
            _ => None,
        }
    }
}

impl Cfa {
    fn of(form: Form, address: u64, arch: Arch) -> Option<Cfa> {
        let offset = |offset: i64| i32::try_from(offset).ok();
        match form {
            Form::Register(register, by) => Some(Cfa::At(Base::of(register, arch)?, offset(by)?)),
            Form::Behind(register, by, plus) => {
                Some(Cfa::Behind(Base::of(register, arch)?, offset(by)?, u8::try_from(plus).ok()?))
            }
            // Each entry of the procedure linkage table pushes a number, and jumps.
            Form::Plt { register, offset: by, pc, pushed } if arch == Arch::X86_64 && pc == arch.return_address() => {
                let has_pushed = address & 15 >= pushed;
                Some(Cfa::At(Base::of(register, arch)?, offset(by.checked_add(if has_pushed { 8 } else { 0 })?)?))
            }
            Form::Plt { .. } => None,
        }
    }
}

/// The number of words. None: not a whole number, or too large for any window.
fn words(bytes: i64) -> Option<i16> {
    (bytes % 8 == 0).then(|| i16::try_from(bytes / 8).ok()).flatten()
}
