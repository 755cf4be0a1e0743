//! Synthetic interpreters, built word by word, some with corrupt contents.

use proptest::prelude::*;

use super::*;
use crate::task::fixture::FixtureProcess;

#[test]
fn files_of_interpreters() {
    let line = |offset: &str, path: &str| format!("00400000-0041f000 r--p {offset} fe:00 1234    {path}");
    let cases = [
        (line("00000000", "/usr/bin/python3.11"), Some(0x40_0000)),
        (line("00000000", "/a b/lib/libpython3.12.so.1.0"), Some(0x40_0000)),
        (line("00001000", "/usr/bin/python3.11"), None),
        (line("00000000", "/usr/lib/python3.11/lib-dynload/_x.so"), None),
        (line("00000000", "/usr/bin/python3"), None),
        (line("00000000", "/usr/lib/libpython3.so"), None),
        (line("00000000", "/usr/bin/perl"), None),
        (line("00000000", ""), None),
        ("python3.11".to_owned(), None),
        ("x /python3.1".to_owned(), None),
    ];
    for (line, want) in cases {
        assert_eq!(python_base(line.as_bytes()), want, "{line}");
    }
}

/// Addresses of the parts of the synthetic interpreter.
const BASE: usize = 0x1000;
const DYNAMIC: usize = 0x1200;
const SYMBOLS: usize = 0x1300;
const NAMES: usize = 0x1600;
const HASH: usize = 0x1800;
const VERSION: usize = 0x1a00;
const RUNTIME: usize = 0x1b00;
const TYPES: [usize; 3] = [0x1c00, 0x1c10, 0x1c20]; // of code, text, bytes
const INTERPRETER: usize = 0x2000;
const OTHER_THREAD: usize = 0x2100;
const THREAD: usize = 0x2200;
const C_FRAME: usize = 0x2300;
const INNER: usize = 0x2400;
const OUTER: usize = 0x2480;
const SHIM: usize = 0x2500;
const CODE: [usize; 2] = [0x2600, 0x2700];
const NAME: [usize; 2] = [0x2900, 0x2a00];
const FILE: usize = 0x2b00;
const LINES: usize = 0x2c00;
const END: usize = 0x3000;

const TID: u64 = 7;

/// Memory that begins at address 0.
struct Made(Vec<u8>);

impl Made {
    /// An interpreter of version 3.12, in which `g` calls `f\u{e9}`.
    fn new() -> Made {
        let mut made = Made(vec![0; END]);
        made.elf();
        made.word(VERSION, 0x030c_01f0).word(RUNTIME + 40, INTERPRETER).word(INTERPRETER + 72, OTHER_THREAD);
        made.word(OTHER_THREAD + 8, THREAD).word(OTHER_THREAD + 144, 6);
        made.word(THREAD + 144, TID as usize).word(THREAD + 56, C_FRAME).word(C_FRAME, INNER);
        for (at, code, next, instruction) in
            [(INNER, CODE[0], OUTER, 2), (OUTER, CODE[1], SHIM, 0), (SHIM, CODE[1], 0, 0)]
        {
            made.word(at, code).word(at + 8, next).word(at + 56, code + 192 + instruction);
        }
        made.0[SHIM + 70] = 3;
        for (code, name, line) in [(CODE[0], NAME[0], 10), (CODE[1], NAME[1], 20)] {
            made.word(code + 8, TYPES[0]).word(code + 112, FILE).word(code + 128, name).word(code + 136, LINES);
            made.0[code + 68] = line;
        }
        let ascii = 1 << 6;
        made.text(NAME[0], 1 << 2, 56, b"f\xe9").text(NAME[1], 1 << 2 | ascii, 40, b"g");
        made.text(FILE, 1 << 2 | ascii, 40, b"/a.py");
        // One instruction in the first line, then one in the next.
        let lines = [0x80 | 10 << 3, 0, 0, 0x80 | 11 << 3, 0, 0];
        made.word(LINES + 8, TYPES[2]).word(LINES + 16, lines.len());
        made.0[LINES + 32..][..lines.len()].copy_from_slice(&lines);
        made
    }

    fn word(&mut self, at: usize, value: usize) -> &mut Made {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn half(&mut self, at: usize, value: u32) -> &mut Made {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn text(&mut self, at: usize, state: u32, data: usize, text: &[u8]) -> &mut Made {
        self.word(at + 8, TYPES[1]).word(at + 16, text.len()).half(at + 32, state | 1 << 5);
        self.0[at + data..][..text.len()].copy_from_slice(text);
        self
    }

    /// A header, segments, and symbols with one bucket for all.
    fn elf(&mut self) {
        self.0[BASE..BASE + 6].copy_from_slice(b"\x7fELF\x02\x01");
        self.word(BASE + 32, 64);
        self.0[BASE + 54] = 56;
        self.0[BASE + 56] = 2;
        self.half(BASE + 64, 1).half(BASE + 64 + 56, 2).word(BASE + 64 + 56 + 16, DYNAMIC - BASE);
        for (at, (tag, value)) in [(5, NAMES), (6, SYMBOLS), (0x6fff_fef5, HASH)].into_iter().enumerate() {
            self.word(DYNAMIC + at * 16, tag).word(DYNAMIC + at * 16 + 8, value - BASE);
        }
        let symbols = [
            ("other", 0),
            ("Py_Version", VERSION),
            ("_PyRuntime", RUNTIME),
            ("_PyEval_EvalFrameDefault", 0x9000),
            ("PyCode_Type", TYPES[0]),
            ("PyUnicode_Type", TYPES[1]),
            ("PyBytes_Type", TYPES[2]),
        ];
        self.half(HASH, 1).half(HASH + 4, 1).half(HASH + 8, 1).half(HASH + 24, 1);
        let mut name_at = 1;
        for (index, (name, address)) in symbols.into_iter().enumerate() {
            let symbol = SYMBOLS + (index + 1) * 24;
            self.half(symbol, name_at as u32).word(symbol + 8, address.saturating_sub(BASE)).word(symbol + 16, 100);
            self.0[symbol + 6] = u8::from(address > 0);
            self.0[NAMES + name_at..][..name.len()].copy_from_slice(name.as_bytes());
            name_at += name.len() + 1;
            let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
            let is_last = index + 1 == symbols.len();
            self.half(HASH + 28 + index * 4, hash & !1 | u32::from(is_last));
        }
    }

    fn stack(&self) -> Option<PythonStack> {
        let process = FixtureProcess::new(5);
        fs::write(process.path("mem"), &self.0).unwrap();
        let mut memory = ProcessMemory::open(&process.host(), 5).unwrap();
        let runtime = PythonRuntime::at(BASE as u64, &mut memory)?;
        frames::of_thread(&runtime, TID as i32, &mut memory)
    }
}

#[test]
fn frames_of_a_thread() {
    let frame = |function: &str, line, ends_call| PythonFrame {
        function: function.into(),
        file: "/a.py".into(),
        line: Some(line),
        ends_call,
    };
    let want = PythonStack {
        frames: vec![frame("f\u{e9}", 11, false), frame("g", 20, true)],
        cut: false,
        interpreter: 0x9000..0x9064,
    };
    assert_eq!(Made::new().stack(), Some(want));
}

#[test]
fn what_does_not_fit_is_not_believed() {
    let cases: [(&str, usize, usize); 11] = [
        ("no ELF file", BASE, 0),
        ("a version that is not known", VERSION, 0x030a_01f0),
        ("a thread that is not there", THREAD + 144, 8),
        ("a frame that is nowhere", C_FRAME, 0x1234_5678_9abc),
        ("code of another type", CODE[0] + 8, TYPES[1]),
        ("a name of another type", NAME[0] + 8, TYPES[0]),
        ("a name that is too long", NAME[0] + 16, usize::MAX),
        ("a name without characters", NAME[0] + 16, 0),
        ("a name at the end", CODE[1] + 128, END - 16),
        ("an address at the end of all", CODE[1] + 128, usize::MAX - 4),
        ("threads that go round", OTHER_THREAD + 8, OTHER_THREAD),
    ];
    for (what, at, value) in cases {
        let mut made = Made::new();
        made.word(at, value);
        assert_eq!(made.stack(), None, "{what}");
    }
}

#[test]
fn frames_that_go_round_are_cut() {
    let mut made = Made::new();
    made.word(OUTER + 8, INNER);
    let stack = made.stack().unwrap();
    assert!(stack.cut && stack.frames.len() == 512, "{}", stack.frames.len());
    let mut made = Made::new();
    made.word(SHIM + 8, SHIM);
    let stack = made.stack().unwrap();
    assert!(stack.cut && stack.frames.len() == 2);
    // Without a table of lines, the functions stay.
    let mut made = Made::new();
    made.word(LINES + 8, 0);
    assert!(made.stack().unwrap().frames.iter().all(|frame| frame.line.is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the memory contains, the result is bounded.
    #[test]
    fn memory_may_lie(lies in prop::collection::vec((BASE / 8..END / 8, any::<prop::sample::Index>(), any::<u64>()), 1..6)) {
        let pointers = [0, BASE, RUNTIME, INTERPRETER, THREAD, INNER, CODE[0], NAME[0], LINES, END - 1, usize::MAX];
        let mut made = Made::new();
        for (at, pointer, noise) in lies {
            let value = if noise & 1 == 0 { *pointer.get(&pointers) } else { noise as usize };
            made.word(at * 8, value);
        }
        if let Some(stack) = made.stack() {
            prop_assert!(stack.frames.len() <= 512);
            prop_assert!(stack.frames.iter().all(|frame| frame.function.len() <= 256 && frame.file.len() <= 256));
        }
    }
}
