//! Stacks as the output thread knows them: the mappings of processes, the frames, and their names.

use std::sync::Arc;

use crossbeam_channel::Sender;
use rustc_hash::FxHashSet;

use crate::output::settings::OutputSettings;
use crate::output::stack_weights::fold::Folded;
use crate::stats::weights::Weighted;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::names::FrameNames;
use crate::symbol::naming::time::CurrentStep;
use crate::symbol::quality::chain::CallchainQuality;
use crate::symbol::quality::counts::QualityCounts;
use crate::symbol::stacks::frames::UserStack;
use crate::symbol::stacks::new_stack::NewStack;
use crate::symbol::stacks::unwinding::Unwinding;
use crate::symbol::unnamed::UnnamedReason;
use crate::symbol::{AddressSpaces, Frame, Frames, StackId, SymbolUpdate};
use crate::unwind::SpaceCode;

/// The reading thread left out the stack, or the mappings of its addresses.
const LEFT_OUT: UnnamedReason = "stack left out: the output could not keep up";

/// The stacks that occurrences and rows may refer to.
pub struct NamedStacks {
    pub frames: Frames,
    pub names: FrameNames,
    spaces: AddressSpaces,
    pub unwinding: Unwinding,
    /// Processes whose mappings are to be read when there is time.
    unread: Vec<i32>,
    pub quality: QualityCounts,
    step: CurrentStep,
}

impl NamedStacks {
    pub fn new(settings: &OutputSettings, step: CurrentStep, publish: Sender<(u32, Arc<SpaceCode>)>) -> NamedStacks {
        let kallsyms = settings.host.proc.join("kallsyms");
        NamedStacks {
            frames: Frames::default(),
            names: FrameNames::observed(kallsyms, settings.symbols.clone(), step.clone()),
            spaces: AddressSpaces::new(settings.host.clone()).within(&settings.budget),
            unwinding: Unwinding::new(settings.symbols.budget.clone(), publish),
            unread: Vec::new(),
            quality: QualityCounts::default(),
            step,
        }
    }

    /// The frames of a stack with their names. Names are cached by address, not by stack: there may be very many stacks.
    pub fn name(&mut self, id: StackId) -> Vec<NamedFrame> {
        match self.frames.get(id) {
            Some(frames) => self.names.stack(frames),
            None => vec![NamedFrame::new(Err(LEFT_OUT.into()), 0, None)],
        }
    }

    /// Reads the names of stacks that are named next.
    pub fn names_ahead(&mut self, ids: impl Iterator<Item = StackId>) {
        self.names.read_ahead(ids.filter_map(|id| self.frames.get(id)).flatten());
    }

    pub fn fold(&mut self, rows: &[Weighted]) -> Folded {
        self.names_ahead(rows.iter().filter_map(|row| row.stack));
        Folded::new(rows, |id| self.name(id))
    }

    /// Prepares for stacks of these processes: the mappings of a few are read now, those of many when there is time.
    pub fn expect(&mut self, pids: Vec<i32>) {
        const FEW: usize = 64;
        let few = pids.len() <= FEW;
        self.unread = pids;
        while few && !self.unread.is_empty() && self.read_ahead() {}
    }

    /// Reads the mappings of one more process, or the symbols of one more file. False when there is none left.
    pub fn read_ahead(&mut self) -> bool {
        let Some(pid) = self.unread.pop() else { return self.names.read_next_symbols() };
        self.step.in_process(pid, || self.spaces.preload(pid));
        true
    }

    /// Takes news. Gives which stacks are to be forgotten: those up to an id, except some.
    pub fn apply(&mut self, news: SymbolUpdate) -> Option<(StackId, FxHashSet<StackId>)> {
        match news {
            // Reading the mappings of a process may take long.
            SymbolUpdate::Space(_) | SymbolUpdate::Stack(_) if self.step.is_in_hurry() => {}
            SymbolUpdate::Space(change) => self.step.in_process(change.pid(), || self.spaces.apply(change)),
            SymbolUpdate::Stack(stack) => self.keep_stack(stack),
            SymbolUpdate::StackCounts { stacks, empty } => self.judge(&stacks, empty),
            SymbolUpdate::Forget { last, kept } => return Some((last, kept)),
            SymbolUpdate::RereadMaps => self.spaces.forget_processes(),
        }
        None
    }

    fn keep_stack(&mut self, stack: NewStack) {
        let (id, pid) = (stack.id, stack.pid);
        let (frames, user) = self.step.in_process(pid, || {
            let stack = self.unwinding.finish(stack, &mut self.spaces);
            let part = stack.user_part();
            let frames = stack.frames(&mut self.spaces);
            let has_user = frames.iter().any(|frame| matches!(frame, Frame::User { .. }));
            (frames, has_user.then(|| UserStack { part, program: self.spaces.program(pid), pid }))
        });
        self.names.expect(&frames);
        self.frames.insert(id, frames);
        user.into_iter().for_each(|user| self.frames.set_user(id, user));
    }

    /// Counts callchains by quality.
    fn judge(&mut self, stacks: &[(StackId, u64)], empty: u64) {
        for (id, taken) in stacks {
            if let Some(frames) = self.frames.get(*id) {
                let user = self.frames.user(*id);
                let part = user.map(|user| user.part).unwrap_or_default();
                self.quality.add(&CallchainQuality::of(frames, part, &mut self.names), user, *taken);
            }
        }
        self.quality.add(&CallchainQuality::Empty, None, empty);
    }

    /// Forgets the names and mappings that no stack needs, if there are too many mappings.
    pub fn limit_spaces(&mut self) {
        if self.spaces.is_full() {
            self.forget_unused();
        }
    }

    /// Forgets stacks, and the names and mappings that no other stack needs.
    pub fn retain(&mut self, keep: impl FnMut(StackId) -> bool) {
        self.frames.retain(keep);
        self.forget_unused();
    }

    fn forget_unused(&mut self) {
        self.names.forget_unused();
        self.spaces.forget_unused();
    }
}
