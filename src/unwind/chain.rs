//! The result of a walk: addresses, and what is known of each.

use crate::unwind::{Arch, UserRegs};

/// The user stack of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct UserStackSample<'a> {
    pub arch: Arch,
    pub regs: &'a UserRegs,
    /// The bytes from the stack pointer on.
    pub stack: &'a [u8],
    /// The user addresses of the kernel's own callchain, by frame pointers. It has return addresses that return probes
    /// have replaced on the stack.
    pub kernel_chain: &'a [[u8; 8]],
}

/// Addresses, innermost first. The first is the next instruction of the thread; most others are return addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwoundChain {
    addresses: Vec<u64>,
    interrupted: Vec<usize>,
    guessed_from: Option<usize>,
}

impl UnwoundChain {
    /// A chain of one address.
    pub fn innermost(address: u64) -> UnwoundChain {
        UnwoundChain { addresses: vec![address], ..UnwoundChain::default() }
    }

    #[cfg(test)]
    pub fn of(addresses: &[u64], interrupted: &[usize], guessed_from: Option<usize>) -> UnwoundChain {
        UnwoundChain { addresses: addresses.to_vec(), interrupted: interrupted.to_vec(), guessed_from }
    }

    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Indexes of addresses, apart from the first, that are no return addresses: that code was interrupted by a signal,
    /// and the address is its next instruction.
    pub fn interrupted(&self) -> &[usize] {
        &self.interrupted
    }

    /// Index of the first guessed address. All addresses after it depend on the guess.
    pub fn guessed_from(&self) -> Option<usize> {
        self.guessed_from
    }

    /// Whether the address is a return address. The call is found one byte before it.
    pub fn is_behind_call(&self, index: usize) -> bool {
        index > 0 && !self.interrupted.contains(&index)
    }

    /// Approximate heap memory, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.addresses[..]) + size_of_val(&self.interrupted[..])
    }

    pub fn clear(&mut self) {
        self.addresses.clear();
        self.interrupted.clear();
        self.guessed_from = None;
    }

    #[inline]
    pub(super) fn push(&mut self, address: u64) {
        self.addresses.push(address);
    }

    #[cold]
    pub(super) fn push_interrupted(&mut self, address: u64) {
        self.interrupted.push(self.addresses.len());
        self.addresses.push(address);
    }

    /// Forgets the addresses from this one on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.addresses.truncate(len);
        self.interrupted.retain(|index| *index < len);
        self.guessed_from.take_if(|index| *index >= len);
    }

    /// Marks the next address that is pushed as a guess.
    pub(super) fn guess_next(&mut self) {
        self.guessed_from.get_or_insert(self.addresses.len());
    }
}
