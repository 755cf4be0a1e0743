//! Finds the code that a `uprobe:` selects: the files, and the offsets in them. The search runs in a worker: see
//! `function_search`.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::escape::escape;
use crate::event::attributes::MAX_FUNCTIONS;
use crate::event::head::ProbePoint;
use crate::host::Host;
use crate::symbol::functions::binary::{
    Binary, BinaryFile, FunctionLookup, find_command, library_path, mapped_binaries,
};
use crate::symbol::functions::matching::{MatchList, WantedName, last_part};
use crate::symbol::functions::search::Search;
use crate::symbol::unnamed::NOT_ELF;
use crate::tep::format::likeness;
use crate::tep::probe::Machine;

/// The files in which a function is searched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SearchScope {
    /// The file of this path.
    File(String),
    Everything,
    Processes(Vec<i32>),
    /// The command that the run will start.
    Command(OsString),
}

/// An instruction in a file.
#[derive(Debug)]
pub struct CodeLocation {
    pub file: Arc<BinaryFile>,
    pub offset: u64,
    pub machine: Machine,
    /// The readable name of the function, if the typed name stands for several functions.
    pub function: Option<String>,
}

/// The functions that are searched, and the limit of their number.
#[derive(Clone, Copy, Debug)]
pub struct WantedFunctions<'a> {
    pub place: &'a ProbePoint,
    pub most: u16,
}

impl<'a> WantedFunctions<'a> {
    fn name(self) -> WantedName<'a> {
        WantedName::new(&self.place.function, self.place.is_pattern())
    }
}

/// A program that is linked to the system's C library, as most programs of a machine are.
const TYPICAL_PROGRAM: &str = "/bin/sh";
const STRIPPED: &str = "; it is stripped: only what it exports has a name";
/// Why a function of the source may be missing in the file.
const INLINED: &str = " (it may have been inlined)";
/// Number of names or addresses that a message offers.
const OFFERED: usize = 4;

/// The locations of the wanted functions in the file `path`.
///
/// # Errors
/// No such file or function; a mangled name that several functions have; a readable name that more functions have than
/// are wanted.
pub fn in_file(wanted: WantedFunctions<'_>, path: &str, search: &Search) -> Result<Vec<CodeLocation>> {
    let shown = escape(path.as_bytes());
    let code = match Binary::open(Path::new(path), search) {
        Ok(code) => code,
        Err(err) if err.kind() == std::io::ErrorKind::InvalidInput => bail!("{shown} is no regular file"),
        Err(err) => return Err(anyhow::Error::new(err).context(format!("cannot open {shown}"))),
    };
    let code = code.map_err(|why| match why {
        NOT_ELF => anyhow!("{shown} is no ELF file: a probe goes into a program or a library"),
        why => anyhow!("{shown} is no program or library: {why}"),
    })?;
    let named = match address(&wanted.place.function) {
        Some(address) => FunctionLookup::Function { address, size: 0 },
        None if wanted.place.is_pattern() => FunctionLookup::Unknown,
        None => code.find(&wanted.place.function, search),
    };
    if matches!(named, FunctionLookup::Unknown | FunctionLookup::Elsewhere) {
        let functions = code.matching(wanted.name(), false, search);
        if !functions.functions.is_empty() || wanted.place.is_pattern() {
            return locations_of(wanted, code, functions, search);
        }
    }
    Ok(vec![location_of(wanted.place, code, named, search)?])
}

/// The locations in the named file, or in the files that the target uses: one in each file that defines the function.
/// `search` knows the files that were skipped because the budget was used up.
///
/// # Errors
/// As [`in_file`]; no file defines the function, or a file defines it more than once.
pub fn find(
    wanted: WantedFunctions<'_>,
    scope: &SearchScope,
    host: &Host,
    search: &Search,
) -> Result<Vec<CodeLocation>> {
    let name = &wanted.place.function;
    match scope {
        SearchScope::File(path) => in_file(wanted, path, search),
        _ if address(name).is_some() => {
            bail!("the address {name} is one of a file: name it, as in uprobe:{name}@\"/bin/true\"")
        }
        SearchScope::Processes(pids) => in_processes(wanted, pids, host, search),
        SearchScope::Command(command) => {
            let shown = escape(command.as_encoded_bytes());
            let program = find_command(Path::new(command), search);
            let program =
                program.with_context(|| format!("{shown} is not found, or nothing that a probe could go into"))?;
            in_program(wanted, program, search)
        }
        SearchScope::Everything => {
            let usual = Binary::open(Path::new(TYPICAL_PROGRAM), search).ok().and_then(Result::ok);
            let usual = usual.with_context(|| format!("{TYPICAL_PROGRAM} cannot be read"));
            let files = usual?.with_libraries(&[], search);
            let mut libraries: Vec<Binary> = files.into_iter().skip(1).collect();
            if let Some(found) = in_libraries(wanted, &mut libraries, search) {
                return found;
            }
            let near = did_you_mean(&near_names(name, &libraries, search));
            let shown = escape(name.as_bytes());
            let other = format!("another file is named as in uprobe:{shown}@\"/bin/true\"");
            bail!("`{shown}` is not in the system's C library ({other}){near}")
        }
    }
}

/// Whether no location is in this file yet.
fn is_new(code: &Binary, locations: &[CodeLocation]) -> bool {
    !locations.iter().any(|location| location.file.is_same(&code.file))
}

fn in_processes(wanted: WantedFunctions<'_>, pids: &[i32], host: &Host, search: &Search) -> Result<Vec<CodeLocation>> {
    let (place, name) = (wanted.place, &wanted.place.function);
    let (mut locations, mut near): (Vec<CodeLocation>, Vec<String>) = (Vec::new(), Vec::new());
    let mut judged = FxHashMap::default();
    // Files that have no function of that readable name.
    let mut without: FxHashSet<Option<(u64, u64)>> = FxHashSet::default();
    for &pid in pids {
        let mut files = mapped_binaries(host, pid, search);
        if let Some(program) = files.first()
            && let Some(named) = in_itself(program, place, search)
        {
            if is_new(program, &locations) {
                locations
                    .extend(files.into_iter().next().map(|code| location_of(place, code, named, search)).transpose()?);
            }
            continue;
        }
        let defining = if place.is_pattern() { Vec::new() } else { defining(&files, name, &mut judged, search) };
        if !defining.is_empty() {
            for (at, code) in files.into_iter().enumerate() {
                if defining.contains(&at) && is_new(&code, &locations) {
                    locations.push(locate(place, code, search)?);
                }
            }
            continue;
        }
        if files.iter().any(|code| !is_new(code, &locations)) {
            continue; // already found for another process
        }
        let (known, rest): (Vec<Binary>, Vec<Binary>) =
            files.into_iter().partition(|code| without.contains(&code.file.identity()));
        files = rest;
        match in_one_of(wanted, &mut files, search) {
            Some(found) => locations.extend(found?),
            None => {
                without.extend(files.iter().map(|code| code.file.identity()));
                if near.is_empty() {
                    files.extend(known);
                    near = near_names(name, &files, search);
                }
            }
        }
    }
    if locations.is_empty() {
        let name = escape(name.as_bytes());
        let why = match pids {
            [] => "no process is there whose files could be searched".to_owned(),
            [pid] => format!("no file that process {pid} has mapped defines `{name}`"),
            _ => format!("no file that these processes have mapped defines `{name}`"),
        };
        let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
        bail!("{why}{left_out}{INLINED}{}", did_you_mean(&near));
    }
    check_count(wanted, locations.len(), search, || {
        locations.iter().filter_map(|location| location.function.clone()).collect()
    })?;
    Ok(locations)
}

/// The functions of a readable name in a program, the first of `files`, or else in those of its libraries that have
/// any.
fn in_one_of(
    wanted: WantedFunctions<'_>,
    files: &mut Vec<Binary>,
    search: &Search,
) -> Option<Result<Vec<CodeLocation>>> {
    let program = files.first()?;
    let own = program.matching(wanted.name(), false, search);
    if !own.functions.is_empty() || own.indirect > 0 {
        return Some(locations_of(wanted, files.remove(0), own, search));
    }
    let mut libraries = files.split_off(1);
    let found = in_libraries(wanted, &mut libraries, search);
    files.extend(libraries);
    found
}

/// The functions of a name in the exports of libraries: by the mangled name, or else by the readable one. None: there
/// are no such functions, and `libraries` is unchanged.
fn in_libraries(
    wanted: WantedFunctions<'_>,
    libraries: &mut Vec<Binary>,
    search: &Search,
) -> Option<Result<Vec<CodeLocation>>> {
    let (place, name) = (wanted.place, &wanted.place.function);
    if !place.is_pattern()
        && let Some(at) = libraries.iter().position(|code| code.exports(name, search))
    {
        return Some(locate(place, libraries.remove(at), search).map(|location| vec![location]));
    }
    let found: Vec<MatchList> = libraries.iter().map(|code| code.matching(wanted.name(), true, search)).collect();
    if found.iter().all(|matches| matches.functions.is_empty() && matches.indirect == 0) {
        return None;
    }
    let mut locations = Vec::new();
    for (code, matches) in libraries.drain(..).zip(found) {
        if !matches.functions.is_empty() {
            match locations_of(wanted, code, matches, search) {
                Ok(more) => locations.extend(more),
                Err(err) => return Some(Err(err)),
            }
        }
    }
    let names = || locations.iter().filter_map(|location| location.function.clone()).collect();
    Some(match check_count(wanted, locations.len(), search, names) {
        Ok(()) if locations.is_empty() => Err(only_chosen(name)),
        Ok(()) => Ok(locations),
        Err(err) => Err(err),
    })
}

fn only_chosen(name: &str) -> anyhow::Error {
    let name = escape(name.as_bytes());
    anyhow!("what `{name}` stands for is indirect among several functions at load time (IFUNC): name those in use")
}

/// Indexes of the files of a process (the first is its program) in which a call to a function outside of the program
/// may end: all libraries that export it. `judged`: results for libraries that were searched before.
fn defining(
    files: &[Binary],
    name: &str,
    judged: &mut FxHashMap<Option<(u64, u64)>, bool>,
    search: &Search,
) -> Vec<usize> {
    let mut exports = |code: &Binary| *judged.entry(code.file.identity()).or_insert_with(|| code.exports(name, search));
    // Small files first: a large one must not use up the budget of all others.
    let mut all: Vec<(usize, &Binary)> = files.iter().enumerate().skip(1).collect();
    all.sort_by_key(|(_, code)| code.exported_bytes(search));
    all.retain(|(_, code)| exports(code));
    all.sort_by_key(|(at, _)| *at);
    // The dynamic linker exports some functions of the C library, which it uses itself until that library is loaded.
    let is_linker = |code: &Binary| code.file.path.rsplit('/').next().is_some_and(|file| file.starts_with("ld-linux"));
    let others = all.iter().filter(|(_, code)| !is_linker(code)).map(|(at, _)| *at).collect::<Vec<_>>();
    if others.is_empty() { all.into_iter().map(|(at, _)| at).collect() } else { others }
}

/// The function of a mangled name in a program. None: the program itself does not have it.
fn in_itself(program: &Binary, place: &ProbePoint, search: &Search) -> Option<FunctionLookup> {
    if place.is_pattern() {
        return None;
    }
    Some(program.find(&place.function, search))
        .filter(|named| !matches!(named, FunctionLookup::Unknown | FunctionLookup::Elsewhere))
}

/// The locations in the program itself, else in its libraries.
fn in_program(wanted: WantedFunctions<'_>, program: Binary, search: &Search) -> Result<Vec<CodeLocation>> {
    let (place, name) = (wanted.place, &wanted.place.function);
    if let Some(named) = in_itself(&program, place, search) {
        return Ok(vec![location_of(place, program, named, search)?]);
    }
    let path = program.file.path.clone();
    let mut files = program.with_libraries(&library_path(), search);
    if !place.is_pattern()
        && let Some(at) = files.iter().position(|code| code.exports(name, search))
    {
        return Ok(vec![locate(place, files.remove(at), search)?]);
    }
    if let Some(found) = in_one_of(wanted, &mut files, search) {
        return found;
    }
    let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
    bail!(
        "neither {} nor a library of its own defines `{}`{left_out}{INLINED}{}",
        escape(path.as_bytes()),
        escape(name.as_bytes()),
        did_you_mean(&near_names(name, &files, search))
    )
}

/// The location of a function of a mangled name in a file.
fn locate(place: &ProbePoint, code: Binary, search: &Search) -> Result<CodeLocation> {
    let named = code.find(&place.function, search);
    location_of(place, code, named, search)
}

/// Refuses more functions than are wanted.
fn check_count(
    wanted: WantedFunctions<'_>,
    count: usize,
    search: &Search,
    names: impl FnOnce() -> Vec<String>,
) -> Result<()> {
    let name = escape(wanted.place.function.as_bytes());
    if count <= usize::from(wanted.most) {
        return Ok(());
    }
    let mut some = names();
    some.dedup();
    some.truncate(OFFERED);
    let ask = if count <= usize::from(MAX_FUNCTIONS) {
        format!(", or ask for so many with most={count}")
    } else {
        String::new()
    };
    let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
    bail!(
        "`{name}` is {count} functions{left_out}, more than {}: name fewer{ask}; some are {}",
        wanted.most,
        some.join(", ")
    )
}

/// The locations of the functions of a readable name.
fn locations_of(
    wanted: WantedFunctions<'_>,
    code: Binary,
    matches: MatchList,
    search: &Search,
) -> Result<Vec<CodeLocation>> {
    let name = escape(wanted.place.function.as_bytes());
    let path = escape(code.file.path.as_bytes());
    let MatchList { mut functions, indirect } = matches;
    let machine = machine_of(&code)?;
    check_count(wanted, functions.len(), search, || {
        functions.iter().map(|found| escape(found.name.as_bytes())).collect()
    })?;
    if let ([only], false) = (functions.as_slice(), wanted.place.is_pattern()) {
        let named = FunctionLookup::Function { address: only.address, size: only.size };
        return Ok(vec![location_of(wanted.place, code, named, search)?]);
    }
    if wanted.place.offset > 0 {
        let first = functions.first().map_or(0, |found| found.address);
        bail!(
            "{path} has {} functions `{name}`: an offset is into one, as in uprobe:{first:#x}@\"{path}\"",
            functions.len()
        );
    }
    if functions.is_empty() && indirect > 0 {
        return Err(only_chosen(&wanted.place.function));
    }
    let offset_of = |address: u64| code.offset(if machine == Machine::Arm { address & !1 } else { address });
    let offsets: Vec<Option<u64>> = functions.iter().map(|found| offset_of(found.address)).collect();
    if offsets.iter().all(Option::is_none) {
        let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
        let stripped = if code.is_stripped() { STRIPPED } else { INLINED };
        bail!("{path} has no function `{name}`{left_out}{stripped}");
    }
    let file = Arc::new(code.file);
    let locations = functions.drain(..).zip(offsets).filter_map(|(found, offset)| {
        let function = Some(escape(found.name.as_bytes()));
        Some(CodeLocation { file: file.clone(), offset: offset?, machine, function })
    });
    Ok(locations.collect())
}

fn machine_of(code: &Binary) -> Result<Machine> {
    let machine = Machine::of_elf(code.machine());
    if !Machine::of_kernel().runs(machine) {
        bail!("{} is a program of another machine", escape(code.file.path.as_bytes()));
    }
    Ok(machine)
}

/// As [`locate`], for a function that was already found.
fn location_of(place: &ProbePoint, code: Binary, named: FunctionLookup, search: &Search) -> Result<CodeLocation> {
    let (name, path) = (escape(place.function.as_bytes()), escape(code.file.path.as_bytes()));
    let machine = machine_of(&code)?;
    let (start, size) = function(&place.function, named, &code, search)?;
    if size > 0 && place.offset >= size {
        bail!("`{name}` in {path} has {size} bytes: {:#x} is behind its end", place.offset);
    }
    // The lowest bit of an address says that the code is Thumb.
    let start = if machine == Machine::Arm { start & !1 } else { start };
    let offset = start.checked_add(place.offset).and_then(|address| code.offset(address));
    let offset = offset.with_context(|| format!("there is no code at `{place}` in {path}"))?;
    Ok(CodeLocation { file: Arc::new(code.file), offset, machine, function: None })
}

/// Address and size of a function by its name.
fn function(wanted: &str, named: FunctionLookup, code: &Binary, search: &Search) -> Result<(u64, u64)> {
    let (name, path) = (escape(wanted.as_bytes()), escape(code.file.path.as_bytes()));
    let near = || near_names(wanted, std::slice::from_ref(code), search);
    match named {
        FunctionLookup::Function { address, size } => Ok((address, size)),
        FunctionLookup::Several(all) => {
            let some: Vec<String> = all.iter().take(OFFERED).map(|address| format!("{address:#x}")).collect();
            let more = if all.len() > OFFERED { ", ..." } else { "" };
            let example = some.first().map_or("", String::as_str);
            bail!(
                "{path} has {} functions `{name}`, at {}{more}: name one by its address, as in uprobe:{example}@\"{path}\"",
                all.len(),
                some.join(", ")
            )
        }
        FunctionLookup::Indirect => {
            let near: Vec<String> = near().into_iter().filter(|near| near.contains(wanted)).collect();
            let near = did_you_mean(&near);
            bail!(
                "`{name}` in {path} is indirect among several functions at load time (IFUNC): name the one in use{near}"
            )
        }
        FunctionLookup::Elsewhere => bail!(
            "`{name}` is not in {path} itself, a library defines it: name that one, or leave the file out and name the process with -p"
        ),
        FunctionLookup::Unknown => {
            let stripped = if code.is_stripped() { STRIPPED } else { INLINED };
            let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
            bail!("{path} has no function `{name}`{left_out}{stripped}{}", did_you_mean(&near()))
        }
    }
}

/// A function given by its address, as nm(1) and objdump(1) print it.
fn address(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("0x")?, 16).ok()
}

fn near_names(wanted: &str, files: &[Binary], search: &Search) -> Vec<String> {
    let mut near = NearNames::new(wanted);
    files.iter().for_each(|code| code.each_name(search, |name| near.offer(name)));
    near.names()
}

pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

/// The few names among very many that are most similar to a missing one: functions of the same name in another class or
/// module come first.
#[derive(Debug)]
pub struct NearNames<'a> {
    wanted: &'a str,
    last: String,
    best: Vec<((bool, usize), String)>,
}

impl<'a> NearNames<'a> {
    pub fn new(wanted: &'a str) -> NearNames<'a> {
        NearNames { wanted, last: last_part(wanted), best: Vec::new() }
    }

    pub fn offer(&mut self, name: &str) {
        /// Longer names are generated by compilers; users do not type them.
        const LONGEST: usize = 60;
        // `last_part` and `likeness` are slow, and there may be a million names: both run only after a quick check.
        let is_namesake = name.contains("::") && name.contains(&self.last) && last_part(name) == self.last;
        let contains = self.wanted.len() >= 3 && name.contains(self.wanted);
        let is_near = name.len().abs_diff(self.wanted.len()) <= self.wanted.len().div_ceil(3);
        let same_start = name.get(..1) == self.wanted.get(..1) || name.get(1..2) == self.wanted.get(1..2);
        let is_like = name.len() <= LONGEST && (contains || is_near && same_start);
        if name == self.wanted || !(is_namesake || is_like) {
            return;
        }
        let score = (is_namesake, likeness(self.wanted, name));
        let worst = self.best.last().map_or((false, 0), |(score, _)| *score);
        if score == (false, 0)
            || self.best.len() >= OFFERED && score <= worst
            || self.best.iter().any(|(_, known)| known == name)
        {
            return;
        }
        let at = self.best.partition_point(|(other, _)| *other >= score);
        self.best.insert(at, (score, name.to_owned()));
        self.best.truncate(OFFERED);
    }

    pub fn names(self) -> Vec<String> {
        self.best.into_iter().map(|(_, name)| escape(name.as_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::functions::search::MAX_OF_FILE_BYTES;

    fn place(function: &str, offset: u64) -> ProbePoint {
        ProbePoint { function: function.to_owned(), offset, ret: false }
    }

    #[test]
    fn the_nearest_names_come_first() {
        let mut near = NearNames::new("maloc");
        for name in
            ["free", "malloc", "calloc", "malloc", "mallok", "maloc_all", "__maloc", "maloc", "xmaloc", "marloc"]
        {
            near.offer(name);
        }
        let names = near.names();
        assert_eq!(names.len(), OFFERED);
        let mut near = NearNames::new("count");
        for name in ["counts", "word_counter::count", "count_all", "mount", "a::b<c>::count<d>", "A::counts"] {
            near.offer(name);
        }
        assert_eq!(near.names(), ["a::b<c>::count<d>", "word_counter::count", "counts", "mount"]);
        assert!(names.contains(&"malloc".to_owned()) && !names.contains(&"maloc".to_owned()), "{names:?}");
    }

    /// A function of this very program, by its own tables.
    #[inline(never)]
    #[unsafe(no_mangle)]
    extern "C" fn perf_prof_test_function_of_a_name_of_its_own() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn finds_functions_of_this_program() {
        perf_prof_test_function_of_a_name_of_its_own();
        let name = "perf_prof_test_function_of_a_name_of_its_own";
        let exe = std::env::current_exe().unwrap();
        let exe = exe.to_str().unwrap();
        let in_file =
            |place: &ProbePoint| in_file(WantedFunctions { place, most: 100 }, exe, &Search::within(MAX_OF_FILE_BYTES));
        let found = in_file(&place(name, 0)).unwrap().remove(0);
        assert_eq!(found.machine, Machine::of_kernel());
        // The file offset of the function, from the mapping that contains its address.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let here = perf_prof_test_function_of_a_name_of_its_own as *const () as u64;
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let of_code = maps.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            (hex(start) <= here && here < hex(end)).then(|| here - hex(start) + hex(words.nth(1).unwrap()))
        });
        assert_eq!(Some(found.offset), of_code);
        let said = |place: &ProbePoint| format!("{:#}", in_file(place).unwrap_err());
        assert!(
            said(&place("perf_prof_test_function_of_a_name_of_its_owm", 0)).contains(&format!("did you mean {name}?"))
        );
        assert!(said(&place(name, 1 << 20)).contains("is behind its end"));
        assert!(said(&place("0x7fffffffffffffff", 0)).contains("there is no code at"));
        let own = std::process::id() as i32;
        let locations = find(
            WantedFunctions { place: &place(name, 0), most: 100 },
            &SearchScope::Processes(vec![own, own]),
            &Host::default(),
            &Search::within(MAX_OF_FILE_BYTES),
        )
        .unwrap();
        assert_eq!((locations.len(), locations[0].offset), (1, found.offset));
    }

    #[test]
    fn says_what_is_wrong_with_a_file() {
        let place = place("main", 0);
        let wanted = WantedFunctions { place: &place, most: 100 };
        let said = |path: &str| format!("{:#}", in_file(wanted, path, &Search::within(1 << 20)).unwrap_err());
        assert!(said("/nonexistent/x").starts_with("cannot open /nonexistent/x: No such file"));
        assert_eq!(said("/proc"), "/proc is no regular file");
        let text = tempfile::NamedTempFile::new().unwrap();
        assert!(said(text.path().to_str().unwrap()).contains("is no ELF file"));
    }
}
