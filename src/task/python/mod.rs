//! The Python functions of a waiting thread, read from the memory of its interpreter.
//!
//! The frames are on the heap, so they are consistent only if the thread does not run meanwhile, which the caller
//! checks. Objects are checked against the interpreter's own types: if anything does not match, no functions are shown.

mod elf;
mod frames;
mod layout;
mod lines;
mod text;

use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::task::memory::ProcessMemory;
use crate::task::procfs;
use crate::task::python::elf::Image;
use crate::task::python::layout::InterpreterLayout;

/// The Python functions that a thread executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonStack {
    /// Innermost first.
    pub frames: Vec<PythonFrame>,
    /// There are more frames than are read.
    pub cut: bool,
    /// Addresses of the C function that interprets the frames.
    pub interpreter: Range<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PythonFrame {
    /// The qualified name, including the names of enclosing classes.
    pub function: Box<str>,
    /// The source file.
    pub file: Box<str>,
    pub line: Option<u32>,
    /// True for the outermost frame of a call of the interpreter's C function: within one call, it interprets functions
    /// that call each other.
    pub ends_call: bool,
}

impl PythonFrame {
    pub fn bytes(&self) -> usize {
        size_of::<PythonFrame>() + self.function.len() + self.file.len()
    }
}

/// The interpreter of a process.
#[derive(Clone, Debug)]
struct PythonRuntime {
    /// Address of `_PyRuntime`.
    address: u64,
    code_type: u64,
    text_type: u64,
    bytes_type: u64,
    interpreter: Range<u64>,
    layout: InterpreterLayout,
}

/// The interpreters of the processes that were read; most processes have none.
#[derive(Debug, Default)]
pub struct PythonRuntimes {
    known: FxHashMap<ExecutedProgram, Option<PythonRuntime>>,
}

/// Identifies a process and its program.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ExecutedProgram {
    pid: i32,
    started: Option<u64>,
    file: PathBuf,
}

/// The Python functions of a thread. `own_tid`: its tid in its own pid namespace. None: it executes no Python, or the
/// version of the interpreter is not supported.
pub fn stack(
    host: &Host,
    pid: i32,
    own_tid: i32,
    memory: &mut ProcessMemory,
    runtimes: &mut PythonRuntimes,
) -> Option<PythonStack> {
    const MAX_KNOWN: usize = 256;
    let file = fs::read_link(host.proc.join(format!("{pid}/exe"))).ok()?;
    let program = ExecutedProgram { pid, started: procfs::start_ticks(host, pid), file };
    if runtimes.known.len() >= MAX_KNOWN && !runtimes.known.contains_key(&program) {
        runtimes.known.clear();
    }
    let runtime = runtimes.known.entry(program).or_insert_with(|| find(host, pid, memory)).as_ref()?;
    frames::of_thread(runtime, own_tid, memory).filter(|stack| !stack.frames.is_empty())
}

fn find(host: &Host, pid: i32, memory: &mut ProcessMemory) -> Option<PythonRuntime> {
    const MAX_BYTES: u64 = 4 << 20;
    let mut text = Vec::new();
    fs::File::open(host.proc.join(format!("{pid}/maps"))).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    // The interpreter is in the program or in a library.
    let mut bases: Vec<u64> = text.split(|&byte| byte == b'\n').filter_map(python_base).collect();
    bases.dedup();
    bases.into_iter().take(4).find_map(|base| PythonRuntime::at(base, memory))
}

/// The address of the ELF header, if a line of /proc/PID/maps maps the header of a Python interpreter.
fn python_base(line: &[u8]) -> Option<u64> {
    let name = line.rsplit(|&byte| byte == b'/').next().filter(|name| name.len() < line.len())?;
    let version = name.strip_prefix(b"lib").unwrap_or(name).strip_prefix(b"python3.")?;
    let is_header = line.split(|&byte| byte == b' ').nth(2).is_some_and(|offset| offset.iter().all(|&c| c == b'0'));
    (is_header && version.first().is_some_and(u8::is_ascii_digit))
        .then(|| procfs::mapped_range(line))?
        .map(|(start, _)| start)
}

impl PythonRuntime {
    fn at(base: u64, memory: &mut ProcessMemory) -> Option<PythonRuntime> {
        let image = Image::at(base, memory)?;
        let mut symbol = |name: &str| image.symbol(name, memory);
        let (version, runtime, interpreter) =
            (symbol("Py_Version")?, symbol("_PyRuntime")?, symbol("_PyEval_EvalFrameDefault")?);
        let mut address = |name: &str| symbol(name).map(|found| found.start);
        let (code_type, text_type, bytes_type) =
            (address("PyCode_Type")?, address("PyUnicode_Type")?, address("PyBytes_Type")?);
        let layout = InterpreterLayout::of(memory.word(version.start)?, runtime.start, memory)?;
        Some(PythonRuntime { address: runtime.start, code_type, text_type, bytes_type, interpreter, layout })
    }
}

#[cfg(test)]
#[path = "python_tests.rs"]
mod tests;
