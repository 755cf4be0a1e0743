//! Assembles a BPF program from instructions and forward jumps to labels.

use crate::bpf::instruction::{Helper, Instruction, JumpCondition, R1, R2, R3, R4, R10, Register};

/// A program under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    /// By label: the index of the instruction behind it. None: not placed yet.
    labels: Vec<Option<usize>>,
    /// The index of each jump instruction, and the label that it jumps to.
    jumps: Vec<(usize, Label)>,
}

/// The target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Why a program cannot be assembled.
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

    /// A new label, to be placed later with `put`.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label in front of the next instruction.
    pub fn put(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub fn jump(&mut self, label: Label) {
        self.jump_on(None, label);
    }

    pub fn jump_if(&mut self, register: Register, comparison: JumpCondition, number: i32, label: Label) {
        self.jump_on(Some((register, comparison, number)), label);
    }

    /// `r0 =` the address of the map value whose key lies at stack offset `key`, or 0. `map`: the map's descriptor.
    pub fn look_up(&mut self, map: i32, key: i16) {
        self.put_key(map, key);
        self.add(Instruction::call(Helper::MapLookup));
    }

    /// Sets the map value whose key lies at stack offset `key` to the bytes at stack offset `value`. `r0` = 0, or an
    /// error.
    pub fn update(&mut self, map: i32, key: i16, value: i16) {
        self.put_key(map, key);
        self.add(Instruction::copy(R3, R10));
        self.add(Instruction::add(R3, value.into()));
        self.add(Instruction::set(R4, 0)); // BPF_ANY
        self.add(Instruction::call(Helper::MapUpdate));
    }

    /// Removes the map value whose key lies at stack offset `key`.
    pub fn remove(&mut self, map: i32, key: i16) {
        self.put_key(map, key);
        self.add(Instruction::call(Helper::MapDelete));
    }

    /// The first two arguments of helpers for maps.
    fn put_key(&mut self, map: i32, key: i16) {
        self.add_all(Instruction::map(R1, map));
        self.add(Instruction::copy(R2, R10));
        self.add(Instruction::add(R2, key.into()));
    }

    fn jump_on(&mut self, condition: Option<(Register, JumpCondition, i32)>, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.add(Instruction::jump(condition));
    }

    /// The program as an array of `struct bpf_insn`.
    ///
    /// # Errors
    /// The target of a jump does not lie ahead of the jump.
    pub fn finish(mut self) -> Result<Vec<u8>, AssemblyError> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].ok_or(AssemblyError::NoLabel)?;
            let skipped = target.checked_sub(at + 1).ok_or(AssemblyError::Backwards)?;
            self.instructions[at].off = i16::try_from(skipped).map_err(|_| AssemblyError::TooFar)?;
        }
        Ok(self.instructions.into_iter().flat_map(Instruction::bytes).collect())
    }
}

/// An offset in a record as the offset field of an instruction.
///
/// # Errors
/// The offset does not fit in the field.
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
