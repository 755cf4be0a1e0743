//! The Python frames of a thread, each with its function.

use rustc_hash::FxHashMap;

use crate::task::memory::ProcessMemory;
use crate::task::python::layout::{CurrentFrame, Entry};
use crate::task::python::text::{self, Kept};
use crate::task::python::{PythonFrame, PythonRuntime, PythonStack, lines};

const MAX_FRAMES: usize = 512;

/// Contents of a code object.
#[derive(Clone, Debug)]
struct Code {
    function: Box<str>,
    file: Box<str>,
    first_line: u32,
    lines: Option<Box<[u8]>>,
}

/// The frames of the thread `own_tid`. None: it is no thread of the interpreter, or the memory has unexpected contents.
pub fn of_thread(runtime: &PythonRuntime, own_tid: i32, memory: &mut ProcessMemory) -> Option<PythonStack> {
    let layout = &runtime.layout;
    let thread = find(runtime, u64::try_from(own_tid).ok()?, memory)?;
    let mut frame = match layout.current {
        CurrentFrame::Direct(at) => memory.word(thread.checked_add(at)?)?,
        CurrentFrame::Behind(at, then) => {
            let behind = memory.word(thread.checked_add(at)?)?;
            memory.word(behind.checked_add(then)?)?
        }
    };
    let mut stack = PythonStack { frames: Vec::new(), cut: false, interpreter: runtime.interpreter.clone() };
    let mut codes: FxHashMap<u64, Code> = FxHashMap::default();
    // Each call of the interpreter's C function adds one frame without a function.
    for _ in 0..2 * MAX_FRAMES {
        if frame == 0 {
            return Some(stack);
        }
        let owner = memory.byte(frame.checked_add(layout.owner)?)?;
        let is_other = match layout.entry {
            Entry::Owner(of_c) => owner == of_c,
            Entry::Flag(_) => false,
        };
        if is_other {
            stack.frames.last_mut().into_iter().for_each(|last| last.ends_call = true);
        } else {
            if stack.frames.len() >= MAX_FRAMES {
                break;
            }
            let ends_call = match layout.entry {
                Entry::Owner(_) => false,
                Entry::Flag(at) => memory.byte(frame.checked_add(at)?)? != 0,
            };
            let address = memory.word(frame.checked_add(layout.code)?)?;
            let code = match codes.get(&address) {
                Some(code) => code,
                None => codes.entry(address).or_insert(Code::read(address, runtime, memory)?),
            };
            let instruction = memory.word(frame.checked_add(layout.instruction)?)?;
            let offset = instruction.checked_sub(address.checked_add(layout.instructions)?);
            let line = code.lines.as_deref().zip(offset);
            let line = line.and_then(|(table, offset)| lines::line_at(table, code.first_line, offset));
            let Code { function, file, .. } = code.clone();
            stack.frames.push(PythonFrame { function, file, line, ends_call });
        }
        frame = memory.word(frame.checked_add(layout.previous)?)?;
    }
    stack.cut = true;
    Some(stack)
}

/// The address of the `PyThreadState` of a thread.
fn find(runtime: &PythonRuntime, own_tid: u64, memory: &mut ProcessMemory) -> Option<u64> {
    const MAX_INTERPRETERS: usize = 64;
    const MAX_THREADS: usize = 4096;
    let layout = &runtime.layout;
    let mut left = MAX_THREADS;
    let mut interpreter = memory.word(runtime.address.checked_add(layout.interpreters)?)?;
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 {
            return None;
        }
        let mut thread = memory.word(interpreter.checked_add(layout.threads)?)?;
        while thread != 0 && left > 0 {
            left -= 1;
            if memory.word(thread.checked_add(layout.native_id)?)? == own_tid {
                return Some(thread);
            }
            thread = memory.word(thread.checked_add(layout.next_thread)?)?;
        }
        interpreter = memory.word(interpreter.checked_add(layout.next_interpreter)?)?;
    }
    None
}

impl Code {
    fn read(address: u64, runtime: &PythonRuntime, memory: &mut ProcessMemory) -> Option<Code> {
        let layout = &runtime.layout;
        if memory.word(address.checked_add(8)?)? != runtime.code_type {
            return None;
        }
        let name = memory.word(address.checked_add(layout.name)?)?;
        let file = memory.word(address.checked_add(layout.file)?)?;
        let lines = memory.word(address.checked_add(layout.lines)?)?;
        Some(Code {
            function: text::read(name, Kept::Head, runtime, memory)?,
            file: text::read(file, Kept::Tail, runtime, memory)?,
            first_line: memory.half(address.checked_add(layout.first_line)?)?,
            lines: bytes(lines, runtime, memory),
        })
    }
}

/// A `PyBytesObject`.
fn bytes(address: u64, runtime: &PythonRuntime, memory: &mut ProcessMemory) -> Option<Box<[u8]>> {
    const MAX_BYTES: u64 = 64 << 10;
    const LENGTH: u64 = 16;
    const DATA: u64 = 32;
    if memory.word(address.checked_add(8)?)? != runtime.bytes_type {
        return None;
    }
    let len = memory.word(address.checked_add(LENGTH)?).filter(|&len| len <= MAX_BYTES)?;
    let bytes = memory.up_to(address.checked_add(DATA)?, len as usize);
    (bytes.len() as u64 == len).then(|| bytes.into())
}
