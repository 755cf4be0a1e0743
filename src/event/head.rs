//! The HEAD of a selector, as the grammar in `selector` has it: which event it names.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::part::{SelectorFault, SelectorPart};
use crate::glob::is_glob;

pub const EVENT_FORM: &str = "write SYSTEM:NAME, as in sched:sched_switch";

/// The parsed HEAD of the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorHead {
    Tracepoint {
        system: String,
        name: String,
    },
    /// A name without a system: a tracepoint, a system call or a counter.
    Bare(String),
    Kprobe(ProbePoint),
    /// A function, and the path of the program. Without a path the function is looked up in the files that the target
    /// has mapped.
    Uprobe(ProbePoint, Option<String>),
}

/// The PLACE of the grammar: a function, and an offset or the return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePoint {
    pub function: String,
    /// Bytes from the start of the function. 0 for a probe at its return.
    pub offset: u64,
    /// True for a probe at the return of the function.
    pub ret: bool,
}

impl ProbePoint {
    /// True when the name is a pattern of functions. A `[` alone is part of names: `operator[]`.
    pub fn is_pattern(&self) -> bool {
        self.function.contains(['*', '?'])
    }
}

impl SelectorHead {
    /// The same uprobe at another function.
    pub fn at_function(&self, function: &str) -> SelectorHead {
        let mut head = self.clone();
        if let SelectorHead::Uprobe(place, _) = &mut head {
            function.clone_into(&mut place.function);
        }
        head
    }

    /// The texts before and after the colon of `uretprobe:malloc@"/lib/libc.so.6"`. Without a colon the first is empty.
    pub fn parts(&self) -> (String, String) {
        let kind = |letter: char, place: &ProbePoint| format!("{letter}{}probe", if place.ret { "ret" } else { "" });
        match self {
            SelectorHead::Tracepoint { system, name } => (system.clone(), name.clone()),
            SelectorHead::Bare(name) => (String::new(), name.clone()),
            SelectorHead::Kprobe(place) => (kind('k', place), place.to_string()),
            SelectorHead::Uprobe(place, None) => (kind('u', place), place.to_string()),
            SelectorHead::Uprobe(place, Some(path)) => (kind('u', place), format!("{place}@\"{path}\"")),
        }
    }
}

/// Prints the HEAD without quotes that the user typed: `sched:sched_switch`, `uprobe:main@"/bin/true"`.
impl fmt::Display for SelectorHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (kind, name) if kind.is_empty() => f.write_str(&name),
            (kind, name) => write!(f, "{kind}:{name}"),
        }
    }
}

/// Prints the PLACE as a user types it: `vfs_read+0x10`.
impl fmt::Display for ProbePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => f.write_str(&self.function),
            offset => write!(f, "{}+{offset:#x}", self.function),
        }
    }
}

/// Parses the HEAD.
pub fn head(part: SelectorPart<'_>) -> Result<SelectorHead, SelectorFault> {
    let part = part.trim().unquote().trim();
    let Some((kind, name)) = part.cut(':') else {
        return unqualified(part);
    };
    let (kind, name) = (kind.trim().unquote(), name.trim());
    match kind.text {
        "kprobe" | "kretprobe" => {
            let name = name.unquote();
            let place = probe_point(name, kind.text == "kretprobe", "kprobe:vfs_read")?;
            // Other characters are refused, since the name becomes part of a line that the kernel parses.
            match place.function.find(|c: char| !c.is_ascii_alphanumeric() && !"_.:$".contains(c)) {
                Some(at) => name.from(at).fault("no kernel function has this in its name, write as in kprobe:vfs_read"),
                None => Ok(SelectorHead::Kprobe(place)),
            }
        }
        "uprobe" | "uretprobe" => {
            let (example, ret) = ("uprobe:main@\"/bin/true\"", kind.text == "uretprobe");
            let Some((name, path)) = name.cut('@') else {
                return Ok(SelectorHead::Uprobe(in_program(name.unquote(), ret, example)?, None));
            };
            let path = path.trim().unquote();
            if path.text.is_empty() {
                return path.fault(format!("the file is missing, or its path not quoted, as in {example}"));
            }
            if path.text.contains('\0') {
                return path.fault("no path has a NUL byte in it");
            }
            Ok(SelectorHead::Uprobe(in_program(name.trim().unquote(), ret, example)?, Some(path.text.to_owned())))
        }
        _ => Ok(SelectorHead::Tracepoint { system: file_name(kind)?, name: file_name(name.unquote())? }),
    }
}

/// Parses a name without a system.
fn unqualified(part: SelectorPart<'_>) -> Result<SelectorHead, SelectorFault> {
    match file_name(part) {
        Ok(pattern) if is_glob(&pattern) => {
            part.fault(format!("`{pattern}` is not an event, {EVENT_FORM}, or *:{pattern}"))
        }
        Ok(name) => Ok(SelectorHead::Bare(name)),
        Err(_) => part.fault(format!("`{}` is not an event, {EVENT_FORM}", part.text)),
    }
}

/// Parses a function of a program, whose name may be a pattern.
fn in_program(part: SelectorPart<'_>, ret: bool, example: &str) -> Result<ProbePoint, SelectorFault> {
    let part = part.trim();
    let mut place = probe_point(part, ret, example)?;
    place.function.truncate(place.function.trim_end().len()); // before an offset
    if place.is_pattern() && place.offset > 0 {
        return part.fault("an offset is one into a single function: name it");
    }
    Ok(place)
}

/// Parses a function with its offset. Whether the function exists is checked later, by the kernel or in a symbol table.
fn probe_point(part: SelectorPart<'_>, ret: bool, example: &str) -> Result<ProbePoint, SelectorFault> {
    let is_kernel = example.starts_with("kprobe:");
    // Functions of programs may have blanks in their names: `<a as b>::c`, `operator new`.
    if let Some(at) = part.text.find(|c: char| is_kernel && c == ' ' || c != ' ' && c.is_whitespace() || c.is_control())
    {
        return part.from(at).fault(format!("not a function name, write as in {example}"));
    }
    let (name, offset) = match part.text.rfind('+').filter(|&at| is_offset(part.text, at)) {
        Some(at) => (&part.text[..at], part.from(at + 1)),
        None => (part.text, part.end()),
    };
    if name.is_empty() {
        return part.fault(format!("the function is missing, as in {example}"));
    }
    let bytes = match offset.text.strip_prefix("0x") {
        _ if offset.text.is_empty() => Ok(0),
        Some(hex) => u64::from_str_radix(hex, 16),
        None => offset.text.parse(),
    };
    match bytes {
        Ok(0) => Ok(ProbePoint { function: name.to_owned(), offset: 0, ret }),
        Ok(_) if ret => offset.fault("a function returns as a whole: no offset here"),
        Ok(offset) => Ok(ProbePoint { function: name.to_owned(), offset, ret }),
        Err(_) => offset.fault("the offset is a number of bytes, as in vfs_read+0x10"),
    }
}

/// A `+` may also be part of a C++ name: `operator+(int)`, `operator++`.
fn is_offset(text: &str, plus: usize) -> bool {
    text[plus + 1..].starts_with(|c: char| c.is_ascii_digit())
}

/// The system or the name of a tracepoint. It becomes part of a path below tracefs, so it must not lead elsewhere.
fn file_name(part: SelectorPart<'_>) -> Result<String, SelectorFault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.*?[]!^".contains(c);
    match part.text.find(|c: char| !allowed(c)) {
        _ if matches!(part.text, "" | "." | "..") => part.fault(format!("a name is missing, {EVENT_FORM}")),
        Some(at) => part.from(at).fault(format!("unexpected character in an event name, {EVENT_FORM}")),
        None => Ok(part.text.to_owned()),
    }
}
