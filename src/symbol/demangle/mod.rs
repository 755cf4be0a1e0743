//! Demangles names of C++ and Rust functions.
//!
//! Names come from files of other programs: a name of 90 bytes can stand for gigabytes of text, or take billions of
//! steps. So the length of a name, the steps, the nesting and the text are bounded. A name that exceeds a bound stays
//! mangled; a text that is too long is cut.

mod arguments;
mod expressions;
mod names;
mod parser;
mod print_expressions;
mod print_types;
mod printer;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod types;

use std::fmt::Write;

use parser::Parser;
use printer::{PrintStop, Printer};
use text::BoundedText;
use tree::Node;

/// Longest mangled name. Few names of compilers have 1,000 bytes; the text of a longer one is cut anyway.
const MAX_MANGLED_BYTES: usize = 16 << 10;
/// Longest v0 name of Rust, which may have back-references. `rustc_demangle` may reread the whole name for each word
/// that it writes, which takes 5 ms at this length.
const MAX_RUST_BYTES: usize = 4 << 10;

/// The demangled name with parameters. None for a name of C: without `_Z`, `f` and `St` would be types of C++.
pub fn demangled(name: &str) -> Option<String> {
    if name.starts_with("_R") {
        return demangle_rust(name, MAX_RUST_BYTES);
    }
    // Some platforms prefix every name with `_`; the name of a block has one more.
    let mangled = name.strip_prefix("_Z").or_else(|| name.strip_prefix("__Z"));
    if let Some(mangled) = mangled {
        let rust = if ends_in_hash(mangled) { demangle_rust(name, MAX_MANGLED_BYTES) } else { None };
        return rust.or_else(|| demangle_cpp(mangled, SymbolParts::All));
    }
    let block = name.strip_prefix("___Z").or_else(|| name.strip_prefix("____Z"))?;
    let (function, number) = block.rsplit_once("_block_invoke")?;
    let is_number = number.trim_start_matches('_').bytes().all(|byte| byte.is_ascii_digit());
    let function = is_number.then(|| demangle_cpp(function, SymbolParts::All))??;
    Some(cut(&format!("invocation function for block in {function}")))
}

/// True for a part of a function that the compiler has split off.
pub fn is_split_part(name: &str) -> bool {
    [".cold", ".part."].iter().any(|piece| name.contains(piece))
}

/// The name of a function in the source, without parameters, result, ABI tags and hash. None for a name of C.
pub fn function_name(name: &str) -> Option<String> {
    match name.strip_prefix("_Z").or_else(|| name.strip_prefix("__Z")) {
        Some(mangled) if !ends_in_hash(mangled) => demangle_cpp(mangled, SymbolParts::Name),
        _ => demangled(name),
    }
}

/// Parts of a function that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SymbolParts {
    All,
    Name,
}

/// True for legacy names of Rust, which differ from C++ in the hash at the end: `17h0123456789abcdefE`.
fn ends_in_hash(mangled: &str) -> bool {
    const HASH_DIGITS: usize = 16;
    let Some((_, end)) = mangled.rsplit_once("17h") else { return false };
    let (hash, end) = end.as_bytes().split_at(end.len().min(HASH_DIGITS));
    hash.iter().all(u8::is_ascii_hexdigit) && matches!(end, [b'E'] | [b'E', b'.', ..])
}

fn demangle_rust(name: &str, most_bytes: usize) -> Option<String> {
    if name.len() > most_bytes {
        return None;
    }
    let rust = rustc_demangle::try_demangle(name).ok()?;
    let mut text = BoundedText::default();
    let written = write!(text, "{rust:#}");
    (written.is_ok() || text.is_full()).then(|| text.into_string())
}

/// A name that is not mangled, cut to a readable length.
pub fn cut(name: &str) -> String {
    BoundedText::of(name)
}

/// Demangles the part behind `_Z`.
fn demangle_cpp(mangled: &str, parts: SymbolParts) -> Option<String> {
    if mangled.len() > MAX_MANGLED_BYTES {
        return None;
    }
    // The linker may have appended a version, `@@GLIBCXX_3.4`.
    let (mangled, version) = mangled.split_at(mangled.find('@').unwrap_or(mangled.len()));
    let mut parser = Parser::new(mangled);
    let mut root = match parser.symbol() {
        None if parser.is_ambiguous => {
            parser = Parser::new(mangled);
            parser.is_gcc_form = true;
            parser.symbol()
        }
        root => root,
    }?;
    let mut printer = Printer::new(&parser.tree);
    printer.is_brief = parts == SymbolParts::Name;
    while let (Node::Clone(of, _), SymbolParts::Name) = (parser.tree.node(root), parts) {
        root = of; // without the suffix of a clone
    }
    let version = if parts == SymbolParts::All { version } else { "" };
    match printer.print(root).and_then(|()| printer.push(version)) {
        Ok(()) | Err(PrintStop::Full) => Some(printer.text.into_string()),
        Err(PrintStop::Refused) => None,
    }
}
