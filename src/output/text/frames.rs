//! Frames of stacks as lines of text: a name each, or the reason why there is none. Repeated frames are counted, and
//! names of templates are shortened. JSON and the files of flame graphs have every frame and whole names.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use crate::escape::escape_into;
use crate::symbol::functions::matching::without_arguments;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::names::KERNEL;
use crate::symbol::unnamed::Unnamed;

/// Equal frames in a row that are shown. Further ones are counted.
const MAX_ALIKE: usize = 3;
/// Most characters of a name.
const MAX_NAME: usize = 120;

/// Appends the frames of a stack, a line each, with their addresses.
pub fn stack(frames: &[NamedFrame], out: &mut Vec<u8>) {
    lines(frames, frames.len(), is_again, out, |frame, out| {
        if let Some(addr) = frame.addr {
            let _ = write!(out, "{addr:016x} ");
        }
        let module = frame.module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
        match (&frame.symbol, module) {
            (Ok(symbol), Some(source)) if frame.line.is_some() => {
                escape_into(brief(symbol).as_bytes(), out);
                out.extend_from_slice(b" (");
                escape_into(source.as_bytes(), out);
                if let Some(line @ 1..) = frame.line {
                    let _ = write!(out, ":{line}");
                }
                out.push(b')');
            }
            (Ok(symbol), module) => {
                escape_into(brief(symbol).as_bytes(), out);
                if let Some(module) = module {
                    let _ = write!(out, "+{:#x} ", frame.offset);
                    push_module(module, out);
                }
            }
            // The offset of such a frame is its address, which the line has already.
            (Err(reason), Some(KERNEL)) => {
                let _ = write!(out, "{KERNEL} ({reason})");
            }
            (Err(unnamed), Some(module)) => {
                escape_into(module.as_bytes(), out);
                if let Some(start) = unnamed.function {
                    let _ = write!(out, "+{start:#x}");
                }
                let _ = write!(out, "+{:#x} ({unnamed})", frame.offset);
            }
            (Err(reason), None) => {
                let _ = write!(out, "({reason})");
            }
        }
    });
}

/// Appends the names of up to `depth` frames, without addresses: those of merged stacks differ.
pub fn names(frames: &[NamedFrame], depth: usize, out: &mut Vec<u8>) {
    let is_alike = |one: &NamedFrame, other: &NamedFrame| {
        (&one.symbol, &one.module, one.guessed) == (&other.symbol, &other.module, other.guessed)
    };
    lines(frames, depth, is_alike, out, |frame, out| {
        function(frame.symbol.as_deref().map_err(|unnamed| *unnamed), frame.module.as_deref(), out);
    });
}

/// True for a frame that repeats another: of a recursion, or in no known function for the same reason.
fn is_again(one: &NamedFrame, other: &NamedFrame) -> bool {
    let is_unknown = || one.symbol.as_ref().is_err_and(|unnamed| unnamed.function.is_none());
    (&one.symbol, &one.module, one.guessed) == (&other.symbol, &other.module, other.guessed)
        && (one.addr == other.addr || is_unknown())
}

/// Appends the frames, `depth` lines at most.
fn lines(
    frames: &[NamedFrame],
    depth: usize,
    is_alike: impl Fn(&NamedFrame, &NamedFrame) -> bool,
    out: &mut Vec<u8>,
    line: impl Fn(&NamedFrame, &mut Vec<u8>),
) {
    let mut shown = 0;
    let mut rest = frames;
    while let Some(first) = rest.first().filter(|_| shown < depth) {
        let alike = rest.iter().take_while(|frame| is_alike(first, frame)).count();
        let of_them = if alike > MAX_ALIKE + 1 { MAX_ALIKE } else { alike }.min(depth - shown);
        for frame in &rest[..of_them] {
            out.extend_from_slice(b"    ");
            line(frame, out);
            if frame.guessed {
                out.extend_from_slice(b" (guessed from here)");
            }
            out.push(b'\n');
        }
        shown += of_them;
        let is_folded = of_them == MAX_ALIKE && alike > MAX_ALIKE + 1;
        if is_folded {
            let _ = writeln!(out, "    ... {} more like it", alike - of_them);
        }
        rest = &rest[if is_folded { alike } else { of_them }..];
    }
    if !rest.is_empty() {
        let _ = writeln!(out, "    ... {} more", rest.len());
    }
}

/// The place of an address: `function+0x1a file`.
pub fn place(frame: &NamedFrame) -> Arc<str> {
    let module = frame.module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let function = match (&frame.symbol, module) {
        (Ok(symbol), _) => format!("{symbol}+{:#x}", frame.offset),
        (Err(Unnamed { reason, function: Some(start) }), Some(module)) => {
            return format!("{module}+{start:#x}+{:#x} ({reason})", frame.offset).into();
        }
        (Err(unnamed), _) => format!("({unnamed})"),
    };
    module.map_or_else(|| function.as_str().into(), |module| format!("{function} {module}").into())
}

/// Appends a function without an address: its name, or the reason why it has none, and its module. One that is known by its
/// start is `module+0x5c78`, with the reason.
pub fn function(name: Result<&str, Unnamed>, module: Option<&str>, out: &mut Vec<u8>) {
    let module = module.map(|path| path.rsplit('/').next().unwrap_or(path));
    match (name, module) {
        (Ok(symbol), _) => escape_into(brief(symbol).as_bytes(), out),
        (Err(Unnamed { reason, function: Some(start) }), Some(module)) => {
            escape_into(module.as_bytes(), out);
            let _ = write!(out, "+{start:#x} ({reason})");
            return;
        }
        (Err(unnamed), _) => drop(write!(out, "({unnamed})")),
    }
    if let Some(module) = module {
        out.push(b' ');
        push_module(module, out);
    }
}

fn push_module(module: &str, out: &mut Vec<u8>) {
    if module.starts_with('[') {
        escape_into(module.as_bytes(), out);
    } else {
        out.push(b'(');
        escape_into(module.as_bytes(), out);
        out.push(b')');
    }
}

/// The name, without template arguments if it is long, and without its middle if it still is.
pub fn brief(name: &str) -> Cow<'_, str> {
    const MARK: &str = "...";
    if name.len() <= MAX_NAME || name.chars().count() <= MAX_NAME {
        return name.into();
    }
    let short = without_arguments(name).unwrap_or_else(|| name.to_owned());
    let len = short.chars().count();
    if len <= MAX_NAME {
        return short.into();
    }
    let kept = (MAX_NAME - MARK.len()) / 2;
    let head = short.chars().take(kept);
    head.chain(MARK.chars()).chain(short.chars().skip(len - kept)).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(addr: u64, symbol: Result<&str, &'static str>, module: Option<&str>) -> NamedFrame {
        let frame = NamedFrame::new(symbol.map(Into::into).map_err(Into::into), 16, module.map(Into::into));
        NamedFrame { addr: Some(addr), ..frame }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn stacks_name_modules_and_reasons() {
        let frames = [
            named(0x7f00, Ok("main"), Some("/usr/bin/prog")),
            named(0x7f00, Err("stripped"), Some("/lib/x.so")),
            named(0x7f00, Ok("schedule"), Some(KERNEL)),
            NamedFrame::new(Ok("[truncated]".into()), 0, None),
        ];
        let want = "    0000000000007f00 main+0x10 (prog)\n    0000000000007f00 x.so+0x10 (stripped)\n    \
                    0000000000007f00 schedule+0x10 [kernel]\n    [truncated]\n";
        assert_eq!(text(|out| stack(&frames, out)), want);
    }

    #[test]
    fn functions_without_a_name_are_told_apart() {
        let at = |addr, start| NamedFrame {
            symbol: Err(Unnamed { reason: "stripped", function: Some(start) }),
            ..named(addr, Ok(""), Some("/bin/gzip"))
        };
        let frames = [at(1, 0x5c78), at(2, 0x5c78), at(2, 0x6000)];
        let want = "    0000000000000001 gzip+0x5c78+0x10 (stripped)\n    0000000000000002 gzip+0x5c78+0x10 (stripped)\n    \
                    0000000000000002 gzip+0x6000+0x10 (stripped)\n";
        assert_eq!(text(|out| stack(&frames, out)), want);
        let want = "    gzip+0x5c78 (stripped)\n    gzip+0x5c78 (stripped)\n    ... 1 more\n";
        assert_eq!(text(|out| names(&frames, 2, out)), want);
        assert_eq!(&*place(&frames[0]), "gzip+0x5c78+0x10 (stripped)");
        let shown = |frames: &[NamedFrame]| text(|out| stack(frames, out)).lines().count();
        let (recursion, calls): (Vec<_>, Vec<_>) = (0..6).map(|addr| (at(1, 0x5c78), at(addr, 0x5c78))).unzip();
        assert_eq!((shown(&recursion), shown(&calls)), (4, 6), "calls from elsewhere are told apart");
    }

    #[test]
    fn repeated_frames_are_counted() {
        let unnamed = |addr| named(addr, Err("jit-no-map"), Some("//anon"));
        let mut frames: Vec<NamedFrame> = (0..104).map(unnamed).collect();
        frames.push(named(1, Ok("main"), None));
        let lines =
            |frames: &[NamedFrame]| text(|out| stack(frames, out)).lines().map(str::to_owned).collect::<Vec<_>>();
        let shown = lines(&frames);
        assert_eq!(shown.len(), 5, "{shown:?}");
        assert_eq!(shown[3], "    ... 101 more like it");
        assert!(shown[4].ends_with("main"), "{shown:?}");
        assert_eq!(lines(&frames[..4]).len(), 4, "one more line says as much");
        let recursion: Vec<NamedFrame> = [7, 7, 7, 7, 7, 8].map(|addr| named(addr, Ok("f"), None)).into();
        assert_eq!(lines(&recursion).len(), 5, "calls from elsewhere are told apart");
        let only_names = text(|out| names(&recursion, 10, out));
        assert_eq!(only_names.lines().count(), 4, "{only_names}");
        assert_eq!(text(|out| names(&frames, 2, out)).lines().last(), Some("    ... 103 more"));
    }

    #[test]
    fn long_names_lose_their_arguments() {
        let args = "std::pair<int, long>, ".repeat(10);
        let cases = [
            ("short<int>(x)".to_owned(), "short<int>(x)".to_owned()),
            (format!("std::map<{args}int>::find(int)"), "std::map<...>::find(int)".to_owned()),
            (format!("std::map<{args}int>::operator<< <x>(int)"), "std::map<...>::operator<< <...>(int)".to_owned()),
            (format!("f<{args}int>::operator->()"), "f<...>::operator->()".to_owned()),
            (format!("f<{args}int>::operator<=>()"), "f<...>::operator<=>()".to_owned()),
            (format!("<a::B<{args}int> as c::D<e>>::f::<g>"), "<a::B<...> as c::D<...>>::f::<...>".to_owned()),
        ];
        for (name, want) in cases {
            assert_eq!(brief(&name), want);
        }
        for name in ["x".repeat(500), format!("a<{}", "b".repeat(500)), "ä>".repeat(300)] {
            let short = brief(&name);
            assert!(short.chars().count() <= MAX_NAME && short.contains("..."), "{short}");
        }
    }
}
