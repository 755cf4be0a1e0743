//! Unwinds user stacks in the reading thread.
//!
//! A sample has a window of its task's stack itself, or a companion event has written one just before the sample. The
//! window is unwound in place in the ring, with the tables that the output thread has published. If tables are missing,
//! the window is copied and sent to the output thread, which unwinds it later.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use rustc_hash::FxHashMap;

use crate::perf::record::{Callchain, ChainForm, UserPart};
use crate::perf::user_window::UserWindow;
use crate::perf::{EventId, Sample};
use crate::symbol::stacks::chain_words::user_part_start;
use crate::symbol::stacks::windows::{CopiedStack, WindowPool, unwound_words, user_part};
use crate::symbol::{SpaceKeys, StackId, Stacks};
use crate::unwind::{Arch, LoadNothing, SpaceCode, Unwinder, UnwinderCounts, UnwoundChain, UserRegs, UserStackSample};

/// Unwinds user stacks from windows.
#[derive(Debug)]
pub struct UserStacks {
    is_on: bool,
    unwinder: Unwinder,
    /// The code of address spaces, by the number of the address space.
    spaces: FxHashMap<u32, Arc<SpaceCode>>,
    /// Number of code ranges in `spaces`.
    ranges: usize,
    pool: WindowPool,
    /// The last window of a companion, by CPU.
    companions: Vec<Companion>,
    counts: UserStackCounts,
    /// The chain under construction.
    words: Vec<[u8; 8]>,
    unwound: UnwoundChain,
}

/// Numbers of windows, and of user stacks without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserStackCounts {
    /// Windows that arrived.
    pub windows: u64,
    /// Windows that were unwound in the ring.
    pub walked: u64,
    /// Windows that were copied for the output thread.
    pub handed_on: u64,
    /// Stacks taken from the kernel's callchain because there was no room for a copy of the window.
    pub no_room: u64,
    /// Stacks taken from the kernel's callchain because no window came with the sample, or because the task has no
    /// 64-bit registers.
    pub no_window: u64,
}

/// A window that a companion has written.
#[derive(Debug, Default)]
struct Companion {
    /// The event whose next sample on this CPU the window belongs to.
    of: EventId,
    turn: Turn,
    tid: i32,
    time: u64,
    /// None: the task had no user stack.
    user: Option<CompanionUser>,
    unwound: UnwoundChain,
    stack: Vec<u8>,
    /// Bytes of the companion's records since [`UserStacks::take_fullest`].
    bytes: u64,
}

/// Whether the sample of a window has come: a window belongs to the next sample of its event on its CPU, and to no
/// later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    Over,
    Next,
    Now,
}

#[derive(Clone, Copy, Debug)]
enum CompanionUser {
    /// The stack was unwound.
    Chain(UserPart),
    /// A copied window, whose stack is in the bytes.
    Window { regs: UserRegs, asked: usize },
}

/// The callchain of a sample, and the table in which it is interned.
struct NewChain<'a> {
    /// As the kernel wrote it.
    whole: Callchain<'a>,
    /// The kernel part of the callchain.
    kernel: &'a [[u8; 8]],
    form: ChainForm,
    pid: i32,
    stacks: &'a mut Stacks,
    spaces: &'a mut SpaceKeys,
}

/// How the user part of one callchain was found.
enum Found {
    Chain(UserPart),
    /// The output thread must unwind it.
    Later,
}

/// Limit of the address spaces whose code is kept.
const MAX_SPACES: usize = 4096;
/// Limit of their code ranges, 40 bytes each: a process may have 16,384 of them, and gets a new address space number
/// with each mapping.
const MAX_RANGES: usize = 1 << 18;
/// Limit of the windows in flight to the output thread, in bytes.
const POOL_BYTES: usize = 16 << 20;
/// Limit of the time between a window and its sample. They are written one after the other, within 50 µs except for one
/// in some 2,000, due to interrupts and a preempted virtual CPU. The limit only matters if both a sample and the window
/// of the next one are lost.
const TOGETHER_NS: u64 = 5_000_000;

impl Default for UserStacks {
    fn default() -> UserStacks {
        UserStacks {
            is_on: false,
            unwinder: Unwinder::default(),
            spaces: FxHashMap::default(),
            ranges: 0,
            pool: WindowPool::new(POOL_BYTES),
            companions: Vec::new(),
            counts: UserStackCounts::default(),
            words: Vec::new(),
            unwound: UnwoundChain::default(),
        }
    }
}

impl UserStacks {
    /// Sets whether events carry windows from now on.
    pub fn turn(&mut self, on: bool) {
        self.is_on = on;
    }

    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn counts(&self) -> UserStackCounts {
        self.counts
    }

    pub fn unwinder_counts(&self) -> UnwinderCounts {
        self.unwinder.counts()
    }

    /// Interns the callchain of a sample, whose user part is unwound if there is a window for it.
    #[inline(never)]
    pub fn intern(
        &mut self,
        sample: &Sample<'_>,
        stacks: &mut Stacks,
        spaces: &mut SpaceKeys,
        published: &Receiver<(u32, Arc<SpaceCode>)>,
    ) -> Option<StackId> {
        let (chain, form, pid) = (sample.callchain, sample.chain_form(), sample.pid);
        let words = chain.words();
        let user_at = user_part_start(chain.iter(), words.len());
        if user_at == words.len() {
            return stacks.intern(chain, form, pid, spaces); // a kernel thread, or a guest
        }
        let (kernel, by_frame_pointers) = words.split_at(user_at);
        let by_frame_pointers = by_frame_pointers.get(1..).unwrap_or_default();
        let mut new = NewChain { whole: chain, kernel, form, pid, stacks, spaces };
        if let Some(window) = sample.user_window() {
            self.counts.windows += 1;
            let space = new.spaces.key(pid);
            let mut unwound = std::mem::take(&mut self.unwound);
            let id = match self.walk(&window, by_frame_pointers, space, published, &mut unwound) {
                Found::Chain(user) => self.intern_unwound(&unwound, user, &mut new),
                Found::Later => {
                    let copy = CopiedStack { regs: registers(&window), stack: window.stack, asked: window.asked };
                    self.defer(copy, &mut new)
                }
            };
            self.unwound = unwound;
            return id;
        }
        let at = sample.cpu as usize;
        let is_beside = |companion: &&Companion| {
            companion.turn == Turn::Now
                && companion.tid == sample.tid
                && sample.time.wrapping_sub(companion.time) <= TOGETHER_NS
        };
        let user = self.companions.get(at).filter(is_beside).and_then(|companion| companion.user);
        match user {
            Some(CompanionUser::Chain(user)) => {
                let unwound = std::mem::take(&mut self.companions[at].unwound);
                let id = self.intern_unwound(&unwound, user, &mut new);
                self.companions[at].unwound = unwound;
                id
            }
            Some(CompanionUser::Window { regs, asked }) => {
                let stack = std::mem::take(&mut self.companions[at].stack);
                let id = self.defer(CopiedStack { regs, stack: &stack, asked }, &mut new);
                self.companions[at].stack = stack;
                id
            }
            None => {
                self.counts.no_window += u64::from(sample.expects_window());
                new.stacks.intern(chain, form, pid, new.spaces)
            }
        }
    }

    /// Some windows come from companions: [`UserStacks::comes`] must be called for each sample.
    pub fn has_companions(&self) -> bool {
        !self.companions.is_empty()
    }

    /// Notes that a sample arrives. The window before it belongs to this sample or to none: it must not be used for a
    /// later sample, whose own window may be lost.
    pub fn comes(&mut self, event: EventId, cpu: u32) {
        if let Some(companion) = self.companions.get_mut(cpu as usize)
            && companion.of == event
        {
            companion.turn = if companion.turn == Turn::Next { Turn::Now } else { Turn::Over };
        }
    }

    /// Notes that records of a CPU were lost: the last window may belong to one of them.
    pub fn forget(&mut self, cpu: u32) {
        self.companions.get_mut(cpu as usize).into_iter().for_each(|companion| companion.turn = Turn::Over);
    }

    /// Takes the window that the companion of event `of` has written: the event's sample comes next.
    pub fn companion(
        &mut self,
        of: EventId,
        sample: &Sample<'_>,
        spaces: &mut SpaceKeys,
        published: &Receiver<(u32, Arc<SpaceCode>)>,
    ) {
        const MAX_CPUS: usize = 1 << 16;
        let at = sample.cpu as usize;
        if at >= self.companions.len() {
            if at >= MAX_CPUS {
                return;
            }
            self.companions.resize_with(at + 1, Companion::default);
        }
        let mut companion = std::mem::take(&mut self.companions[at]);
        (companion.of, companion.turn) = (of, Turn::Next);
        (companion.tid, companion.time, companion.user) = (sample.tid, sample.time, None);
        companion.bytes += sample.record().len() as u64;
        if let Some(window) = sample.user_window() {
            self.counts.windows += 1;
            let words = sample.callchain.words();
            let user_at = user_part_start(sample.callchain.iter(), words.len());
            let by_frame_pointers = words.get(user_at + 1..).unwrap_or_default();
            let space = spaces.key(sample.pid);
            companion.user =
                Some(match self.walk(&window, by_frame_pointers, space, published, &mut companion.unwound) {
                    Found::Chain(user) => CompanionUser::Chain(user),
                    Found::Later => {
                        companion.stack.clear();
                        companion.stack.extend_from_slice(window.stack);
                        CompanionUser::Window { regs: registers(&window), asked: window.asked }
                    }
                });
        }
        self.companions[at] = companion;
    }

    /// The CPU with the most bytes of companions' windows since the last call, and these bytes.
    pub fn take_fullest(&mut self) -> Option<(usize, u64)> {
        let taken = self.companions.iter_mut().map(|companion| std::mem::take(&mut companion.bytes));
        taken.enumerate().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
    }

    fn walk(
        &mut self,
        window: &UserWindow<'_>,
        by_frame_pointers: &[[u8; 8]],
        space: u32,
        published: &Receiver<(u32, Arc<SpaceCode>)>,
        unwound: &mut UnwoundChain,
    ) -> Found {
        if !self.spaces.contains_key(&space) {
            for (space, code) in published.try_iter() {
                if self.spaces.len() >= MAX_SPACES || self.ranges >= MAX_RANGES {
                    self.spaces.clear(); // spaces that are still needed are published again
                    self.ranges = 0;
                }
                self.ranges += code.ranges().len();
                self.spaces.insert(space, code);
            }
        }
        let Some(code) = self.spaces.get(&space) else { return Found::Later };
        let sample = UserStackSample {
            arch: Arch::NATIVE,
            regs: &registers(window),
            stack: window.stack,
            kernel_chain: by_frame_pointers,
        };
        let walked = self.unwinder.walk(&sample, code, &mut LoadNothing, unwound);
        let Some(user) = user_part(walked, window.stack.len(), window.asked) else { return Found::Later };
        self.counts.walked += 1;
        Found::Chain(user)
    }

    fn intern_unwound(&mut self, unwound: &UnwoundChain, user: UserPart, new: &mut NewChain<'_>) -> Option<StackId> {
        let form = ChainForm { user, ..new.form };
        unwound_words(new.kernel, unwound, form, &mut self.words);
        new.stacks.intern(Callchain::from_bytes(self.words.as_flattened()), form, new.pid, new.spaces)
    }

    fn defer(&mut self, copy: CopiedStack<'_>, new: &mut NewChain<'_>) -> Option<StackId> {
        let space = new.spaces.key(new.pid);
        match self.pool.window(space, new.whole.iter(), new.form, copy) {
            Some(window) => {
                self.counts.handed_on += 1;
                new.stacks.defer(window, new.pid)
            }
            None => {
                self.counts.no_room += 1;
                new.stacks.intern(new.whole, new.form, new.pid, new.spaces)
            }
        }
    }
}

fn registers(window: &UserWindow<'_>) -> UserRegs {
    let regs = UserRegs::new(window.pc, window.sp, window.fp, window.lr);
    window.general().fold(regs, |regs, (number, value)| regs.with_general(number, value))
}
