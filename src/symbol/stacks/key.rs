//! Keys of stacks: equal where the frames are at the same offsets of the same files. Two threads, or two processes of
//! one program, have different stack ids for what a reader takes for one stack.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use crate::symbol::stacks::frame::StackCut;
use crate::symbol::{Frame, Frames, Module, StackId};
use crate::task::procfs::KernelFrame;
use crate::task::python::PythonFrame;

/// Key of a stack. Cheap to clone; keeps no file open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StackKey {
    /// There is no stack.
    Absent,
    /// The output thread does not have its frames.
    Unknown,
    Frames(Arc<[FrameKey]>),
}

/// Key of a frame. User addresses are not compared where an offset in a file is known, since they differ by process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FrameKey {
    Kernel(u64),
    Named(Box<KernelFrame>),
    Python(Box<PythonFrame>),
    File(ModuleKey, u64),
    /// An address in no known file: of the innermost frame, or of any frame in an exact key.
    Address(u64),
    /// Any address in no known file, further out. Code without frame pointers leaves such addresses by chance, and the
    /// mappings of a stuck task are not read: the frames before them tell the place.
    AnyAddress,
    Truncated(StackCut),
}

/// A module by the address of its allocation, which the weak reference keeps from being reused.
#[derive(Clone, Debug)]
pub struct ModuleKey(Weak<Module>);

impl PartialEq for ModuleKey {
    fn eq(&self, other: &ModuleKey) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for ModuleKey {}

impl Hash for ModuleKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

impl StackKey {
    /// The key of a stack. Addresses in no file count only in the innermost frame.
    pub fn of(id: Option<StackId>, stacks: &Frames) -> StackKey {
        let Some(id) = id else { return StackKey::Absent };
        let Some(frames) = stacks.get(id) else { return StackKey::Unknown };
        let mut keys: Vec<FrameKey> = frames.iter().map(FrameKey::of).collect();
        if let (Some(key), Some(innermost)) = (keys.first_mut(), frames.first()) {
            *key = FrameKey::exact(innermost);
        }
        keys.dedup_by(|one, other| *one == FrameKey::AnyAddress && *other == FrameKey::AnyAddress);
        // At the end, such a frame does not tell whether there is a caller.
        keys.pop_if(|key| *key == FrameKey::AnyAddress);
        StackKey::Frames(keys.into())
    }

    /// As [`StackKey::of`], but all addresses in no file are compared, too.
    pub fn exact(id: Option<StackId>, stacks: &Frames) -> StackKey {
        let Some(id) = id else { return StackKey::Absent };
        stacks
            .get(id)
            .map_or(StackKey::Unknown, |frames| StackKey::Frames(frames.iter().map(FrameKey::exact).collect()))
    }

    /// Number of frames in the key.
    pub fn frames(&self) -> u32 {
        if let StackKey::Frames(frames) = self { frames.len() as u32 } else { 0 }
    }

    /// Approximate heap memory of the key, in bytes.
    pub fn bytes(&self) -> usize {
        let StackKey::Frames(frames) = self else { return 0 };
        let named = |frame: &FrameKey| match frame {
            FrameKey::Named(frame) => size_of::<KernelFrame>() + frame.symbol.len(),
            FrameKey::Python(frame) => frame.bytes(),
            _ => 0,
        };
        size_of_val(&frames[..]) + frames.iter().map(named).sum::<usize>()
    }
}

impl FrameKey {
    /// The key of a frame, in which an address in no file counts, too.
    pub fn exact(frame: &Frame) -> FrameKey {
        match frame {
            Frame::User { addr, place: Err(_), .. } => FrameKey::Address(*addr),
            frame => FrameKey::of(frame),
        }
    }

    fn of(frame: &Frame) -> FrameKey {
        match frame {
            Frame::Kernel { addr, .. } => FrameKey::Kernel(*addr),
            Frame::User { place: Ok((module, offset)), .. } => {
                FrameKey::File(ModuleKey(Arc::downgrade(module)), *offset)
            }
            Frame::User { place: Err(_), .. } => FrameKey::AnyAddress,
            Frame::Named(frame) => FrameKey::Named(frame.clone()),
            Frame::Python(frame) => FrameKey::Python(frame.clone()),
            Frame::Truncated(cut) => FrameKey::Truncated(*cut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Innermost;
    use crate::symbol::{Content, SpaceKeys, Stacks};

    #[test]
    fn equal_places_are_one_stack() {
        let module = |path: &str| Arc::new(Module::new(path, Content::Vdso { len: 1 }));
        let [libc, program] = [module("/libc"), module("/program")];
        let kernel = |addr| Frame::Kernel { addr, behind_call: true };
        let file = |addr, module: &Arc<Module>, offset| {
            let place = Ok((module.clone(), offset));
            Frame::User { addr, behind_call: true, guessed: false, place }
        };
        let nowhere = |addr| Frame::User { addr, behind_call: true, guessed: false, place: Err("not mapped") };
        let named = |symbol: &str, offset| {
            Frame::Named(Box::new(KernelFrame { symbol: symbol.to_owned(), offset, module: None }))
        };
        let cases = [
            (0, vec![kernel(1), file(100, &libc, 5)]),
            (0, vec![kernel(1), file(200, &libc, 5)]),
            (0, vec![kernel(1), file(200, &libc, 5), nowhere(7), nowhere(8)]),
            (1, vec![kernel(1), file(100, &program, 5)]),
            (2, vec![kernel(1), file(100, &libc, 6)]),
            (3, vec![kernel(2), file(100, &libc, 5)]),
            (4, vec![kernel(1), nowhere(7), file(100, &libc, 5)]),
            (4, vec![kernel(1), nowhere(8), nowhere(9), file(100, &libc, 5)]),
            (5, vec![kernel(1), file(100, &libc, 5), Frame::Truncated(StackCut::DepthLimit)]),
            (6, vec![named("a", 1)]),
            (6, vec![named("a", 1)]),
            (7, vec![named("a", 2)]),
            (8, vec![named("b", 1)]),
            (9, vec![]),
            (10, vec![nowhere(7)]),
            (10, vec![nowhere(7), nowhere(8)]),
            (11, vec![nowhere(8)]),
        ];
        let (mut interned, mut spaces, mut stacks) =
            (Stacks::new(1 << 20, 127), SpaceKeys::default(), Frames::default());
        let mut id = |ip| interned.intern_address(ip, false, Innermost::Executed, 1, &mut spaces);
        let mut known: Vec<(i32, StackKey)> = vec![(-1, StackKey::Absent), (-2, StackKey::Unknown)];
        for (ip, (place, frames)) in cases.into_iter().enumerate() {
            let id = id(ip as u64 + 1).unwrap();
            stacks.insert(id, frames);
            known.push((place, StackKey::of(Some(id), &stacks)));
        }
        for (place, key) in &known {
            known.iter().for_each(|(other, it)| assert_eq!(place == other, key == it, "{place} {other}"));
        }
        assert_eq!(StackKey::of(None, &stacks), StackKey::Absent);
        assert_eq!(StackKey::of(id(99), &stacks), StackKey::Unknown);
    }

    #[test]
    fn a_key_keeps_no_file_open() {
        let module = Arc::new(Module::new("/libc", Content::Vdso { len: 1 }));
        let key = ModuleKey(Arc::downgrade(&module));
        assert_eq!(Arc::strong_count(&module), 1);
        drop(module);
        assert!(key.0.upgrade().is_none() && key == key.clone());
    }
}
