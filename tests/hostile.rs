//! Hostile bytes: the corpora of the fuzz targets, replayed through the functions of the targets.
//!
//! `fuzz/README.md` says how to search for more inputs.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, setrlimit};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Limit of address space for the whole replay: a false count must not become an allocation.
const MAX_MEMORY_BYTES: u64 = 2 << 30;
/// Mixtures of inputs of the corpus that are replayed, for each target.
const MIXTURES: usize = 1000;

fn corpus(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn replay(target: &str, run: fn(&[u8])) {
    setrlimit(Resource::RLIMIT_AS, MAX_MEMORY_BYTES, MAX_MEMORY_BYTES).unwrap();
    let files = corpus(target);
    assert!(!files.is_empty(), "{target} has a corpus");
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (file, bytes) in files.iter().zip(&corpus) {
        println!("{}", file.display()); // seen when it fails
        run(bytes);
        // Then the input cut short, and with a bit flipped.
        let step = (bytes.len() / 64).max(1);
        for at in (0..bytes.len()).step_by(step) {
            run(&bytes[..at]);
            let mut turned = bytes.clone();
            turned[at] ^= 1 << (at % 8);
            run(&turned);
        }
    }
    // The same mixtures in every run.
    let mut random = TestRng::deterministic_rng(RngAlgorithm::XorShift);
    for _ in 0..MIXTURES {
        let mixed = mix(&corpus, &mut random);
        println!("{}", mixed.escape_ascii());
        run(&mixed);
    }
}

/// The start of one input, the end of another, with some bytes overwritten.
fn mix(corpus: &[Vec<u8>], random: &mut TestRng) -> Vec<u8> {
    const WORDS: [&[u8]; 8] = [&[0], &[0xff], &[0xff; 8], &[0; 4], b"18446744073709551615", b"-1", b"%", b"\n"];
    let mut below = |end: usize| random.next_u32() as usize % end.max(1);
    let (front, end) = (&corpus[below(corpus.len())], &corpus[below(corpus.len())]);
    let mut mixed = front[..below(front.len() + 1)].to_vec();
    mixed.extend_from_slice(&end[below(end.len() + 1)..]);
    for _ in 0..below(4) {
        let (at, word) = (below(mixed.len() + 1), WORDS[below(WORDS.len())]);
        let to = mixed.len().min(at + below(word.len() + 1));
        mixed.splice(at..to, word.iter().copied());
    }
    mixed
}

macro_rules! replays {
    ($($target:ident)*) => {
        /// Targets that have a test below.
        const TARGETS: &[&str] = &[$(stringify!($target)),*];

        $(#[test]
        fn $target() {
            replay(stringify!($target), targets::$target::run);
        })*
    };
}

replays! { demangle elf expr filter format http kallsyms merge named perf_map print_fmt probe_args proc_files record ring selector values waits walk }

/// Each target is in the fuzz package, has a corpus that is small, and is replayed here.
#[test]
fn every_target_is_replayed() {
    const MAX_FILES: usize = 40;
    const MAX_BYTES: u64 = 100 << 10;
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut names: Vec<String> = fs::read_dir(fuzz.join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, TARGETS);
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let mut bytes = 0;
    for name in names {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let target = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("perf_prof_fuzz::{name}::run(data)")), "{name} is not what is replayed");
        let files = corpus(&name);
        assert!((1..=MAX_FILES).contains(&files.len()), "{name} has {} files", files.len());
        bytes += files.iter().map(|file| fs::metadata(file).unwrap().len()).sum::<u64>();
    }
    assert!(bytes <= MAX_BYTES, "{bytes} bytes of corpora");
}
