//! What is known of one stack from all its samples.

use crate::stats::weights::{Weight, Weighted};
use crate::symbol::naming::named_frame::NamedFrame;

#[derive(Clone, Copy, Debug)]
pub struct FoldSum {
    /// None: several processes.
    pub pid: Option<i32>,
    pub weight: Weight,
    /// Index of the first guessed frame, counted from the innermost one. A frame that one sample proves is no guess in
    /// the others.
    pub guessed: Option<u16>,
}

impl FoldSum {
    pub fn new(row: &Weighted, frames: &[NamedFrame]) -> FoldSum {
        let guessed = frames.iter().position(|frame| frame.guessed).and_then(|at| u16::try_from(at).ok());
        FoldSum { pid: Some(row.pid), weight: row.weight, guessed }
    }

    pub fn add(&mut self, other: FoldSum) {
        self.weight = self.weight.and(other.weight);
        self.pid = self.pid.filter(|_| self.pid == other.pid);
        self.guessed = self.guessed.zip(other.guessed).map(|(one, other)| one.max(other));
    }
}
