//! Where in which files the code of a `uprobe:` is.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustc_hash::FxHashMap;

use crate::escape::escape;
use crate::event::selector::Place;
use crate::host::Host;
use crate::symbol::elf::NOT_ELF;
use crate::symbol::functions::{Code, CodeFile, Named, is_stuck, library_path, mapped, of_command};
use crate::symbol::search::{MOST_OF_FILE_BYTES, Search};
use crate::sys::poll::is_told_to_end;
use crate::tep::format::likeness;
use crate::tep::probe::Machine;

/// Whose memory a function is looked for in.
#[derive(Debug)]
pub enum Scope<'a> {
    Everything,
    Processes(Vec<i32>),
    /// A command that is not executed yet.
    Command(&'a OsStr),
}

/// A byte of a file that is executed.
#[derive(Debug)]
pub struct Spot {
    pub file: CodeFile,
    pub offset: u64,
    pub machine: Machine,
}

/// The program that everything else on a machine is linked like.
const USUAL_PROGRAM: &str = "/bin/sh";
/// How many names or addresses a message offers.
const OFFERED: usize = 4;

/// The place in the file of this name.
///
/// # Errors
/// No such file or function, or more than one function.
pub fn in_file(place: &Place, path: &str) -> Result<Spot> {
    let search = Search::within(MOST_OF_FILE_BYTES);
    let shown = escape(path.as_bytes());
    let code = match Code::open(Path::new(path)) {
        Ok(code) => code,
        Err(err) if err.kind() == std::io::ErrorKind::InvalidInput => bail!("{shown} is no regular file"),
        Err(err) => return Err(anyhow::Error::new(err).context(format!("cannot open {shown}"))),
    };
    let code = code.map_err(|why| match why {
        NOT_ELF => anyhow!("{shown} is no ELF file: a probe goes into a program or a library"),
        why => anyhow!("{shown} is no program or library: {why}"),
    })?;
    spot(place, code, &search)
}

/// The places in files that the target uses: one in each file that defines the function. What is not searched for want of
/// room is told by `search`.
///
/// # Errors
/// No file defines it, or one does more than once.
pub fn in_target(place: &Place, scope: &Scope<'_>, host: &Host, search: &Search) -> Result<Vec<Spot>> {
    let name = &place.function;
    if address(name).is_some() {
        bail!("the address {name} is one of a file: name it, as in uprobe:{name}@\"/bin/true\"");
    }
    match scope {
        Scope::Processes(pids) => in_processes(place, pids, host, search),
        Scope::Command(command) => {
            let shown = escape(command.as_encoded_bytes());
            let program = of_command(Path::new(command));
            let program =
                program.with_context(|| format!("{shown} is not found, or nothing that a probe could go into"))?;
            Ok(vec![in_program(place, program, search)?])
        }
        Scope::Everything => {
            let usual = Code::open(Path::new(USUAL_PROGRAM)).ok().and_then(Result::ok);
            let usual = usual.with_context(|| format!("{USUAL_PROGRAM} cannot be read"));
            let files = usual?.with_libraries(&[]);
            let libraries: Vec<Code> = files.into_iter().skip(1).collect();
            if let Some(at) = libraries.iter().position(|code| code.exports(name, search)) {
                let code = libraries.into_iter().nth(at).context("a library vanished")?;
                return Ok(vec![spot(place, code, search)?]);
            }
            let near = did_you_mean(&near_names(name, &libraries, search));
            let shown = escape(name.as_bytes());
            let other = format!("another file is named as in uprobe:{shown}@\"/bin/true\"");
            bail!("`{shown}` is not in the system's C library ({other}){near}")
        }
    }
}

fn in_processes(place: &Place, pids: &[i32], host: &Host, search: &Search) -> Result<Vec<Spot>> {
    let name = &place.function;
    let (mut spots, mut near): (Vec<Spot>, Vec<String>) = (Vec::new(), Vec::new());
    let mut judged = FxHashMap::default();
    for &pid in pids {
        if is_stuck(host, pid) {
            bail!(
                "process {pid} waits in the kernel (state D), and so would who asks what it has mapped: name the file"
            );
        }
        let files = mapped(host, pid, search);
        let is_new = |code: &Code, spots: &[Spot]| !spots.iter().any(|spot| spot.file.is_same(&code.file));
        if let Some(program) = files.first()
            && let Some(named) = in_itself(program, name, search)
        {
            if is_new(program, &spots) {
                spots.extend(files.into_iter().next().map(|code| spot_of(place, code, named, search)).transpose()?);
            }
            continue;
        }
        let wanted = defining(&files, name, &mut judged, search);
        if wanted.is_empty() && near.is_empty() {
            near = near_names(name, &files, search);
        }
        for (at, code) in files.into_iter().enumerate() {
            if wanted.contains(&at) && is_new(&code, &spots) {
                spots.push(spot(place, code, search)?);
            }
        }
    }
    if is_told_to_end() {
        bail!("told to end before the function was found");
    }
    if spots.is_empty() {
        let name = escape(name.as_bytes());
        let why = match pids {
            [] => "no process is there whose files could be searched".to_owned(),
            [pid] => format!("no file that process {pid} has mapped defines `{name}`"),
            _ => format!("no file that these processes have mapped defines `{name}`"),
        };
        let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
        bail!("{why}{left_out}{}", did_you_mean(&near));
    }
    Ok(spots)
}

/// Which of the files of a process, its program first, a call of a function that is not in the program may lead to: every
/// library that others may call it in. `judged` are libraries that were looked at before.
fn defining(
    files: &[Code],
    name: &str,
    judged: &mut FxHashMap<Option<(u64, u64)>, bool>,
    search: &Search,
) -> Vec<usize> {
    let mut exports = |code: &Code| *judged.entry(code.file.identity()).or_insert_with(|| code.exports(name, search));
    // A large one must not take the room of all others.
    let mut all: Vec<(usize, &Code)> = files.iter().enumerate().skip(1).collect();
    all.sort_by_key(|(_, code)| code.exported_bytes());
    all.retain(|(_, code)| exports(code));
    all.sort_by_key(|(at, _)| *at);
    // The dynamic linker has functions of these names for itself, until the C library is there.
    let is_linker = |code: &Code| code.file.path.rsplit('/').next().is_some_and(|file| file.starts_with("ld-linux"));
    let others = all.iter().filter(|(_, code)| !is_linker(code)).map(|(at, _)| *at).collect::<Vec<_>>();
    if others.is_empty() { all.into_iter().map(|(at, _)| at).collect() } else { others }
}

/// What a name stands for in a program. None when it is not there.
fn in_itself(program: &Code, name: &str, search: &Search) -> Option<Named> {
    Some(program.find(name, search)).filter(|named| !matches!(named, Named::Unknown | Named::Elsewhere))
}

/// In the program itself, else in the first of its libraries that exports it.
fn in_program(place: &Place, program: Code, search: &Search) -> Result<Spot> {
    let name = &place.function;
    if let Some(named) = in_itself(&program, name, search) {
        return spot_of(place, program, named, search);
    }
    let path = program.file.path.clone();
    let files = program.with_libraries(&library_path());
    if let Some(at) = files.iter().position(|code| code.exports(name, search)) {
        let code = files.into_iter().nth(at).context("a library vanished")?;
        return spot(place, code, search);
    }
    let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
    bail!(
        "neither {} nor a library of its own defines `{}`{left_out}{}",
        escape(path.as_bytes()),
        escape(name.as_bytes()),
        did_you_mean(&near_names(name, &files, search))
    )
}

/// The byte of the file.
fn spot(place: &Place, code: Code, search: &Search) -> Result<Spot> {
    let named = match address(&place.function) {
        Some(address) => Named::Function { address, size: 0 },
        None => code.find(&place.function, search),
    };
    spot_of(place, code, named, search)
}

/// As [`spot`], of what was found.
fn spot_of(place: &Place, code: Code, named: Named, search: &Search) -> Result<Spot> {
    let (name, path) = (escape(place.function.as_bytes()), escape(code.file.path.as_bytes()));
    let machine = Machine::of_elf(code.machine());
    if !Machine::of_kernel().runs(machine) {
        bail!("{path} is a program of another machine");
    }
    let (start, size) = function(&place.function, named, &code, search)?;
    if size > 0 && place.offset >= size {
        bail!("`{name}` in {path} has {size} bytes: {:#x} is behind its end", place.offset);
    }
    // The lowest bit of an address says that the code is Thumb.
    let start = if machine == Machine::Arm { start & !1 } else { start };
    let offset = start.checked_add(place.offset).and_then(|address| code.offset(address));
    let offset = offset.with_context(|| format!("there is no code at `{place}` in {path}"))?;
    Ok(Spot { file: code.file, offset, machine })
}

/// Address and size of a function by its name.
fn function(wanted: &str, named: Named, code: &Code, search: &Search) -> Result<(u64, u64)> {
    let (name, path) = (escape(wanted.as_bytes()), escape(code.file.path.as_bytes()));
    let near = || near_names(wanted, std::slice::from_ref(code), search);
    match named {
        Named::Function { address, size } => Ok((address, size)),
        Named::Several(all) => {
            let some: Vec<String> = all.iter().take(OFFERED).map(|address| format!("{address:#x}")).collect();
            let more = if all.len() > OFFERED { ", ..." } else { "" };
            let example = some.first().map_or("", String::as_str);
            bail!(
                "{path} has {} functions `{name}`, at {}{more}: name one by its address, as in uprobe:{example}@\"{path}\"",
                all.len(),
                some.join(", ")
            )
        }
        Named::Chosen => {
            let near: Vec<String> = near().into_iter().filter(|near| near.contains(wanted)).collect();
            let near = did_you_mean(&near);
            bail!(
                "`{name}` in {path} is chosen among several functions at load time (IFUNC): name the one in use{near}"
            )
        }
        Named::Elsewhere => bail!(
            "`{name}` is not in {path} itself, a library defines it: name that one, or leave the file out and name the process with -p"
        ),
        Named::Unknown => {
            let stripped = if code.is_stripped() { "; it is stripped: only what it exports has a name" } else { "" };
            let left_out = search.left_out().map_or_else(String::new, |files| format!(" ({files})"));
            bail!("{path} has no function `{name}`{left_out}{stripped}{}", did_you_mean(&near()))
        }
    }
}

/// A function without a name, as nm(1) and objdump(1) give its address.
fn address(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("0x")?, 16).ok()
}

fn near_names(wanted: &str, files: &[Code], search: &Search) -> Vec<String> {
    let mut near = Near::new(wanted);
    files.iter().for_each(|code| code.each_name(search, |name| near.offer(name)));
    near.names()
}

pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

/// The few names among very many that are most like one that is not there.
#[derive(Debug)]
pub struct Near<'a> {
    wanted: &'a str,
    best: Vec<(usize, String)>,
}

impl<'a> Near<'a> {
    pub fn new(wanted: &'a str) -> Near<'a> {
        Near { wanted, best: Vec::new() }
    }

    pub fn offer(&mut self, name: &str) {
        /// Longer ones are made by compilers, for nobody to type.
        const LONGEST: usize = 60;
        // A distance takes long to measure, and there may be a million.
        let contains = self.wanted.len() >= 3 && name.contains(self.wanted);
        let is_near = name.len().abs_diff(self.wanted.len()) <= self.wanted.len().div_ceil(3);
        let same_start = name.get(..1) == self.wanted.get(..1) || name.get(1..2) == self.wanted.get(1..2);
        if name == self.wanted || name.len() > LONGEST || !(contains || is_near && same_start) {
            return;
        }
        let score = likeness(self.wanted, name);
        let worst = self.best.last().map_or(0, |(score, _)| *score);
        if score == 0
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

    fn place(function: &str, offset: u64) -> Place {
        Place { function: function.to_owned(), offset, ret: false }
    }

    #[test]
    fn the_nearest_names_come_first() {
        let mut near = Near::new("maloc");
        for name in
            ["free", "malloc", "calloc", "malloc", "mallok", "maloc_all", "__maloc", "maloc", "xmaloc", "marloc"]
        {
            near.offer(name);
        }
        let names = near.names();
        assert_eq!(names.len(), OFFERED);
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
        let found = in_file(&place(name, 0), exe).unwrap();
        assert_eq!(found.machine, Machine::of_kernel());
        // Where it is in memory: the file's first byte is mapped where the lowest mapping of it is.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let here = perf_prof_test_function_of_a_name_of_its_own as *const () as u64;
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let of_code = maps.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            (hex(start) <= here && here < hex(end)).then(|| here - hex(start) + hex(words.nth(1).unwrap()))
        });
        assert_eq!(Some(found.offset), of_code);
        let said = |place: &Place| format!("{:#}", in_file(place, exe).unwrap_err());
        assert!(
            said(&place("perf_prof_test_function_of_a_name_of_its_owm", 0)).contains(&format!("did you mean {name}?"))
        );
        assert!(said(&place(name, 1 << 20)).contains("is behind its end"));
        assert!(said(&place("0x7fffffffffffffff", 0)).contains("there is no code at"));
        let own = std::process::id() as i32;
        let spots = in_target(
            &place(name, 0),
            &Scope::Processes(vec![own, own]),
            &Host::default(),
            &Search::within(MOST_OF_FILE_BYTES),
        )
        .unwrap();
        assert_eq!((spots.len(), spots[0].offset), (1, found.offset));
    }

    #[test]
    fn says_what_is_wrong_with_a_file() {
        let said = |path: &str| format!("{:#}", in_file(&place("main", 0), path).unwrap_err());
        assert!(said("/nonexistent/x").starts_with("cannot open /nonexistent/x: No such file"));
        assert_eq!(said("/proc"), "/proc is no regular file");
        let text = tempfile::NamedTempFile::new().unwrap();
        assert!(said(text.path().to_str().unwrap()).contains("is no ELF file"));
    }
}
