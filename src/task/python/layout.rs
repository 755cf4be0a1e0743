//! Offsets in the structures of the interpreter. 3.13 has a table of them at the beginning of `_PyRuntime`; for 3.11
//! and 3.12 they are taken from the headers, and equal in all final releases of each. Other versions are not supported.

use crate::task::memory::ProcessMemory;

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterLayout {
    /// `_PyRuntimeState`.
    pub interpreters: u64,
    /// `PyInterpreterState`.
    pub next_interpreter: u64,
    pub threads: u64,
    /// `PyThreadState`.
    pub next_thread: u64,
    pub native_id: u64,
    pub current: CurrentFrame,
    /// `_PyInterpreterFrame`.
    pub code: u64,
    pub previous: u64,
    pub instruction: u64,
    pub owner: u64,
    pub entry: Entry,
    /// `PyCodeObject`.
    pub file: u64,
    pub name: u64,
    pub first_line: u64,
    pub lines: u64,
    pub instructions: u64,
    /// `PyASCIIObject`. Where a text is not ASCII, two words follow it; in 3.11 three.
    pub text_length: u64,
    pub text_state: u64,
    pub ascii: u64,
    pub other: u64,
}

/// How a thread's innermost frame is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentFrame {
    /// At this offset of the thread's state.
    Direct(u64),
    /// Behind a pointer in the thread's state: the offset of the pointer, and the offset in the structure that it
    /// points at.
    Behind(u64, u64),
}

/// How the outermost frame of a call of the interpreter's C function is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The frame has a flag, at this offset.
    Flag(u64),
    /// The next frame has this owner, and no function.
    Owner(u8),
}

/// `FRAME_OWNED_BY_CSTACK`.
const OWNED_BY_C: u8 = 3;

/// Greatest offset that is accepted.
const MAX_OFFSET: u64 = 1 << 20;

const V3_11: InterpreterLayout = InterpreterLayout {
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    native_id: 160,
    current: CurrentFrame::Behind(56, 8),
    code: 32,
    previous: 48,
    instruction: 56,
    owner: 69,
    entry: Entry::Flag(68),
    file: 112,
    name: 128,
    first_line: 72,
    lines: 136,
    instructions: 184,
    text_length: 16,
    text_state: 32,
    ascii: 48,
    other: 72,
};

const V3_12: InterpreterLayout = InterpreterLayout {
    threads: 72,
    native_id: 144,
    current: CurrentFrame::Behind(56, 0),
    code: 0,
    previous: 8,
    owner: 70,
    entry: Entry::Owner(OWNED_BY_C),
    first_line: 68,
    instructions: 192,
    ascii: 40,
    other: 56,
    ..V3_11
};

impl InterpreterLayout {
    /// `version`: `PY_VERSION_HEX`, such as 0x030b02f0 for 3.11.2. `runtime`: `_PyRuntime`.
    pub fn of(version: u64, runtime: u64, memory: &mut ProcessMemory) -> Option<InterpreterLayout> {
        const FINAL: u64 = 0xf;
        let is_final = version >> 4 & 0xf == FINAL; // offsets still change before the final release
        match version >> 16 {
            _ if !is_final => None,
            0x30b => Some(V3_11),
            0x30c => Some(V3_12),
            0x30d => InterpreterLayout::told(version, runtime, memory),
            _ => None,
        }
    }

    /// Reads `_Py_DebugOffsets` of 3.13.
    fn told(version: u64, runtime: u64, memory: &mut ProcessMemory) -> Option<InterpreterLayout> {
        const COOKIE: [u8; 8] = *b"xdebugpy";
        const WORDS: usize = 81;
        let bytes = memory.up_to(runtime, WORDS * 8);
        let (words, _) = bytes.as_chunks::<8>();
        let plain = |index: usize| words.get(index).map(|bytes| u64::from_ne_bytes(*bytes));
        let is_known = words.first() == Some(&COOKIE) && plain(1) == Some(version) && plain(2) == Some(0); // not free-threaded
        if !is_known {
            return None;
        }
        let word = |index: usize| plain(index).filter(|&offset| offset < MAX_OFFSET);
        let ascii = word(UNICODE + 3)?;
        Some(InterpreterLayout {
            interpreters: word(RUNTIME + 2)?,
            next_interpreter: word(INTERPRETER + 2)?,
            threads: word(INTERPRETER + 3)?,
            next_thread: word(THREAD + 2)?,
            native_id: word(THREAD + 6)?,
            current: CurrentFrame::Direct(word(THREAD + 4)?),
            code: word(FRAME + 2)?,
            previous: word(FRAME + 1)?,
            instruction: word(FRAME + 3)?,
            owner: word(FRAME + 5)?,
            entry: Entry::Owner(OWNED_BY_C),
            file: word(CODE + 1)?,
            name: word(CODE + 3)?,
            first_line: word(CODE + 5)?,
            lines: word(CODE + 4)?,
            instructions: word(CODE + 9)?,
            text_length: word(UNICODE + 2)?,
            text_state: word(UNICODE + 1)?,
            ascii,
            other: ascii + 16,
        })
    }
}

/// Index of the first word of each part of `_Py_DebugOffsets`; each part begins with a size.
const RUNTIME: usize = 3;
const INTERPRETER: usize = RUNTIME + 3;
const THREAD: usize = INTERPRETER + 13;
const FRAME: usize = THREAD + 9;
const CODE: usize = FRAME + 6;
/// After the parts for object, type, tuple, list, dict, float, int and bytes.
const UNICODE: usize = CODE + 10 + 2 + 4 + 3 + 3 + 3 + 2 + 3 + 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    /// The words of 3.13.0, as far as they are read.
    fn told() -> Vec<u64> {
        let mut words = vec![0; 81];
        words[0] = u64::from_ne_bytes(*b"xdebugpy");
        words[1] = 0x030d_00f0;
        for (at, value) in [
            (RUNTIME + 2, 632),
            (INTERPRETER + 2, 7264),
            (INTERPRETER + 3, 7344),
            (THREAD + 2, 8),
            (THREAD + 4, 72),
            (THREAD + 6, 160),
            (FRAME + 1, 8),
            (FRAME + 3, 56),
            (FRAME + 5, 70),
            (CODE + 1, 112),
            (CODE + 3, 128),
            (CODE + 4, 136),
            (CODE + 5, 68),
            (CODE + 9, 200),
            (UNICODE + 1, 32),
            (UNICODE + 2, 16),
            (UNICODE + 3, 40),
        ] {
            words[at] = value;
        }
        words
    }

    fn layout(version: u64, words: &[u64]) -> Option<InterpreterLayout> {
        const AT: usize = 0x1000;
        let process = FixtureProcess::new(5);
        let mut bytes = vec![0; AT];
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        std::fs::write(process.path("mem"), bytes).unwrap();
        InterpreterLayout::of(version, AT as u64, &mut ProcessMemory::open(&process.host(), 5).unwrap())
    }

    #[test]
    fn versions_that_are_known() {
        for (version, is_known) in [
            (0x030b_02f0, true),
            (0x030c_01f0, true),
            (0x030d_00f0, true),
            (0x030a_0df0, false),
            (0x030c_00b2, false), // a beta
            (0x030e_00f0, false),
            (0x040b_02f0, false),
            (0, false),
            (u64::MAX, false),
        ] {
            assert_eq!(layout(version, &told()).is_some(), is_known, "{version:#x}");
        }
        let newest = InterpreterLayout { interpreters: 632, native_id: 160, instructions: 200, ..V3_12 };
        let newest =
            InterpreterLayout { next_interpreter: 7264, threads: 7344, current: CurrentFrame::Direct(72), ..newest };
        assert_eq!(layout(0x030d_00f0, &told()), Some(newest));
    }

    #[test]
    fn what_is_told_wrongly_is_not_believed() {
        for (at, value) in [(0, 1), (1, 0x030d_01f0), (2, 1), (RUNTIME + 2, MAX_OFFSET), (UNICODE + 3, u64::MAX)] {
            let mut words = told();
            words[at] = value;
            assert_eq!(layout(0x030d_00f0, &words), None, "{at}");
        }
        assert_eq!(layout(0x030d_00f0, &told()[..UNICODE + 3]), None);
    }
}
