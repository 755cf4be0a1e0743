//! How many bytes a call in progress is to transfer: the sum of its parts, `struct iovec`, read from memory while its
//! thread waits in the call. For a call that has ended the result says that, and the memory may be reused.

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::outside::{self, AskedOf, Question, WorkerContext};
use crate::task::call::entered_call;
use crate::task::memory::ProcessMemory;

/// `UIO_MAXIOV`: the kernel accepts no more.
const MAX_PARTS: u64 = 1024;
/// Messages whose parts are summed.
const MAX_MESSAGES: u64 = 64;
const PART_BYTES: usize = 16;
/// `struct msghdr`, and `struct mmsghdr`, which additionally has the number of transferred bytes.
const MESSAGE_BYTES: usize = 56;
const MESSAGES_STRIDE: u64 = 64;

/// What a pointer argument of a call points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartsAt {
    /// An array of `count` parts.
    Parts { address: u64, count: u64 },
    /// An array of `count` messages, each with parts.
    Messages { address: u64, count: u64 },
}

/// The parts of the call that a thread is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallPartsOf {
    pub tid: i32,
    /// Number and arguments identify the call: if they differ, the thread is in another call by now.
    pub number: u64,
    pub args: [u64; 6],
    pub parts: PartsAt,
}

/// Sums of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSums {
    pub parts: u64,
    pub bytes: u64,
    /// There are more parts than were read.
    pub is_cut: bool,
}

impl Question for CallPartsOf {
    type Answer = Option<PartSums>;

    fn answer(&self, context: &mut WorkerContext) -> Option<PartSums> {
        let mut memory = ProcessMemory::open(&context.host, self.tid).ok()?;
        let sums = PartSums::of(self.parts, &mut memory)?;
        let is_same = |entered: &_| (self.number, self.args) == call_of(entered);
        entered_call(&context.host, self.tid).filter(is_same).map(|_| sums)
    }
}

fn call_of(entered: &crate::task::call::EnteredCall) -> (u64, [u64; 6]) {
    (entered.number, entered.args)
}

/// Asks a worker for the parts of a call. None: the call has ended, or its memory cannot be read.
pub fn part_sums(host: &Host, question: &CallPartsOf) -> Option<PartSums> {
    outside::ask(host, AskedOf::process(question.tid), question).ok()?.value
}

impl PartSums {
    fn of(parts: PartsAt, memory: &mut ProcessMemory) -> Option<PartSums> {
        let mut sums = PartSums::default();
        match parts {
            PartsAt::Parts { address, count } => sums.add(address, count, memory)?,
            PartsAt::Messages { address, count } => {
                for index in 0..count.min(MAX_MESSAGES) {
                    let message = memory.array::<MESSAGE_BYTES>(address.checked_add(index * MESSAGES_STRIDE)?)?;
                    let [_, _, parts, count, ..] = *message.as_chunks::<8>().0 else { return None };
                    sums.add(u64::from_ne_bytes(parts), u64::from_ne_bytes(count), memory)?;
                }
                sums.is_cut |= count > MAX_MESSAGES;
            }
        }
        Some(sums)
    }

    fn add(&mut self, address: u64, count: u64, memory: &mut ProcessMemory) -> Option<()> {
        let wanted = count.min(MAX_PARTS) as usize;
        let parts = memory.up_to(address, wanted * PART_BYTES);
        let (parts, _) = parts.as_chunks::<PART_BYTES>();
        if parts.len() < wanted {
            return None;
        }
        for part in parts {
            let len = part.last_chunk().map_or(0, |len| u64::from_ne_bytes(*len));
            self.bytes = self.bytes.saturating_add(len);
        }
        self.parts += wanted as u64;
        self.is_cut |= count > MAX_PARTS;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(parts: PartsAt) -> Option<PartSums> {
        PartSums::of(parts, &mut ProcessMemory::open(&Host::default(), nix::unistd::gettid().as_raw()).unwrap())
    }

    #[test]
    fn parts_add_up() {
        let parts: Vec<[u64; 2]> = vec![[0x1000, 100], [0x2000, 0], [0x3000, 4000]];
        let address = parts.as_ptr().addr() as u64;
        let sums = |parts, bytes, is_cut| Some(PartSums { parts, bytes, is_cut });
        assert_eq!(own(PartsAt::Parts { address, count: 3 }), sums(3, 4100, false));
        assert_eq!(own(PartsAt::Parts { address, count: 0 }), sums(0, 0, false));
        assert_eq!(own(PartsAt::Parts { address: 8, count: 1 }), None);
        let message = |count: u64| [[0, 0, address, count, 0, 0, 0, 0]];
        let messages = [message(3), message(1)].concat();
        let address = messages.as_ptr().addr() as u64;
        assert_eq!(own(PartsAt::Messages { address, count: 1 }), sums(3, 4100, false));
        assert_eq!(own(PartsAt::Messages { address, count: 2 }), sums(4, 4200, false));
        assert_eq!(own(PartsAt::Messages { address: u64::MAX, count: 1 }), None);
        let many: Vec<[u64; 2]> = vec![[0, u64::MAX]; 2000];
        let address = many.as_ptr().addr() as u64;
        assert_eq!(
            own(PartsAt::Parts { address, count: 2000 }),
            sums(1024, u64::MAX, true),
            "no more than the kernel takes"
        );
    }
}
