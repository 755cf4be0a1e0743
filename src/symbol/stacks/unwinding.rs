//! The output thread's part of unwinding: it walks the windows for which the reading side had no tables, and sends the
//! tables that it loaded for them to the reading side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::perf::record::UserPart;
use crate::symbol::AddressSpaces;
use crate::symbol::budget::Budget;
use crate::symbol::stacks::chain_words::user_part_start;
use crate::symbol::stacks::new_stack::{NewStack, StackBody};
use crate::symbol::stacks::waiters::WaiterStack;
use crate::symbol::stacks::windows::{StackWindow, unwound_words, user_part};
use crate::task::user_snapshot::WINDOW_BYTES;
use crate::unwind::{
    Arch, Broken, MappedCode, SpaceCode, Unwinder, UnwinderCounts, UnwoundChain, UserStackSample, Walked,
};

/// Walks windows, and loads the tables for it.
#[derive(Debug)]
pub struct Unwinding {
    unwinder: Unwinder,
    loading: LoadingTime,
    budget: Budget,
    publish: Sender<(u32, Arc<SpaceCode>)>,
}

/// Bounds the time for reading tables: a user who executes one new file after the other decides how many there are.
/// Code that was left without tables gets them when there is time again.
#[derive(Debug)]
struct LoadingTime {
    began: Instant,
    spent: Duration,
}

impl Default for LoadingTime {
    fn default() -> LoadingTime {
        LoadingTime { began: Instant::now(), spent: Duration::ZERO }
    }
}

impl LoadingTime {
    /// Time that a run may spend at once. Beyond it, the run may spend 1/SHARE of its duration.
    const AT_ONCE: Duration = Duration::from_secs(2);
    const SHARE: u32 = 8;

    fn spend(&mut self, load: impl FnOnce()) {
        let start = Instant::now();
        if self.spent <= LoadingTime::AT_ONCE + start.duration_since(self.began) / LoadingTime::SHARE {
            load();
            self.spent += start.elapsed();
        }
    }
}

impl Unwinding {
    pub fn new(budget: Budget, publish: Sender<(u32, Arc<SpaceCode>)>) -> Unwinding {
        Unwinding { unwinder: Unwinder::default(), loading: LoadingTime::default(), budget, publish }
    }

    pub fn counts(&self) -> UnwinderCounts {
        self.unwinder.counts()
    }

    /// A stack whose user part is found: one that came as a window is walked.
    pub fn finish(&mut self, stack: NewStack, spaces: &mut AddressSpaces) -> NewStack {
        let NewStack { id, pid, body } = stack;
        let body = match body {
            StackBody::Window(window) => self.walk(&window, pid, spaces),
            StackBody::Waiter(mut waiter) => {
                self.walk_waiter(&mut waiter, spaces);
                StackBody::Waiter(waiter)
            }
            body => body,
        };
        NewStack { id, pid, body }
    }

    fn walk(&mut self, window: &StackWindow, pid: i32, spaces: &mut AddressSpaces) -> StackBody {
        let words: Vec<[u8; 8]> = window.words.iter().map(|word| word.to_ne_bytes()).collect();
        let (kernel, by_frame_pointers) = words.split_at(user_part_start(window.words.iter().copied(), words.len()));
        let sample = UserStackSample {
            arch: Arch::NATIVE,
            regs: &window.regs,
            stack: &window.stack,
            kernel_chain: by_frame_pointers.get(1..).unwrap_or_default(),
        };
        let mut chain = UnwoundChain::default();
        let (code, walked) = self.walk_in(pid, &sample, spaces, &mut chain);
        // If the channel is full, the reading side sends further windows of this code.
        let _ = self.publish.try_send((window.space, code));
        let user = user_part(walked, window.stack.len(), window.asked).unwrap_or(UserPart::Broken);
        let mut all = Vec::new();
        let cut = unwound_words(kernel, &chain, window.form, &mut all);
        let words = all.into_iter().map(u64::from_ne_bytes).collect();
        StackBody::Chain { words, cut, innermost: window.form.innermost, user }
    }

    fn walk_waiter(&mut self, waiter: &mut WaiterStack, spaces: &mut AddressSpaces) {
        let regs = waiter.registers();
        let stack = &waiter.user.stack;
        let sample = UserStackSample { arch: Arch::NATIVE, regs: &regs, stack, kernel_chain: &[] };
        let mut chain = UnwoundChain::default();
        let (_, walked) = self.walk_in(waiter.user.pid, &sample, spaces, &mut chain);
        // A shorter copy ends with its mapping, and so does the stack.
        let part = user_part(walked, waiter.user.stack.len(), WINDOW_BYTES);
        waiter.part = part.unwrap_or(UserPart::Broken);
        if !chain.addresses().is_empty() {
            waiter.chain = chain;
        }
    }

    /// Walks a stack by the mappings of a process, and returns these, too.
    fn walk_in(
        &mut self,
        pid: i32,
        sample: &UserStackSample<'_>,
        spaces: &mut AddressSpaces,
        chain: &mut UnwoundChain,
    ) -> (Arc<SpaceCode>, Walked) {
        let mut is_reread = false;
        spaces.find_copies(pid);
        loop {
            let code = spaces.space_code(pid);
            let mut load = |code: &Arc<MappedCode>| self.loading.spend(|| spaces.load_tables(code, &self.budget));
            let walked = self.unwinder.walk(sample, &code, &mut load, chain);
            // Mappings without a record, such as those of a process that started before the run.
            if is_reread || walked != Walked::Broken(Broken::NotCode) || !spaces.reread_maps(pid) {
                return (code, walked);
            }
            is_reread = true;
        }
    }
}
