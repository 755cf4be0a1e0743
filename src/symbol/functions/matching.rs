//! Functions by their names in the source, or by a pattern: `word_counter::count`, `word_counter::*`. Names in a file
//! are mangled, and each must be demangled before it can be compared. The files belong to other users, so the time for
//! demangling is bounded.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use crate::escape::{escape, unescape};
use crate::glob::glob;
use crate::symbol::demangle::{demangled, function_name, is_split_part};
use crate::symbol::elf::file::{ElfSymbol, STT_GNU_IFUNC};
use crate::symbol::functions::binary::Binary;
use crate::symbol::functions::search::Search;

/// Longest name in a file that is compared.
const MAX_NAME_BYTES: usize = 4096;
/// Most bytes of names that are read per file; a library of two million functions has fewer.
const MAX_NAMES_BYTES: usize = 2 << 30;
/// Most functions whose names are kept.
const MAX_NAMED: usize = 1000;
/// Most functions that are counted.
const MAX_COUNTED: usize = 100_000;
/// Names that are read between two checks of the time.
const NAMES_PER_CLOCK_READ: u32 = 64;

/// A name or pattern as the user typed it.
#[derive(Clone, Copy, Debug)]
pub struct WantedName<'a> {
    text: &'a str,
    is_pattern: bool,
}

/// A function that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedFunction {
    pub address: u64,
    pub size: u64,
    /// The name in the source. Empty beyond the first 1000 functions.
    pub name: String,
}

/// The functions of a file that match.
#[derive(Debug, Default)]
pub struct MatchList {
    /// Sorted by address. Symbols of one address are one function.
    pub functions: Vec<MatchedFunction>,
    /// Number of matching indirect functions (STT_GNU_IFUNC), whose address is chosen when the file is loaded.
    pub indirect: usize,
}

impl<'a> WantedName<'a> {
    /// `is_pattern`: `text` is a pattern with `*` and `?`.
    pub fn new(text: &'a str, is_pattern: bool) -> WantedName<'a> {
        WantedName { text, is_pattern }
    }

    /// The source name of the symbol `name`, if it matches, and whether it matches literally rather than as a pattern.
    fn match_symbol(self, name: &str) -> Option<(String, bool)> {
        if name == self.text {
            return Some((name.to_owned(), true));
        }
        if is_split_part(name) {
            return None;
        }
        let function = function_name(name);
        let is_own = self.is_pattern && glob(&unescape(self.text), &unescape(name));
        let Some(function) = function else { return is_own.then(|| (name.to_owned(), false)) };
        let is_typed = self.is_typed(&function)
            || self.text.contains('(') && demangled(name).is_some_and(|all| self.is_typed(&all));
        if is_typed {
            return Some((self.text.to_owned(), true));
        }
        (is_own || self.is_pattern && glob(self.text.as_bytes(), function.as_bytes())).then_some((function, false))
    }

    /// True when `name` is the text; without its template arguments, where the text has none.
    fn is_typed(self, name: &str) -> bool {
        name == self.text || !self.text.contains('<') && plain(name) == self.text
    }
}

/// A name without template arguments.
fn plain(name: &str) -> Cow<'_, str> {
    match without_arguments(name) {
        Some(short) if name.contains('<') => short.replace("::<...>", "").replace("<...>", "").into(),
        _ => name.into(),
    }
}

/// Shortens template arguments: `a<b<c>, d>::e()` to `a<...>::e()`, and Rust's `<a<b> as c>::d` to `<a<...> as c>::d`.
/// None where brackets do not match.
pub fn without_arguments(name: &str) -> Option<String> {
    const OPERATOR: &str = "operator";
    let mut short = String::with_capacity(name.len());
    let mut depth = 0_usize;
    let mut is_qualified = name.starts_with('<'); // until that bracket is closed
    let mut before = ' ';
    for (at, char) in name.char_indices() {
        let of_operator = matches!(char, '<' | '>' | '=')
            && name[..at].trim_end_matches(['<', '>', '=', '-']).ends_with(OPERATOR)
            || char == '>' && before == '-';
        before = char;
        match char {
            '<' if at == 0 => short.push('<'),
            '>' if depth == 0 && is_qualified && !of_operator => {
                is_qualified = false;
                short.push('>');
            }
            '<' if !of_operator => {
                depth += 1;
                if depth == 1 {
                    short.push_str("<...>");
                }
            }
            '>' if !of_operator => depth = depth.checked_sub(1)?,
            _ if depth == 0 => short.push(char),
            _ => {}
        }
    }
    (depth == 0 && !is_qualified).then_some(short)
}

/// The last component of a name: `count` of `word_counter::count` and of `word_counter::count<int>`.
pub fn last_part(name: &str) -> String {
    let name = plain(name);
    name.rsplit("::").next().unwrap_or_default().to_owned()
}

impl Binary {
    /// The functions that match `wanted`: exported ones, and without `exports_only` those of all symbol tables.
    pub fn matching(&self, wanted: WantedName<'_>, exports_only: bool, search: &Search) -> MatchList {
        let mut matches = BTreeMap::new();
        let (mut indirect, mut has_typed) = (0, false);
        let is_whole = self.each_symbol(search, exports_only, |name, symbol| {
            let Some((name, is_typed)) = wanted.match_symbol(name) else { return };
            if symbol.kind == STT_GNU_IFUNC {
                indirect += 1;
                return;
            }
            if is_typed && !has_typed {
                has_typed = true;
                matches.clear(); // the text is also the literal name of a function
            }
            if is_typed == has_typed && matches.len() < MAX_COUNTED {
                let name = if matches.len() < MAX_NAMED { name } else { String::new() };
                matches.entry(symbol.address).or_insert((symbol.size, name));
            }
        });
        if !is_whole {
            search.leave_out(&self.file.path);
        }
        let functions = matches.into_iter().map(|(address, (size, name))| MatchedFunction { address, size, name });
        MatchList { functions: functions.collect(), indirect }
    }

    /// Calls `take` with the source name of each function, except for very long ones.
    pub fn each_name(&self, search: &Search, mut take: impl FnMut(&str)) {
        const MAX_SUGGESTED_BYTES: usize = 512;
        self.each_symbol(search, false, |name, _| {
            if name.len() <= MAX_SUGGESTED_BYTES {
                take(function_name(name).as_deref().unwrap_or(name));
            }
        });
    }

    /// Calls `take` for each function that is defined; a name that is not UTF-8 is escaped. False when the search was cut short.
    fn each_symbol(&self, search: &Search, exports_only: bool, mut take: impl FnMut(&str, &ElfSymbol<'_>)) -> bool {
        self.tell_next(search);
        let (mut left, mut number) = (MAX_NAMES_BYTES, 0_u32);
        let is_over = Cell::new(false);
        let mut take = |symbol: &ElfSymbol<'_>| {
            if is_over.get() {
                return;
            }
            if number.is_multiple_of(NAMES_PER_CLOCK_READ) && !search.has_time() {
                is_over.set(true);
                return;
            }
            number = number.wrapping_add(1);
            if let Some(name) = symbol.name_within(MAX_NAME_BYTES, &mut left).filter(|name| !name.is_empty()) {
                match str::from_utf8(name) {
                    Ok(name) => take(name, symbol),
                    Err(_) => take(&escape(name), symbol),
                }
            }
        };
        let wants = |symbol: &ElfSymbol<'_>| symbol.is_defined && symbol.is_function();
        let (elf, file) = self.parts();
        let mut is_whole = search.each_symbol(elf, file, true, wants, &mut take);
        if !exports_only {
            for table in self.tables(search) {
                let (elf, file) = table.parts();
                is_whole &= is_over.get() || search.each_symbol(elf, file, false, wants, &mut take);
            }
        }
        is_whole && !is_over.get() && left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_names_of_the_source() {
        const OVERLOAD: &str = "_ZN12word_counter5countEi";
        let cases = [
            ("malloc", "malloc", Some(("malloc", true))),
            // Escaped, since it is not UTF-8.
            ("h\\xe9llo", "h\\xe9llo", Some(("h\\xe9llo", true))),
            ("h\\xe9*", "h\\xe9llo", Some(("h\\xe9llo", false))),
            ("h?llo", "h\\xe9llo", Some(("h\\xe9llo", false))),
            ("mallo", "malloc", None),
            ("mall*", "malloc", Some(("malloc", false))),
            ("word_counter::count", OVERLOAD, Some(("word_counter::count", true))),
            ("word_counter::count(int)", OVERLOAD, Some(("word_counter::count(int)", true))),
            ("word_counter::count(char)", OVERLOAD, None),
            ("count", OVERLOAD, None),
            ("word_counter::*", OVERLOAD, Some(("word_counter::count", false))),
            ("*count", OVERLOAD, Some(("word_counter::count", false))),
            ("_ZN12word_*", OVERLOAD, Some(("word_counter::count", false))),
            ("word_?ounter::c*", OVERLOAD, Some(("word_counter::count", false))),
            ("word_counter::*", "_ZN12word_counter5countEi.cold", None),
            ("main*", "main.part.0", None),
            ("main.part.0", "main.part.0", Some(("main.part.0", true))),
            ("word_counter::count", "_ZN12word_counter5countEi.constprop.0", Some(("word_counter::count", true))),
            // One instance of a template, or all.
            ("f", "_Z1fIiEvv", Some(("f", true))),
            ("f<int>", "_Z1fIiEvv", Some(("f<int>", true))),
            ("f<char>", "_Z1fIiEvv", None),
            // The ABI tags of gcc are left out.
            ("A::name", "_ZN1A4nameB5cxx11Ev", Some(("A::name", true))),
            ("A::operator*", "_ZN1AmlEi", Some(("A::operator*", true))),
            ("A::operator*", "_ZN1AplEi", Some(("A::operator+", false))),
            ("A::op*", "_ZN1AplEi", Some(("A::operator+", false))),
            ("A::operator[]", "_ZN1AixEi", Some(("A::operator[]", true))),
            ("core::fmt::write", "_ZN4core3fmt5write17h0123456789abcdefE", Some(("core::fmt::write", true))),
            ("core::*::write", "_ZN4core3fmt5write17h0123456789abcdefE", Some(("core::fmt::write", false))),
        ];
        for (typed, name, want) in cases {
            let got = WantedName::new(typed, typed.contains(['*', '?'])).match_symbol(name);
            assert_eq!(got.as_ref().map(|(name, typed)| (name.as_str(), *typed)), want, "{typed} {name}");
        }
    }

    #[test]
    fn the_last_component_of_a_name() {
        let cases = [
            ("count", "count"),
            ("a::b<c::d>::count<e::f>", "count"),
            ("a::count::<e::f>", "count"),
            ("<a::B as c::D>::count", "count"),
            ("a<b", "a<b"),
            ("", ""),
        ];
        for (name, want) in cases {
            assert_eq!(last_part(name), want, "{name}");
        }
    }
}
