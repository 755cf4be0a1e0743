//! Puts a program together: instructions in their order, and jumps forward to labels.

use crate::bpf::instruction::{Helper, Instruction, JumpCondition, R1, R2, R10, Register};

/// A program under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label was put.
    labels: Vec<Option<usize>>,
    /// Jumps, by their place, and their labels.
    jumps: Vec<(usize, Label)>,
}

/// The target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A program that cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    #[error("a jump to a label that is nowhere")]
    NoLabel,
    /// Old kernels refuse loops.
    #[error("a jump backwards")]
    Backwards,
    #[error("a jump that is too long")]
    TooFar,
}

impl Assembler {
    pub fn add(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    pub fn add_all(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.instructions.extend(instructions);
    }

    /// A label that is put somewhere later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label in front of the next instruction.
    pub fn put(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub fn jump(&mut self, label: Label) {
        self.jump_on(None, label);
    }

    pub fn jump_if(&mut self, register: Register, comparison: JumpCondition, number: i32, label: Label) {
        self.jump_on(Some((register, comparison, number)), label);
    }

    /// `r0 =` the value of the key that the stack holds at `key`, or 0. `map`: the descriptor.
    pub fn look_up(&mut self, map: i32, key: i16) {
        self.add_all(Instruction::map(R1, map));
        self.add(Instruction::copy(R2, R10));
        self.add(Instruction::add(R2, key.into()));
        self.add(Instruction::call(Helper::MapLookup));
    }

    fn jump_on(&mut self, condition: Option<(Register, JumpCondition, i32)>, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.add(Instruction::jump(condition));
    }

    /// The program, as `struct bpf_insn` has it.
    ///
    /// # Errors
    /// A jump without a target ahead of it.
    pub fn finish(mut self) -> Result<Vec<u8>, AssemblyError> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].ok_or(AssemblyError::NoLabel)?;
            let skipped = target.checked_sub(at + 1).ok_or(AssemblyError::Backwards)?;
            self.instructions[at].off = i16::try_from(skipped).map_err(|_| AssemblyError::TooFar)?;
        }
        Ok(self.instructions.into_iter().flat_map(Instruction::bytes).collect())
    }
}

/// An offset in a record as an instruction has it.
///
/// # Errors
/// It is too large.
pub fn offset_of(offset: u16) -> Result<i16, AssemblyError> {
    i16::try_from(offset).map_err(|_| AssemblyError::TooFar)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::instruction::R0;

    fn distances(program: &[u8]) -> Vec<i16> {
        program.as_chunks::<8>().0.iter().map(|bytes| Instruction::parse(bytes).off).collect()
    }

    #[test]
    fn jumps_go_to_their_labels() {
        let mut assembler = Assembler::default();
        let (near, far) = (assembler.label(), assembler.label());
        assembler.jump_if(R1, JumpCondition::Equal, 7, far);
        assembler.jump(near);
        assembler.add_all(Instruction::map(R1, 3));
        assembler.put(near);
        assembler.add(Instruction::set(R0, 1));
        assembler.put(far);
        assembler.add(Instruction::exit());
        assert_eq!(distances(&assembler.finish().unwrap()), [4, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn jumps_that_cannot_be_made_are_refused() {
        let mut nowhere = Assembler::default();
        let label = nowhere.label();
        nowhere.jump(label);
        assert_eq!(nowhere.finish(), Err(AssemblyError::NoLabel));
        let mut backwards = Assembler::default();
        let label = backwards.label();
        backwards.put(label);
        backwards.jump(label);
        assert_eq!(backwards.finish(), Err(AssemblyError::Backwards));
        let mut long = Assembler::default();
        let label = long.label();
        long.jump(label);
        long.add_all((0..40_000).map(|_| Instruction::exit()));
        long.put(label);
        assert_eq!(long.finish(), Err(AssemblyError::TooFar));
    }
}
