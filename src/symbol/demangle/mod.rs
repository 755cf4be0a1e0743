//! Names of C++ and Rust functions as their sources call them.
//!
//! The names are those of files that anybody may have written: one of 90 bytes can stand for gigabytes, or ask for as
//! many steps. So a name, the steps that it takes, its nesting and its text are bounded; one that exceeds a bound stays
//! mangled, but for its text, which is cut.

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
use printer::{Printer, Stop};
use text::Text;
use tree::Node;

/// Of a mangled name. Few that compilers make have 1,000, and such a text is cut long before this.
const MOST_MANGLED_BYTES: usize = 16 << 10;
/// Of one of Rust that may refer back. `rustc_demangle` reads up to all of it again for each word that it writes, 5 ms.
const MOST_RUST_BYTES: usize = 4 << 10;

/// A function as its source calls it. None for one of C: `f` and `St` would be types of C++ without their `_Z`.
pub fn demangled(name: &str) -> Option<String> {
    if name.starts_with("_R") {
        return of_rust(name, MOST_RUST_BYTES);
    }
    // Some platforms put a `_` before every name; blocks of a function have one more.
    let mangled = name.strip_prefix("_Z").or_else(|| name.strip_prefix("__Z"));
    if let Some(mangled) = mangled {
        let rust = if ends_in_hash(mangled) { of_rust(name, MOST_MANGLED_BYTES) } else { None };
        return rust.or_else(|| of_cpp(mangled, Parts::All));
    }
    let block = name.strip_prefix("___Z").or_else(|| name.strip_prefix("____Z"))?;
    let (function, number) = block.rsplit_once("_block_invoke")?;
    let is_number = number.trim_start_matches('_').bytes().all(|byte| byte.is_ascii_digit());
    let function = is_number.then(|| of_cpp(function, Parts::All))??;
    Some(cut(&format!("invocation function for block in {function}")))
}

/// A piece of a function that a compiler has made a symbol of.
pub fn is_split_part(name: &str) -> bool {
    [".cold", ".part."].iter().any(|piece| name.contains(piece))
}

/// What people call a function: without parameters, result, tags and the hash. None for one of C.
pub fn function_name(name: &str) -> Option<String> {
    match name.strip_prefix("_Z").or_else(|| name.strip_prefix("__Z")) {
        Some(mangled) if !ends_in_hash(mangled) => of_cpp(mangled, Parts::Name),
        _ => demangled(name),
    }
}

/// What of a function is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    All,
    Name,
}

/// The old names of Rust are names of C++ but for their end, `17h0123456789abcdefE`.
fn ends_in_hash(mangled: &str) -> bool {
    const HASH_DIGITS: usize = 16;
    let Some((_, end)) = mangled.rsplit_once("17h") else { return false };
    let (hash, end) = end.as_bytes().split_at(end.len().min(HASH_DIGITS));
    hash.iter().all(u8::is_ascii_hexdigit) && matches!(end, [b'E'] | [b'E', b'.', ..])
}

fn of_rust(name: &str, most_bytes: usize) -> Option<String> {
    if name.len() > most_bytes {
        return None;
    }
    let rust = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Text::default();
    let written = write!(text, "{rust:#}");
    (written.is_ok() || text.is_full()).then(|| text.into_string())
}

/// A name as it stands, cut where it is too long to be read.
pub fn cut(name: &str) -> String {
    Text::of(name)
}

/// The name behind `_Z`.
fn of_cpp(mangled: &str, parts: Parts) -> Option<String> {
    if mangled.len() > MOST_MANGLED_BYTES {
        return None;
    }
    // A linker may have added `@@GLIBCXX_3.4`.
    let (mangled, version) = mangled.split_at(mangled.find('@').unwrap_or(mangled.len()));
    let mut parser = Parser::new(mangled);
    let mut root = match parser.symbol() {
        None if parser.is_ambiguous => {
            parser = Parser::new(mangled);
            parser.is_of_gcc = true;
            parser.symbol()
        }
        root => root,
    }?;
    let mut printer = Printer::new(&parser.tree);
    printer.is_brief = parts == Parts::Name;
    while let (Node::Clone(of, _), Parts::Name) = (parser.tree.node(root), parts) {
        root = of; // of a clone
    }
    let version = if parts == Parts::All { version } else { "" };
    match printer.print(root).and_then(|()| printer.push(version)) {
        Ok(()) | Err(Stop::Full) => Some(printer.text.into_string()),
        Err(Stop::Refused) => None,
    }
}
