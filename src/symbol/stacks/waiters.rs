//! Stacks of threads that wait: the kernel part from /proc/TID/stack, the user part from a snapshot of the thread's memory.

use crate::perf::record::UserPart;
use crate::symbol::AddressSpaces;
use crate::symbol::stacks::frame::{Frame, StackCut};
use crate::task::procfs::KernelFrame;
use crate::task::python::{PythonFrame, PythonStack};
use crate::task::user_snapshot::UserSnapshot;
use crate::unwind::{UnwoundChain, UserRegs};

/// The stack of a thread in a wait.
#[derive(Clone, Debug)]
pub struct WaiterStack {
    pub kernel: Vec<KernelFrame>,
    pub user: Box<UserSnapshot>,
    /// The user part.
    pub chain: UnwoundChain,
    /// How `chain` was found, and how it ends.
    pub part: UserPart,
}

/// A frame of the user part.
#[derive(Debug, PartialEq, Eq)]
enum MergedFrame {
    /// By its number in the chain.
    Address(usize),
    Python(PythonFrame),
    Cut,
}

impl WaiterStack {
    pub fn new(kernel: Vec<KernelFrame>, user: Box<UserSnapshot>) -> WaiterStack {
        WaiterStack { kernel, chain: UnwoundChain::innermost(user.pc), user, part: UserPart::Broken }
    }

    /// The registers that are known: /proc shows no others.
    pub fn registers(&self) -> UserRegs {
        UserRegs::partial(self.user.pc, self.user.sp)
    }

    /// Approximate memory of the stack, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<WaiterStack>() + size_of_val(&self.kernel[..]) + self.chain.bytes() + self.user.bytes()
    }

    /// Approximate number of frames.
    pub fn expected_frames(&self) -> usize {
        const NATIVE: usize = 32;
        self.kernel.len() + NATIVE + self.user.python.as_ref().map_or(0, |python| python.frames.len())
    }

    pub fn frames(self, spaces: &mut AddressSpaces) -> Vec<Frame> {
        let WaiterStack { kernel, user, chain, part } = self;
        let mut frames: Vec<Frame> = kernel.into_iter().map(|frame| Frame::Named(Box::new(frame))).collect();
        for merged in merge(&chain, part, user.python) {
            frames.push(match merged {
                MergedFrame::Address(index) => {
                    let addr = chain.addresses().get(index).copied().unwrap_or_default();
                    let behind_call = chain.is_behind_call(index);
                    let place = spaces.locate(user.pid, addr.saturating_sub(u64::from(behind_call)));
                    Frame::User { addr, behind_call, guessed: chain.guessed_from() == Some(index), place }
                }
                MergedFrame::Python(frame) => Frame::Python(Box::new(frame)),
                MergedFrame::Cut => Frame::Truncated(StackCut::DepthLimit),
            });
        }
        if let UserPart::Truncated { kib } = part {
            frames.push(Frame::Truncated(StackCut::Window { kib }));
        }
        frames
    }
}

/// Replaces each frame of the interpreter's C function by the Python functions that this call interprets. If the number of
/// such frames is not the number of calls that the interpreter has recorded, all functions replace all frames from the first
/// to the last of them.
fn merge(chain: &UnwoundChain, part: UserPart, python: Option<PythonStack>) -> Vec<MergedFrame> {
    let Some(PythonStack { frames, cut, interpreter }) = python else {
        let cut = (part == UserPart::TooDeep).then_some(MergedFrame::Cut);
        return (0..chain.addresses().len()).map(MergedFrame::Address).chain(cut).collect();
    };
    let place = |index: usize, addr: u64| addr.saturating_sub(u64::from(chain.is_behind_call(index)));
    let addresses = chain.addresses().iter().enumerate();
    let is_call = |(index, addr): &(usize, &u64)| interpreter.contains(&place(*index, **addr));
    let calls: Vec<usize> = addresses.filter(is_call).map(|(index, _)| index).collect();
    let mut groups: Vec<Vec<PythonFrame>> = vec![Vec::new()];
    for frame in frames {
        let ends_call = frame.ends_call;
        groups.last_mut().into_iter().for_each(|group| group.push(frame.clone()));
        groups.extend(ends_call.then(Vec::new));
    }
    groups.pop_if(|group| group.is_empty());
    let is_cut = cut || part == UserPart::TooDeep;
    let breaks_off = !matches!(part, UserPart::Whole | UserPart::Guessed);
    let fits = calls.len() == groups.len() || breaks_off && calls.len() < groups.len();
    let [first, last] = [calls.first(), calls.last()].map(|index| index.copied());
    if !fits && first.is_none() {
        return (0..chain.addresses().len()).map(MergedFrame::Address).collect();
    }
    let mut groups = groups.into_iter();
    let mut merged = Vec::new();
    for index in 0..chain.addresses().len() {
        let is_within = first.is_some_and(|first| index >= first) && last.is_some_and(|last| index <= last);
        if fits && calls.contains(&index) {
            merged.extend(groups.next().unwrap_or_default().into_iter().map(MergedFrame::Python));
        } else if !fits && is_within {
            merged.extend(groups.by_ref().flatten().map(MergedFrame::Python));
        } else {
            merged.push(MergedFrame::Address(index));
        }
    }
    merged.extend(groups.flatten().map(MergedFrame::Python)); // the calls of these functions are beyond the break
    merged.extend(is_cut.then_some(MergedFrame::Cut));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(functions: &[(&str, bool)], cut: bool) -> Option<PythonStack> {
        let frame = |(function, ends_call): &(&str, bool)| PythonFrame {
            function: (*function).into(),
            file: "/a.py".into(),
            line: None,
            ends_call: *ends_call,
        };
        Some(PythonStack { frames: functions.iter().map(frame).collect(), cut, interpreter: 1000..2000 })
    }

    fn shown(chain: &[u64], part: UserPart, python: Option<PythonStack>) -> String {
        let chain = UnwoundChain::of(chain, &[], None);
        let shown = |merged: MergedFrame| match merged {
            MergedFrame::Address(at) => chain.addresses()[at].to_string(),
            MergedFrame::Python(frame) => frame.function.into(),
            MergedFrame::Cut => "cut".to_owned(),
        };
        merge(&chain, part, python).into_iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn functions_take_the_place_of_the_interpreter() {
        use UserPart::{Broken, Guessed, TooDeep, Whole};
        let two = || python(&[("a", false), ("b", true), ("c", true)], false);
        let cases = [
            (&[1, 1500, 2, 2000, 3][..], Whole, two(), "1 a b 2 c 3"),
            (&[1000, 2, 1001, 3], Whole, two(), "a b 2 c 3"), // interrupted in it
            (&[1, 1000, 2, 1001, 3, 1002], Whole, two(), "1 1000 2 a b 3 c"), // 1000 is behind a call of what is before it
            (&[1, 1500, 2], Broken, two(), "1 a b 2 c"),
            (&[1], Broken, two(), "1 a b c"),
            (&[1, 1500, 2], Whole, two(), "1 a b c 2"),
            (&[1, 1500, 2, 1500, 3, 1500, 4], Guessed, two(), "1 a b c 4"),
            (&[1, 1500, 2, 1500, 3, 1500, 4], Broken, two(), "1 a b c 4"),
            (&[1, 2], Whole, two(), "1 2"),
            (&[1, 1500, 2], TooDeep, python(&[("a", true)], false), "1 a 2 cut"),
            (&[1, 1500, 2], Broken, python(&[("a", false)], true), "1 a 2 cut"),
            (&[1, 1500], Whole, None, "1 1500"),
            (&[1], TooDeep, None, "1 cut"),
        ];
        for (chain, part, python, want) in cases {
            assert_eq!(shown(chain, part, python), want, "{chain:?} {part:?}");
        }
    }
}
