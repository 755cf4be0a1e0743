//! Quality of callchains: whether they lead to the function that started their thread. Callchains follow frame
//! pointers, so they break off at code that was compiled without them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::symbol::mappings::Module;
use crate::symbol::names::FrameNames;
use crate::symbol::stacks::Frame;

/// Whether a callchain is whole, and where it breaks off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallchainQuality {
    Good,
    /// The chain ends in the C library or the loader, and has no frame in other user code.
    BrokenLibc(Arc<str>),
    /// The chain ends halfway elsewhere; in this module, if any frame is in one.
    Broken(Option<Arc<str>>),
    /// The depth limit cut it.
    Truncated,
    /// The chain has no address.
    Empty,
}

impl CallchainQuality {
    /// The quality of a stack by its frames.
    pub fn of(frames: &[Frame], names: &mut FrameNames) -> CallchainQuality {
        let Some(outermost) = frames.last() else { return CallchainQuality::Empty };
        if matches!(outermost, Frame::Truncated(_)) {
            return CallchainQuality::Truncated;
        }
        let modules: Vec<&Arc<Module>> = frames.iter().filter_map(module).collect();
        let is_libc = !modules.is_empty() && modules.iter().all(|module| is_libc(module.name()));
        let broken = matches!(outermost, Frame::User { .. }) && !starts_thread(frames, names);
        match modules.last().map(|module| module.path.clone()) {
            _ if !broken => CallchainQuality::Good,
            Some(path) if is_libc => CallchainQuality::BrokenLibc(path),
            path => CallchainQuality::Broken(path),
        }
    }
}

/// True for a stack that reaches the start of a program or thread: its outermost frame lies in the entry function of
/// its file or in a function that starts threads, or has called `main`. Names do not suffice: the C library is mostly
/// stripped.
fn starts_thread(frames: &[Frame], names: &mut FrameNames) -> bool {
    let [inner @ .., outermost] = frames else { return false };
    let Frame::User { place: Ok((module, offset)), behind_call, .. } = outermost else { return false };
    let named = names.frame(outermost);
    named.symbol.as_deref().is_ok_and(is_thread_start)
        || names.is_entry(module, &named, offset + u64::from(*behind_call))
        || inner.last().is_some_and(|inner| names.frame(inner).symbol.as_deref() == Ok("main"))
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

/// Numbers of callchains of a run, by quality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QualityCounts {
    pub good: u64,
    pub broken_libc: u64,
    pub broken: u64,
    pub truncated: u64,
    pub empty: u64,
    /// Broken callchains by the module in which they end.
    places: FxHashMap<Arc<str>, u64>,
}

impl QualityCounts {
    /// Adds a stack that was sampled `taken` times.
    pub fn add(&mut self, quality: CallchainQuality, taken: u64) {
        let (sum, place) = match quality {
            CallchainQuality::Good => (&mut self.good, None),
            CallchainQuality::BrokenLibc(path) => (&mut self.broken_libc, Some(path)),
            CallchainQuality::Broken(path) => (&mut self.broken, path),
            CallchainQuality::Truncated => (&mut self.truncated, None),
            CallchainQuality::Empty => (&mut self.empty, None),
        };
        *sum += taken;
        if let Some(path) = place {
            *self.places.entry(path).or_default() += taken;
        }
    }

    pub fn total(&self) -> u64 {
        self.good + self.broken_libc + self.broken + self.truncated + self.empty
    }

    /// For `-v`: the shares, and what breaks most stacks.
    pub fn describe(&self) -> Vec<String> {
        const MOST: usize = 3;
        let total = self.total();
        if total == 0 {
            return Vec::new();
        }
        let pct = |count: u64| format!("{:.1} %", count as f64 * 100.0 / total as f64);
        let mut lines = vec![format!(
            "stacks: {total} taken: {} good, {} broken at libc, {} broken elsewhere, {} truncated, {} empty",
            pct(self.good),
            pct(self.broken_libc),
            pct(self.broken),
            pct(self.truncated),
            pct(self.empty),
        )];
        let mut places: Vec<(&Arc<str>, &u64)> = self.places.iter().collect();
        places.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        lines.extend(places.into_iter().take(MOST).map(|(path, count)| {
            format!(
                "stacks: {count} end in mid-way in {path}; built with -fno-omit-frame-pointer it would not cut them"
            )
        }));
        if self.truncated > 0 {
            lines.push(format!(
                "stacks: {} are cut at the depth limit; a larger max-stack=, or kernel.perf_event_max_stack, keeps them whole",
                self.truncated
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::elf::SymbolOptions;
    use crate::symbol::files::EXITED;
    use crate::symbol::mappings::Content;
    use crate::symbol::perf_map_file::JIT_NO_MAP;
    use crate::symbol::spaces::{NO_ADDRESS, NOT_MAPPED};
    use crate::symbol::stacks::StackCut;

    fn user(path: &str) -> Frame {
        let content = Content::Unnamed { reason: JIT_NO_MAP, map: None };
        Frame::User { addr: 7, behind_call: true, place: Ok((Arc::new(Module::new(path, content)), 3)) }
    }

    fn kernel(addr: u64) -> Frame {
        Frame::Kernel { addr, behind_call: false }
    }

    fn nowhere(reason: crate::symbol::files::UnnamedReason) -> Frame {
        Frame::User { addr: 7, behind_call: true, place: Err(reason) }
    }

    #[test]
    fn a_chain_is_good_when_it_reaches_the_start_of_a_thread() {
        const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Default::default() };
        let mut names = FrameNames::new("/nonexistent", options);
        let at_libc = || CallchainQuality::BrokenLibc(LIBC.into());
        let cases: [(Vec<Frame>, CallchainQuality); 12] = [
            (vec![], CallchainQuality::Empty),
            (vec![kernel(1), kernel(2)], CallchainQuality::Good),
            (vec![kernel(1), user("/a"), user("/a")], CallchainQuality::Broken(Some("/a".into()))),
            (vec![user("/a"), user("/a"), Frame::Truncated(StackCut::DepthLimit)], CallchainQuality::Truncated),
            (vec![kernel(1), user("/a")], CallchainQuality::Broken(Some("/a".into()))),
            (vec![kernel(1), user(LIBC)], at_libc()),
            (vec![user(LIBC), user("/lib64/ld-linux-x86-64.so.2"), user(LIBC)], at_libc()),
            (vec![user(LIBC), nowhere(NO_ADDRESS)], at_libc()),
            (vec![user(LIBC), user("/a"), user(LIBC)], CallchainQuality::Broken(Some(LIBC.into()))),
            (vec![user("/a"), user("/b"), nowhere(NOT_MAPPED)], CallchainQuality::Broken(Some("/b".into()))),
            (vec![nowhere(NO_ADDRESS)], CallchainQuality::Broken(None)),
            (vec![user("/a"), nowhere(EXITED)], CallchainQuality::Broken(Some("/a".into()))),
        ];
        for (frames, want) in cases {
            assert_eq!(CallchainQuality::of(&frames, &mut names), want, "{frames:?}");
        }
        for symbol in ["_start", "clone3", "__libc_start_main@@GLIBC_2.34", "__libc_start_main_impl"] {
            assert!(is_thread_start(symbol), "{symbol}");
        }
        assert!(!is_thread_start("main") && !is_thread_start("clone_it"));
    }

    #[test]
    fn describes_shares_and_modules() {
        let mut stacks = QualityCounts::default();
        assert!(stacks.describe().is_empty());
        for (quality, taken) in [
            (CallchainQuality::Good, 50),
            (CallchainQuality::BrokenLibc("/l/libc.so.6".into()), 20),
            (CallchainQuality::Broken(Some("/b".into())), 5),
            (CallchainQuality::Broken(Some("/b".into())), 4),
            (CallchainQuality::Broken(None), 1),
            (CallchainQuality::Truncated, 12),
            (CallchainQuality::Empty, 8),
        ] {
            stacks.add(quality, taken);
        }
        let lines = stacks.describe();
        let shares = "50.0 % good, 20.0 % broken at libc, 10.0 % broken elsewhere, 12.0 % truncated, 8.0 % empty";
        assert_eq!(lines[0], format!("stacks: 100 taken: {shares}"));
        assert!(lines[1].contains("20 end in mid-way in /l/libc.so.6") && lines[2].contains("9 end in mid-way in /b"));
        assert!(lines[3].contains("12 are cut") && lines.len() == 4, "{lines:?}");
    }
}
