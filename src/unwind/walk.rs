//! Walks a stack from the innermost function outward, one caller at a time.

use std::sync::Arc;

use crate::unwind::cache::{CacheKey, RuleCache};
use crate::unwind::regs::SignalFrame;
use crate::unwind::rules::{Base, Cfa, FrameRule, ReturnAddress, Rule, Saved};
use crate::unwind::{
    Arch, CodeKind, CodeRange, LoadTables, MAX_FRAMES, MappedCode, SpaceCode, UnwoundChain, UserRegs, UserStackSample,
};

/// Walks stacks, and caches rules from walk to walk.
#[derive(Debug, Default)]
pub struct Unwinder {
    cache: RuleCache,
    counts: UnwinderCounts,
}

/// Counts of the work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwinderCounts {
    /// Rules looked up, including those that were made.
    pub rules: u64,
    /// Rules made from tables.
    pub made: u64,
}

/// How a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The chain reaches the start of its thread.
    Whole,
    /// The chain reaches the start, but some caller was found by a frame pointer that no table confirms.
    Guessed,
    /// There are more callers.
    Truncated(Cut),
    /// The next caller is not known.
    Broken(Broken),
    /// Code with this number has no tables yet. There is no chain: walk again once the tables are loaded.
    NoTables(u32),
}

/// Where a chain was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The copied bytes of the stack ended.
    Window,
    /// The chain has [`MAX_FRAMES`] addresses.
    Frames,
}

/// Why a caller was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The return address lies in no code.
    NotCode,
    /// The tables have no rule, and the frame pointer is not plausible.
    NoRule,
    /// A register that the rule needs is no longer known.
    NoRegister,
    /// The caller's stack pointer would not be above its callee's.
    NotRising,
    /// A return probe has replaced the return address.
    ReturnProbe,
    /// The walk has used up its limit of CFA instructions, for rules that were not in the cache.
    Budget,
}

/// Limit of the CFA instructions executed in one walk, which take some 0.1 ms: the author of a program decides how many
/// instructions its tables have, and where its stack leads. Hundreds of new rules need fewer, and the next walk finds
/// the rules of this one in the cache.
const MAX_INSTRUCTIONS_OF_WALK: usize = 16_384;
/// Limit of the distance that a frame pointer may lead; most stacks are limited to 8 MiB.
const MAX_STACK_BYTES: u64 = 64 << 20;

/// Words of the stack in which a return address is looked for behind one that is hidden. Few functions have larger frames.
const MAX_SEARCHED_WORDS: u64 = 1024;
/// Steps of all trials of one walk.
const MAX_TRIAL_STEPS: usize = 1024;

/// Callee-saved registers of x86_64 by DWARF number: rbx, r12 to r15.
const CALLEE_SAVED: [u8; 5] = [3, 12, 13, 14, 15];

/// One walk.
struct Walk<'a, 'b> {
    unwinder: &'a mut Unwinder,
    arch: Arch,
    stack: Window<'a>,
    kernel_chain: &'a [[u8; 8]],
    space: &'a SpaceCode,
    load: &'a mut dyn LoadTables,
    chain: &'b mut UnwoundChain,
    /// Index of the range that was found last.
    near: usize,
    position: Position<'a>,
    /// A register whose value is tracked through the frames of all callees, since a caller addresses its frame by it.
    followed: Option<FollowedRegister>,
    /// The unknown register at which the walk ended.
    missing: Option<u8>,
    /// CFA instructions that the walk may still execute.
    instructions: usize,
    /// It may turn out wrong: nothing is guessed.
    is_trial: bool,
    /// Steps that trials may take yet.
    trial_steps: usize,
}

/// A callee-saved register of x86_64, by its DWARF number.
#[derive(Clone, Copy)]
struct FollowedRegister {
    number: u8,
    /// The value in the current function. None: it is not known.
    value: Option<u64>,
}

/// The registers of one function.
#[derive(Clone, Copy)]
struct Position<'a> {
    pc: u64,
    sp: u64,
    fp: Option<u64>,
    /// The registers that rules do not restore.
    scratch: Scratch<'a>,
    /// `pc` is no return address, but the next instruction to run.
    is_exact: bool,
}

/// The registers that a callee may have overwritten.
#[derive(Clone, Copy)]
enum Scratch<'a> {
    Sampled(&'a UserRegs),
    /// As a signal interrupted them: the signal's frame is at this address.
    Signal(u64),
    Unknown,
}

/// Bytes of the stack.
#[derive(Clone, Copy)]
struct Window<'a> {
    start: u64,
    bytes: &'a [u8],
    /// The walk has switched to another stack, at lower addresses.
    is_left: bool,
}

impl Unwinder {
    /// Walks a stack: `chain` is replaced by at most [`MAX_FRAMES`] addresses, including that in the registers.
    pub fn walk(
        &mut self,
        sample: &UserStackSample<'_>,
        space: &SpaceCode,
        load: &mut dyn LoadTables,
        chain: &mut UnwoundChain,
    ) -> Walked {
        let UserStackSample { arch, regs, stack, kernel_chain } = *sample;
        let position = Position {
            pc: arch.address(regs.pc),
            sp: regs.sp,
            fp: regs.frame_pointer(),
            scratch: Scratch::Sampled(regs),
            is_exact: true,
        };
        chain.clear();
        let mut walk = Walk {
            unwinder: self,
            arch,
            stack: Window { start: regs.sp, bytes: stack, is_left: false },
            kernel_chain,
            space,
            load,
            chain,
            near: 0,
            position,
            followed: None,
            missing: None,
            instructions: MAX_INSTRUCTIONS_OF_WALK,
            is_trial: false,
            trial_steps: MAX_TRIAL_STEPS,
        };
        walk.run()
    }

    pub fn counts(&self) -> UnwinderCounts {
        self.counts
    }
}

/// A step of a walk. An error ends the walk.
type Step = Result<(), Walked>;

impl<'a> Walk<'a, '_> {
    fn run(&mut self) -> Walked {
        let (start, stack) = (self.position, self.stack);
        let mut ended = self.go();
        // Most rules do not need such a register, so it is tracked only in a second walk, for those that do: glibc's
        // _dl_runtime_resolve addresses its frame by rbx, and calls other functions.
        if ended == Walked::Broken(Broken::NoRegister)
            && let Some(number) = self.missing.take()
        {
            (self.position, self.stack) = (start, stack);
            let value = self.general(start.scratch, number).ok();
            self.followed = Some(FollowedRegister { number, value });
            self.chain.clear();
            ended = self.go();
        }
        match ended {
            Walked::Truncated(Cut::Window) => self.go_on_by_kernel_chain(),
            Walked::Whole if self.chain.guessed_from().is_some() => Walked::Guessed,
            Walked::NoTables(_) => {
                self.chain.clear();
                ended
            }
            _ => ended,
        }
    }

    fn go(&mut self) -> Walked {
        self.chain.push(self.position.pc);
        loop {
            if let Err(ended) = self.step() {
                return ended;
            }
        }
    }

    /// Goes to the caller.
    fn step(&mut self) -> Step {
        // A call may be the last instruction of its function.
        let address = if self.position.is_exact { self.position.pc } else { self.position.pc.wrapping_sub(1) };
        let space = self.space;
        let range = space.find_near(address, &mut self.near).ok_or(Walked::Broken(Broken::NotCode))?;
        match self.rule(range, address)? {
            Rule::End => Err(Walked::Whole),
            Rule::Signal => self.step_over_signal(),
            Rule::Frame(frame) if self.followed.is_none() => self.step_by(&frame),
            Rule::Frame(frame) => {
                let callee = self.position;
                self.step_by(&frame)?;
                self.follow(range, address, &callee)
            }
            Rule::Missing if self.position.is_exact && self.rule(range, address.wrapping_sub(1))? == Rule::Signal => {
                // During the system call of a signal trampoline, `pc` is behind its last instruction.
                self.step_over_signal()
            }
            Rule::Missing => self.guess(range.code.kind()),
        }
    }

    fn rule(&mut self, range: &CodeRange, address: u64) -> Result<Rule, Walked> {
        let code = &range.code;
        if code.tables().is_some_and(|tables| tables.is_none()) {
            return Ok(Rule::Missing);
        }
        let offset = range.offset_of(address);
        let key = CacheKey::new(code.id(), offset);
        self.unwinder.counts.rules += 1;
        if let Some(known) = key.and_then(|key| self.unwinder.cache.get(key)) {
            return Ok(known);
        }
        let rule = self.make_rule(code, offset)?;
        if let Some(key) = key {
            self.unwinder.cache.keep(key, rule);
        }
        Ok(rule)
    }

    #[cold]
    fn make_rule(&mut self, code: &Arc<MappedCode>, offset: u64) -> Result<Rule, Walked> {
        if code.tables().is_none() {
            self.load.load(code);
        }
        let tables = code.tables().ok_or(Walked::NoTables(code.id()))?;
        self.unwinder.counts.made += 1;
        let tables = tables.filter(|tables| tables.arch() == self.arch);
        match tables.and_then(|tables| Some((tables, tables.address(offset)?))) {
            Some((tables, at)) => tables.rule_within(at, &mut self.instructions).ok_or(Walked::Broken(Broken::Budget)),
            None => Ok(Rule::Missing),
        }
    }

    fn step_by(&mut self, rule: &FrameRule) -> Step {
        let Position { sp, fp, scratch, is_exact, .. } = self.position;
        let (base, offset) = match rule.cfa {
            Cfa::At(base, offset) | Cfa::Behind(base, offset, _) => (base, offset),
        };
        let base = match base {
            Base::Sp => sp,
            Base::Fp => fp.ok_or(Walked::Broken(Broken::NoRegister))?,
            Base::General(number) => self.general(scratch, number)?,
        };
        let mut cfa = base.wrapping_add_signed(offset.into());
        if let Cfa::Behind(_, _, plus) = rule.cfa {
            cfa = self.stack.word(cfa)?.wrapping_add(plus.into());
        }
        // On aarch64 a call pushes nothing, so the innermost function may have no frame.
        let is_without_frame = cfa == sp && self.arch == Arch::Aarch64 && !matches!(scratch, Scratch::Unknown);
        if cfa <= sp && !is_without_frame {
            // In musl's clone(), the tables describe the calling thread; the new thread starts behind the system call.
            let is_outermost = fp == Some(0) && !is_exact;
            return Err(if is_outermost { Walked::Whole } else { Walked::Broken(Broken::NotRising) });
        }
        let word = |from: u64, words: i16| self.stack.word(from.wrapping_add_signed(i64::from(words) * 8));
        let known_fp = || fp.ok_or(Walked::Broken(Broken::NoRegister));
        let return_address = match rule.return_address {
            ReturnAddress::Kept => self.link_register(scratch)?.ok_or(Walked::Broken(Broken::NoRegister))?,
            ReturnAddress::Cfa(words) | ReturnAddress::Interrupted(words) => word(cfa, words)?,
            ReturnAddress::Fp(words) => word(known_fp()?, words)?,
            ReturnAddress::Sp(words) => word(sp, words)?,
        };
        let is_interrupted = matches!(rule.return_address, ReturnAddress::Interrupted(_));
        let fp = match rule.fp {
            Saved::Kept => fp,
            Saved::Lost => None,
            // Tables of compilers omit that a register was popped just before the function returns.
            Saved::Cfa(words) if cfa.wrapping_add_signed(i64::from(words) * 8) < sp => fp,
            Saved::Cfa(words) => Some(word(cfa, words)?),
            Saved::Fp(words) => Some(word(known_fp()?, words)?),
            Saved::Sp(words) => Some(word(sp, words)?),
        };
        self.position =
            Position { pc: return_address, sp: cfa, fp, scratch: Scratch::Unknown, is_exact: is_interrupted };
        // A function that keeps a frame pointer: the kernel's callchain has the same callers.
        let is_kernels = rule.cfa == Cfa::At(Base::Fp, 16);
        self.enter(is_kernels)
    }

    /// Computes the caller's value of the tracked register. `callee`: the registers of the callee, at an address in
    /// `range`.
    fn follow(&mut self, range: &CodeRange, address: u64, callee: &Position<'_>) -> Step {
        let Some(FollowedRegister { number, value }) = self.followed else { return Ok(()) };
        let tables = range.code.tables().flatten();
        let at = tables.and_then(|tables| Some((tables, tables.address(range.offset_of(address))?)));
        let saved = match at {
            Some((tables, at)) => {
                let saved = tables.saved_within(at, number, &mut self.instructions);
                saved.ok_or(Walked::Broken(Broken::Budget))?
            }
            None => Saved::Lost,
        };
        let place = |from: u64, words: i16| from.wrapping_add_signed(i64::from(words) * 8);
        let cfa = self.position.sp;
        let value = match saved {
            Saved::Kept => value,
            Saved::Lost => None,
            Saved::Cfa(words) if place(cfa, words) < callee.sp => value, // the register was popped already
            Saved::Cfa(words) => self.stack.word(place(cfa, words)).ok(),
            Saved::Fp(words) => callee.fp.and_then(|fp| self.stack.word(place(fp, words)).ok()),
            Saved::Sp(words) => self.stack.word(place(callee.sp, words)).ok(),
        };
        self.followed = Some(FollowedRegister { number, value });
        Ok(())
    }

    /// Enters the caller: takes `position.pc` as a return address.
    fn enter(&mut self, is_kernels: bool) -> Step {
        if self.space.is_trampoline(self.position.pc) {
            match self.behind_probe() {
                Some(address) => self.position.pc = address,
                None if is_kernels => return Err(Walked::Broken(Broken::ReturnProbe)),
                None => return self.skip_hidden_caller(),
            }
            if !is_kernels {
                self.chain.guess_next();
            }
        }
        let pc = self.arch.address(self.position.pc);
        if pc == 0 {
            return Err(Walked::Whole); // the outermost return address of a thread is 0
        }
        let address = if self.position.is_exact { pc } else { pc - 1 };
        self.space.find_near(address, &mut self.near).ok_or(Walked::Broken(Broken::NotCode))?;
        if self.chain.addresses().len() >= MAX_FRAMES {
            return Err(Walked::Truncated(Cut::Frames));
        }
        self.position.pc = pc;
        if self.position.is_exact {
            self.chain.push_interrupted(pc);
        } else {
            self.chain.push(pc);
        }
        Ok(())
    }

    /// Goes to the code that a signal interrupted. The handler may have run on an alternate stack.
    fn step_over_signal(&mut self) -> Step {
        let frame = self.position.sp;
        let SignalFrame { pc, sp, fp, .. } = self.arch.signal_frame();
        let word = |offset: u64| self.stack.word(frame.wrapping_add(offset));
        let (pc, sp, fp) = (word(pc)?, word(sp)?, word(fp)?);
        self.position = Position { pc, sp, fp: Some(fp), scratch: Scratch::Signal(frame), is_exact: true };
        self.stack.is_left = sp < self.stack.start;
        if let Some(FollowedRegister { number, .. }) = self.followed {
            let value = self.general(Scratch::Signal(frame), number).ok();
            self.followed = Some(FollowedRegister { number, value });
        }
        self.enter(false)
    }

    fn general(&mut self, scratch: Scratch<'_>, number: u8) -> Result<u64, Walked> {
        let missing = Walked::Broken(Broken::NoRegister);
        match scratch {
            Scratch::Sampled(regs) => regs.general(number).ok_or(missing),
            Scratch::Signal(frame) => self.stack.word(frame.wrapping_add(SignalFrame::general(number).ok_or(missing)?)),
            Scratch::Unknown => match self.followed {
                Some(followed) if followed.number == number => followed.value.ok_or(missing),
                _ => {
                    self.missing = Some(number).filter(|number| CALLEE_SAVED.contains(number));
                    Err(missing)
                }
            },
        }
    }

    fn link_register(&self, scratch: Scratch<'_>) -> Result<Option<u64>, Walked> {
        match (scratch, self.arch.signal_frame().lr) {
            (Scratch::Sampled(regs), Some(_)) => Ok(regs.link_register()),
            (Scratch::Signal(frame), Some(lr)) => self.stack.word(frame.wrapping_add(lr)).map(Some),
            _ => Ok(None),
        }
    }

    /// Finds a caller without tables, by the frame pointer.
    fn guess(&mut self, kind: CodeKind) -> Step {
        let Position { sp, fp, is_exact, .. } = self.position;
        let missing = Walked::Broken(Broken::NoRule);
        if self.is_trial {
            return Err(missing);
        }
        if is_exact && kind == CodeKind::File && self.guess_without_frame()? {
            return Ok(());
        }
        let fp = fp.ok_or(missing)?;
        if fp == 0 && !is_exact {
            return Err(Walked::Whole); // the ABIs mark the outermost frame by a frame pointer of 0
        }
        if fp < sp || fp - sp > MAX_STACK_BYTES || !fp.is_multiple_of(8) {
            return Err(missing);
        }
        let (caller, return_address) = (self.stack.word(fp)?, self.stack.word(fp.wrapping_add(8))?);
        if return_address == 0 && caller != 0 {
            return Err(missing);
        }
        self.chain.guess_next();
        self.position = Position {
            pc: return_address,
            sp: fp.wrapping_add(16),
            fp: Some(caller),
            scratch: Scratch::Unknown,
            is_exact: false,
        };
        self.followed = self.followed.map(|followed| FollowedRegister { value: None, ..followed });
        self.enter(true)
    }

    /// In a file whose compiled functions have tables, an innermost function without one is short assembly, which
    /// pushes nothing. True if that assumption leads to code that has a rule.
    fn guess_without_frame(&mut self) -> Result<bool, Walked> {
        let Position { sp, scratch, .. } = self.position;
        let (word, caller_sp) = match self.arch {
            Arch::X86_64 => (self.stack.word(sp).ok(), sp.wrapping_add(8)),
            Arch::Aarch64 => (self.link_register(scratch)?, sp),
        };
        let Some(word) = word else { return Ok(false) };
        let address = self.arch.address(word).wrapping_sub(1);
        let mut near = self.near;
        let space = self.space;
        let Some(range) = space.find_near(address, &mut near) else { return Ok(false) };
        if self.rule(range, address)? == Rule::Missing {
            return Ok(false);
        }
        self.chain.guess_next();
        self.position =
            Position { pc: word, sp: caller_sp, scratch: Scratch::Unknown, is_exact: false, ..self.position };
        self.enter(false).map(|()| true)
    }

    /// The return address that a return probe has replaced. Since 6.11 the kernel's callchain has it at the same index:
    /// fixup_uretprobe_trampoline_entries(), arch/x86/events/core.c and kernel/events/callchain.c.
    fn behind_probe(&self) -> Option<u64> {
        let chain = self.chain.addresses();
        let kernel =
            |index: usize| self.kernel_chain.get(index).map(|word| self.arch.address(u64::from_ne_bytes(*word)));
        let is_same = (0..chain.len()).all(|index| kernel(index) == Some(chain[index]));
        let at = if is_same { chain.len() } else { self.in_kernel_chain(*chain.last()?)? + 1 };
        kernel(at).filter(|address| !self.space.is_trampoline(*address))
    }

    /// Nothing tells where the caller was whose return address a probe has taken the place of: the probe stands for it. But who
    /// called it is found by the first word up the stack from which the tables lead to the start of the thread, or to another
    /// probe.
    #[cold]
    fn skip_hidden_caller(&mut self) -> Step {
        let hidden = Walked::Broken(Broken::ReturnProbe);
        if self.is_trial || self.arch != Arch::X86_64 {
            return Err(hidden);
        }
        let Position { pc: probe, sp, fp, .. } = self.position;
        let space = self.space;
        self.chain.push_interrupted(probe);
        let mut more_hidden = 0;
        for place in (0..MAX_SEARCHED_WORDS).map(|number| sp.wrapping_add(8 * number)) {
            let Ok(word) = self.stack.word(place) else { break };
            if space.is_trampoline(word) {
                more_hidden += 1;
                continue;
            }
            let Some(range) = space.find_near(word.wrapping_sub(1), &mut self.near) else { continue };
            if range.code.kind() != CodeKind::File {
                continue;
            }
            let caller =
                Position { pc: word, sp: place.wrapping_add(8), fp, scratch: Scratch::Unknown, is_exact: false };
            if self.leads_on(caller)? && self.chain.addresses().len() + more_hidden < MAX_FRAMES {
                (0..more_hidden).for_each(|_| self.chain.push_interrupted(probe));
                self.chain.guess_next();
                self.position = caller;
                return self.enter(false);
            }
        }
        Err(hidden)
    }

    /// Whether tables lead from here to the start of the thread, or to a return probe.
    fn leads_on(&mut self, caller: Position<'a>) -> Result<bool, Walked> {
        let (position, stack, followed, len) = (self.position, self.stack, self.followed, self.chain.addresses().len());
        (self.position, self.is_trial) = (caller, true);
        let mut ended = self.enter(false);
        while ended.is_ok() && self.trial_steps > 0 {
            self.trial_steps -= 1;
            ended = self.step();
        }
        (self.position, self.stack, self.followed, self.is_trial) = (position, stack, followed, false);
        self.chain.truncate(len);
        match ended {
            Err(Walked::NoTables(_)) => ended.map(|()| false),
            ended => Ok(matches!(ended, Err(Walked::Whole | Walked::Broken(Broken::ReturnProbe)))),
        }
    }

    /// The index of an address in the kernel's callchain, if it occurs exactly once.
    fn in_kernel_chain(&self, address: u64) -> Option<usize> {
        let is_it = |word: &[u8; 8]| self.arch.address(u64::from_ne_bytes(*word)) == address;
        let at = self.kernel_chain.iter().position(is_it)?;
        (!self.kernel_chain[at + 1..].iter().any(is_it)).then_some(at)
    }

    /// At the end of the window, continues with the kernel's callchain.
    fn go_on_by_kernel_chain(&mut self) -> Walked {
        let cut = Walked::Truncated(Cut::Window);
        let found = self.chain.addresses();
        let Some(&last) = found.last() else { return cut };
        let is_once = found.iter().filter(|address| **address == last).count() == 1;
        let Some(at) = self.in_kernel_chain(last).filter(|_| is_once) else { return cut };
        for word in &self.kernel_chain[at + 1..] {
            if self.chain.addresses().len() >= MAX_FRAMES {
                return Walked::Truncated(Cut::Frames);
            }
            let address = self.arch.address(u64::from_ne_bytes(*word));
            if self.space.find_near(address.wrapping_sub(1), &mut self.near).is_none() {
                return cut;
            }
            self.chain.guess_next();
            self.chain.push(address);
        }
        let Some(&last) = self.chain.addresses().last() else { return cut };
        let address = last.wrapping_sub(1);
        let space = self.space;
        match space.find_near(address, &mut self.near).map(|range| self.rule(range, address)) {
            Some(Ok(Rule::End)) => Walked::Guessed,
            Some(Err(Walked::NoTables(id))) => {
                self.chain.clear();
                Walked::NoTables(id)
            }
            _ => cut,
        }
    }
}

impl Window<'_> {
    /// A word of the stack. Addresses below the window belong to no caller, unless the walk has switched to another
    /// stack.
    #[inline]
    fn word(self, address: u64) -> Result<u64, Walked> {
        let below = if self.is_left { Walked::Truncated(Cut::Window) } else { Walked::Broken(Broken::NotRising) };
        let offset = address.checked_sub(self.start).ok_or(below)?;
        let word = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)?.first_chunk());
        word.map(|word| u64::from_le_bytes(*word)).ok_or(Walked::Truncated(Cut::Window))
    }
}
