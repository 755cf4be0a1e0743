//! Quality of callchains: whether they lead to the function that started their thread.
//!
//! A callchain that was found by unwind tables says so itself. A callchain that follows frame pointers breaks off at
//! code that was compiled without them; the names of its frames tell whether it did.

use std::sync::Arc;

use crate::perf::record::UserPart;
use crate::symbol::naming::names::FrameNames;
use crate::symbol::spaces::module::Module;
use crate::symbol::stacks::frame::{Frame, StackCut};
use crate::unwind::CodeKind;

/// Whether a callchain is whole, and where it ends if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallchainQuality {
    Good,
    /// The chain reaches the start of its thread only by an unproven frame pointer.
    Guessed,
    /// The chain ends in the C library or the loader, and has no frame in other user code.
    BrokenLibc(BreakPlace),
    /// The chain ends halfway elsewhere.
    Broken(BreakPlace),
    Truncated(ChainLimit),
    /// The chain has no address.
    Empty,
    /// There was no time for the names that decide.
    Unjudged,
}

/// The limit that cut a callchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainLimit {
    /// The limit of addresses of the kernel, or of the event.
    Depth,
    /// The limit of frames that the unwinder follows.
    UnwoundFrames,
    /// The size of the copy of the stack, in KiB.
    Window { kib: u8 },
}

/// Where a callchain breaks off: in this module, if any frame is in one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BreakPlace {
    pub path: Option<Arc<str>>,
    pub cause: BreakCause,
}

/// Why a callchain breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakCause {
    /// The code keeps no frame pointers, and the chain was found by them alone.
    NoFramePointers,
    /// The code was made at run time, without frame pointers and without tables.
    MadeAtRunTime,
    /// No unwind table covers the code.
    NoTables,
    /// A return probe has taken the place of the return address.
    ReturnProbe,
    /// The task was within exec: its program was gone, and the next one had not begun.
    InExec,
}

impl CallchainQuality {
    /// The quality of a stack, from its frames and from how its user part was found.
    pub fn of(frames: &[Frame], user: UserPart, names: &mut FrameNames) -> CallchainQuality {
        let Some(outermost) = frames.last() else { return CallchainQuality::Empty };
        if let Frame::Truncated(cut) = outermost {
            return CallchainQuality::Truncated(match cut {
                StackCut::Window { kib } => ChainLimit::Window { kib: *kib },
                StackCut::DepthLimit if user == UserPart::TooDeep => ChainLimit::UnwoundFrames,
                StackCut::DepthLimit => ChainLimit::Depth,
            });
        }
        let is_broken = match user {
            UserPart::Whole => false,
            UserPart::Guessed => return CallchainQuality::Guessed,
            UserPart::Broken => true,
            _ if !matches!(outermost, Frame::User { .. }) => false,
            _ => match starts_thread(frames, names) {
                Some(starts) => !starts,
                None => return CallchainQuality::Unjudged,
            },
        };
        if !is_broken {
            return CallchainQuality::Good;
        }
        let modules: Vec<&Arc<Module>> = frames.iter().filter_map(module).collect();
        let last = modules.last();
        if is_in_exec(frames, names) {
            return CallchainQuality::Broken(BreakPlace { path: None, cause: BreakCause::InExec });
        }
        let cause = match user {
            _ if last.is_some_and(|module| module.code.kind() == CodeKind::Anonymous) => BreakCause::MadeAtRunTime,
            _ if last.is_some_and(|module| module.code.kind() == CodeKind::Trampoline) => BreakCause::ReturnProbe,
            UserPart::Broken => BreakCause::NoTables,
            _ => BreakCause::NoFramePointers,
        };
        let place = BreakPlace { path: last.map(|module| module.path_from_here()), cause };
        match !modules.is_empty() && modules.iter().all(|module| is_libc(module.name())) {
            true => CallchainQuality::BrokenLibc(place),
            false => CallchainQuality::Broken(place),
        }
    }
}

/// True for a stack that reaches the start of a program or thread: its outermost frame lies in the entry function of
/// its file or in a function that starts threads, or has called `main`. Names do not suffice: the C library is mostly
/// stripped. None: there was no time for the names.
fn starts_thread(frames: &[Frame], names: &mut FrameNames) -> Option<bool> {
    let [inner @ .., outermost] = frames else { return Some(false) };
    let Frame::User { place: Ok((module, offset)), behind_call, .. } = outermost else { return Some(false) };
    let named = names.frame(outermost);
    if named.symbol.as_deref().is_ok_and(is_thread_start)
        || names.is_entry(module, &named, offset + u64::from(*behind_call))
    {
        return Some(true);
    }
    let caller = inner.last().map(|inner| names.frame(inner));
    let is_given_up = named.is_given_up() || caller.as_ref().is_some_and(|caller| caller.is_given_up());
    (!is_given_up).then(|| caller.is_some_and(|caller| caller.symbol.as_deref() == Ok("main")))
}

/// True where the kernel executes another program, in which the registers and mappings are no longer of one program.
fn is_in_exec(frames: &[Frame], names: &mut FrameNames) -> bool {
    const NAMES: [&str; 3] = ["bprm_execve", "exec_binprm", "__do_execve_file"]; // fs/exec.c
    let kernel = frames.iter().take_while(|frame| matches!(frame, Frame::Kernel { .. } | Frame::Named(_)));
    // Compilers name parts and copies of a function `NAME.part.0`.
    kernel.into_iter().any(|frame| {
        names.frame(frame).symbol.is_ok_and(|name| name.split('.').next().is_some_and(|name| NAMES.contains(&name)))
    })
}

fn module(frame: &Frame) -> Option<&Arc<Module>> {
    match frame {
        Frame::User { place: Ok((module, _)), .. } => Some(module),
        _ => None,
    }
}

/// True for the C library, its parts, and the loader, of glibc and musl.
fn is_libc(name: &str) -> bool {
    const NAMES: [&str; 7] = ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", "ld-musl", "ld.so"];
    NAMES.iter().any(|start| name.starts_with(start)) || name.starts_with("libc.musl")
}

/// True for functions that have no caller.
fn is_thread_start(symbol: &str) -> bool {
    const NAMES: [&str; 14] = [
        "_rt0_amd64_linux",
        "_start",
        "_dl_start",
        "_dl_start_user",
        "__libc_start_main",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "__clone",
        "clone3",
        "__clone3",
        "runtime.goexit",
        "runtime.mstart",
        "runtime.rt0_go",
    ];
    let plain = symbol.split('@').next().unwrap_or(symbol);
    let plain = plain.strip_suffix(".abi0").unwrap_or(plain); // Go's
    NAMES.contains(&plain) || plain.starts_with("__libc_start_main")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::CurrentStep;
    use crate::symbol::elf::file::in_memory;
    use crate::symbol::elf::symbols::SymbolOptions;
    use crate::symbol::elf::vdso::own_vdso;
    use crate::symbol::spaces::module::Content;
    use crate::symbol::unnamed::{EXITED, JIT_NO_MAP, NO_ADDRESS, NOT_MAPPED};
    use crate::task::procfs::KernelFrame;

    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

    fn user(path: &str) -> Frame {
        let reason = if path == "//anon" { JIT_NO_MAP } else { "a test" };
        let content = Content::Unnamed { reason, map: None };
        Frame::User { addr: 7, behind_call: true, guessed: false, place: Ok((Arc::new(Module::new(path, content)), 3)) }
    }

    fn kernel(addr: u64) -> Frame {
        Frame::Kernel { addr, behind_call: false }
    }

    fn in_kernel(symbol: &str) -> Frame {
        Frame::Named(Box::new(KernelFrame { symbol: symbol.to_owned(), offset: 1, module: None }))
    }

    fn nowhere(reason: crate::symbol::unnamed::UnnamedReason) -> Frame {
        Frame::User { addr: 7, behind_call: true, guessed: false, place: Err(reason) }
    }

    fn names(step: &CurrentStep) -> FrameNames {
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        FrameNames::observed("/nonexistent", options, step.clone())
    }

    fn place(path: Option<&str>, cause: BreakCause) -> BreakPlace {
        BreakPlace { path: path.map(Into::into), cause }
    }

    #[test]
    fn a_chain_is_good_when_it_reaches_the_start_of_a_thread() {
        use BreakCause::NoFramePointers;
        let mut names = names(&CurrentStep::default());
        let at_libc = || CallchainQuality::BrokenLibc(place(Some(LIBC), NoFramePointers));
        let broken = |path| CallchainQuality::Broken(place(path, NoFramePointers));
        let cases: [(Vec<Frame>, CallchainQuality); 13] = [
            (vec![], CallchainQuality::Empty),
            (vec![kernel(1), kernel(2)], CallchainQuality::Good),
            (vec![kernel(1), user("/a"), user("/a")], broken(Some("/a"))),
            (
                vec![user("/a"), user("/a"), Frame::Truncated(StackCut::DepthLimit)],
                CallchainQuality::Truncated(ChainLimit::Depth),
            ),
            (vec![kernel(1), user("/a")], broken(Some("/a"))),
            (vec![kernel(1), user(LIBC)], at_libc()),
            (vec![user(LIBC), user("/lib64/ld-linux-x86-64.so.2"), user(LIBC)], at_libc()),
            (vec![user(LIBC), nowhere(NO_ADDRESS)], at_libc()),
            (vec![user(LIBC), user("/a"), user(LIBC)], broken(Some(LIBC))),
            (vec![user("/a"), user("/b"), nowhere(NOT_MAPPED)], broken(Some("/b"))),
            (vec![nowhere(NO_ADDRESS)], broken(None)),
            (vec![user("/a"), nowhere(EXITED)], broken(Some("/a"))),
            (
                vec![user("/a"), user("//anon")],
                CallchainQuality::Broken(place(Some("//anon"), BreakCause::MadeAtRunTime)),
            ),
        ];
        for (frames, want) in cases {
            assert_eq!(CallchainQuality::of(&frames, UserPart::FramePointers, &mut names), want, "{frames:?}");
        }
        for symbol in ["_start", "clone3", "__libc_start_main@@GLIBC_2.34", "__libc_start_main_impl"] {
            assert!(is_thread_start(symbol), "{symbol}");
        }
        assert!(!is_thread_start("main") && !is_thread_start("clone_it"));
    }

    /// An unwound chain needs no names.
    #[test]
    fn an_unwound_chain_is_what_its_unwinder_says() {
        let mut names = names(&CurrentStep::default());
        let cut = |cut| vec![user("/a"), Frame::Truncated(cut)];
        let broken = |path, cause| CallchainQuality::Broken(place(path, cause));
        let window = UserPart::Truncated { kib: 8 };
        let cases = [
            (UserPart::Whole, vec![user("/a"), user(LIBC)], CallchainQuality::Good),
            (UserPart::Whole, vec![kernel(1)], CallchainQuality::Good),
            (UserPart::Guessed, vec![user("/a")], CallchainQuality::Guessed),
            (UserPart::Broken, vec![user(LIBC), user("/a")], broken(Some("/a"), BreakCause::NoTables)),
            (UserPart::Broken, vec![user("/a"), user("//anon")], broken(Some("//anon"), BreakCause::MadeAtRunTime)),
            (UserPart::Broken, vec![nowhere(NOT_MAPPED)], broken(None, BreakCause::NoTables)),
            (UserPart::Broken, vec![user(LIBC)], CallchainQuality::BrokenLibc(place(Some(LIBC), BreakCause::NoTables))),
            (window, cut(StackCut::Window { kib: 8 }), CallchainQuality::Truncated(ChainLimit::Window { kib: 8 })),
            (UserPart::TooDeep, cut(StackCut::DepthLimit), CallchainQuality::Truncated(ChainLimit::UnwoundFrames)),
            (UserPart::Whole, cut(StackCut::DepthLimit), CallchainQuality::Truncated(ChainLimit::Depth)),
            (UserPart::Broken, vec![in_kernel("bprm_execve.part.0"), user("/a")], broken(None, BreakCause::InExec)),
            (UserPart::Broken, vec![in_kernel("vfs_read"), user("/a")], broken(Some("/a"), BreakCause::NoTables)),
            (UserPart::Whole, vec![in_kernel("bprm_execve"), user("/a")], CallchainQuality::Good),
        ];
        for (part, frames, want) in cases {
            assert_eq!(CallchainQuality::of(&frames, part, &mut names), want, "{part:?} {frames:?}");
        }
    }

    #[test]
    fn what_there_is_no_time_to_name_is_not_called_broken() {
        let file = in_memory(&mut own_vdso().expect("every process has one").as_slice()).unwrap();
        let module = Arc::new(Module::new("/a", Content::File(file)));
        module.used_by(0);
        let frames = [64, 128].map(|addr| Frame::User {
            addr,
            behind_call: true,
            guessed: false,
            place: Ok((module.clone(), addr)),
        });
        let step = CurrentStep::default();
        let mut names = names(&step);
        step.set_hurry();
        let mut quality = |part| CallchainQuality::of(&frames, part, &mut names);
        assert_eq!(quality(UserPart::FramePointers), CallchainQuality::Unjudged);
        assert_eq!(quality(UserPart::Whole), CallchainQuality::Good, "needs none");
        step.end_hurry();
        assert!(matches!(quality(UserPart::FramePointers), CallchainQuality::Broken(_)));
    }
}
