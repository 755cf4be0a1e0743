//! Functions by what people call them: `word_counter::count`, `word_counter::*`. The names in a file are those of its
//! compiler, and each must be read before it is known what it stands for: in a bounded time, since they are others'.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use crate::glob::glob;
use crate::symbol::demangle::{demangled, function_name, is_piece};
use crate::symbol::elf_file::ElfSymbol;
use crate::symbol::functions::{Binary, STT_FUNC, STT_GNU_IFUNC};
use crate::symbol::search::Search;

/// Of a name in a file. Longer ones are not made for people.
const MOST_NAME_BYTES: usize = 4096;
/// Of all names of a file that are looked at: a browser with all its symbols has fewer.
const MOST_NAMES_BYTES: usize = 256 << 20;
/// Functions whose names are kept: nobody asks for more.
const MOST_NAMED: usize = 1000;
/// Functions that are counted.
const MOST_COUNTED: usize = 100_000;
/// Names that are read before the time is looked at.
const AT_A_TIME: u32 = 64;

/// What a user has typed.
#[derive(Clone, Copy, Debug)]
pub struct WantedName<'a> {
    text: &'a str,
    is_pattern: bool,
}

/// A function that is so called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    pub address: u64,
    pub size: u64,
    /// As people call it. Empty beyond `MOST_NAMED`.
    pub name: String,
}

/// What a name stands for in a file.
#[derive(Debug, Default)]
pub struct MatchList {
    /// By address. Two symbols of one address are one function.
    pub functions: Vec<Match>,
    /// Names of those that are chosen when the file is loaded.
    pub chosen: usize,
}

impl<'a> WantedName<'a> {
    /// `is_pattern`: it stands for whatever it matches.
    pub fn new(text: &'a str, is_pattern: bool) -> WantedName<'a> {
        WantedName { text, is_pattern }
    }

    /// What people call the symbol `name`, if they may mean it, and whether it is what was typed to the letter.
    fn meant(self, name: &str) -> Option<(String, bool)> {
        if name == self.text {
            return Some((name.to_owned(), true));
        }
        if is_piece(name) {
            return None;
        }
        let function = function_name(name);
        let is_own = self.is_pattern && glob(self.text.as_bytes(), name.as_bytes());
        let Some(function) = function else { return is_own.then(|| (name.to_owned(), false)) };
        let is_typed = self.is_typed(&function)
            || self.text.contains('(') && demangled(name).is_some_and(|all| self.is_typed(&all));
        if is_typed {
            return Some((self.text.to_owned(), true));
        }
        (is_own || self.is_pattern && glob(self.text.as_bytes(), function.as_bytes())).then_some((function, false))
    }

    /// All instances of a template are meant where no arguments are given.
    fn is_typed(self, name: &str) -> bool {
        name == self.text || !self.text.contains('<') && plain(name) == self.text
    }
}

/// A name without the arguments of its templates.
fn plain(name: &str) -> Cow<'_, str> {
    match without_arguments(name) {
        Some(short) if name.contains('<') => short.replace("::<...>", "").replace("<...>", "").into(),
        _ => name.into(),
    }
}

/// `a<b<c>, d>::e()` as `a<...>::e()`, and Rust's `<a<b> as c>::d` as `<a<...> as c>::d`. None where brackets do not
/// match.
pub fn without_arguments(name: &str) -> Option<String> {
    const OPERATOR: &str = "operator";
    let mut short = String::with_capacity(name.len());
    let mut depth = 0_usize;
    let mut is_qualified = name.starts_with('<'); // and that bracket is open
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

/// The last part of a name: `count` of `word_counter::count` and of `word_counter::count<int>`.
pub fn last_part(name: &str) -> String {
    let name = plain(name);
    name.rsplit("::").next().unwrap_or_default().to_owned()
}

impl Binary {
    /// The functions that a name may mean, by what people call them: of the file's exports, and unless only these are
    /// asked for, of all its tables.
    pub fn matching(&self, wanted: WantedName<'_>, exports_only: bool, search: &Search) -> MatchList {
        let mut matches = BTreeMap::new();
        let (mut chosen, mut has_typed) = (0, false);
        let is_whole = self.each_symbol(search, exports_only, |name, symbol| {
            let Some((name, is_typed)) = wanted.meant(name) else { return };
            if symbol.kind == STT_GNU_IFUNC {
                chosen += 1;
                return;
            }
            if is_typed && !has_typed {
                has_typed = true;
                matches.clear(); // of a pattern that is a name, too
            }
            if is_typed == has_typed && matches.len() < MOST_COUNTED {
                let name = if matches.len() < MOST_NAMED { name } else { String::new() };
                matches.entry(symbol.address).or_insert((symbol.size, name));
            }
        });
        if !is_whole {
            search.leave_out(&self.file.path);
        }
        let functions = matches.into_iter().map(|(address, (size, name))| Match { address, size, name });
        MatchList { functions: functions.collect(), chosen }
    }

    /// Hands over what people call every function, but for names that are longer than anybody types.
    pub fn each_name(&self, search: &Search, mut take: impl FnMut(&str)) {
        const MOST_TYPED_BYTES: usize = 512;
        self.each_symbol(search, false, |name, _| {
            if name.len() <= MOST_TYPED_BYTES {
                take(function_name(name).as_deref().unwrap_or(name));
            }
        });
    }

    /// Each function that is defined. False when the search did not come to the end.
    fn each_symbol(&self, search: &Search, exports_only: bool, mut take: impl FnMut(&str, &ElfSymbol<'_>)) -> bool {
        let (mut left, mut number) = (MOST_NAMES_BYTES, 0_u32);
        let is_over = Cell::new(false);
        let mut take = |symbol: &ElfSymbol<'_>| {
            if is_over.get() || !symbol.is_defined || !matches!(symbol.kind, STT_FUNC | STT_GNU_IFUNC) {
                return;
            }
            if number.is_multiple_of(AT_A_TIME) && !search.has_time() {
                is_over.set(true);
                return;
            }
            number = number.wrapping_add(1);
            let name = symbol.name_within(MOST_NAME_BYTES, &mut left).map(str::from_utf8);
            if let Some(Ok(name)) = name.filter(|name| name.is_ok_and(|name| !name.is_empty())) {
                take(name, symbol);
            }
        };
        let (elf, file) = self.parts();
        let mut is_whole = search.each(elf, file, true, &mut take);
        if !exports_only {
            self.each_table(search, |elf, file| {
                is_whole &= is_over.get() || search.each(elf, file, false, &mut take);
            });
        }
        is_whole && !is_over.get() && left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_call_them() {
        const OVERLOAD: &str = "_ZN12word_counter5countEi";
        let cases = [
            ("malloc", "malloc", Some(("malloc", true))),
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
            // Of a template, one or all.
            ("f", "_Z1fIiEvv", Some(("f", true))),
            ("f<int>", "_Z1fIiEvv", Some(("f<int>", true))),
            ("f<char>", "_Z1fIiEvv", None),
            // The tags of gcc are for linkers.
            ("A::name", "_ZN1A4nameB5cxx11Ev", Some(("A::name", true))),
            ("A::operator*", "_ZN1AmlEi", Some(("A::operator*", true))),
            ("A::operator*", "_ZN1AplEi", Some(("A::operator+", false))),
            ("A::op*", "_ZN1AplEi", Some(("A::operator+", false))),
            ("A::operator[]", "_ZN1AixEi", Some(("A::operator[]", true))),
            ("core::fmt::write", "_ZN4core3fmt5write17h0123456789abcdefE", Some(("core::fmt::write", true))),
            ("core::*::write", "_ZN4core3fmt5write17h0123456789abcdefE", Some(("core::fmt::write", false))),
        ];
        for (typed, name, want) in cases {
            let got = WantedName::new(typed, typed.contains(['*', '?'])).meant(name);
            assert_eq!(got.as_ref().map(|(name, typed)| (name.as_str(), *typed)), want, "{typed} {name}");
        }
    }

    #[test]
    fn the_last_part() {
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
