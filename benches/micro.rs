//! The steps of a record's path, each alone and on one CPU, over rings in plain memory: ns per operation, the median of
//! several turns (minimum to maximum). Needs no privilege.

#[path = "micro/calls.rs"]
mod calls;
mod common;
#[path = "micro/merges.rs"]
mod merges;
#[path = "micro/walks.rs"]
mod walks;

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};

use common::Spread;
use perf_prof::event::{KeyExpr, KeyTexts};
use perf_prof::expr::Expr;
use perf_prof::perf::layout::Layout;
use perf_prof::perf::record::{Callchain, ChainForm};
use perf_prof::perf::sample_type::SampleType;
use perf_prof::stats::Distribution;
use perf_prof::symbol::budget::Budget;
use perf_prof::symbol::elf::symbols::SymbolOptions;
use perf_prof::symbol::{FrameNames, SpaceKeys, Stacks};
use perf_prof::tep::{Format, NoNames, PrintFmt};

const TURNS: usize = 9;
const OPERATIONS: u64 = 1_000_000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        println!("skipped: run it with `cargo bench`");
        return Ok(());
    }
    if args.iter().any(|arg| arg == "merge") {
        return merge(&Layout::new(SampleType::BASE.with(SampleType::RAW), 0));
    }
    let switch = sched_switch(7, 1_000);
    let plain = Layout::new(SampleType::BASE.with(SampleType::RAW), 0);
    decode("decode a sched_switch", &plain, &switch);
    let chained = Layout::new(SampleType::BASE.with(SampleType::CALLCHAIN).with(SampleType::RAW), 0);
    decode("decode it with a callchain of 24", &chained, &with_callchain(&switch));
    merge(&plain)?;
    format_text(&plain, &switch)?;
    expressions(&plain, &switch)?;
    distribution();
    stacks();
    walks::walk()?;
    kernel_names()
}

/// What depends on the number of CPUs; `cargo bench --bench micro -- merge` runs nothing else.
fn merge(plain: &Layout) -> Result<()> {
    for (rings, bunches) in [(1, &[1][..]), (2, &[1, 4, 32]), (16, &[1, 4, 32]), (128, &[1, 2, 4, 32]), (256, &[1, 32])]
    {
        for &bunch in bunches {
            merges::merge(rings, bunch, merges::RECORDS, plain)?;
        }
    }
    for rings in [1, 2, 16, 64, 256] {
        merges::merge(rings, 1, merges::MANY_RECORDS, plain)?;
    }
    for cpus in [1, 2, 4, 16, 64, 256] {
        for bunch in [1, 32] {
            calls::calls(cpus, bunch)?;
        }
    }
    Ok(())
}

/// Prints the time of one of `count` operations, done by `turn`.
fn report(what: &str, count: u64, mut turn: impl FnMut()) {
    let times: Vec<f64> = (0..TURNS)
        .map(|_| {
            let start = Instant::now();
            turn();
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    println!("{what:<40} {} ns", Spread::of(&times));
}

fn decode(what: &str, layout: &Layout, record: &[u8]) {
    report(what, OPERATIONS, || {
        for _ in 0..OPERATIONS {
            let sample = layout.sample_of_kind(layout.kind(), black_box(record));
            black_box(sample.is_ok_and(|sample| sample.raw.len() > 8));
        }
    });
}

fn format_text(layout: &Layout, record: &[u8]) -> Result<()> {
    let format = Format::parse("sched", SCHED_SWITCH)?;
    let text = PrintFmt::compile(&format)?;
    let sample = layout.sample(record).ok().context("a record of ours")?;
    let mut line = Vec::new();
    report("the kernel's text of a sched_switch", OPERATIONS, || {
        for _ in 0..OPERATIONS {
            line.clear();
            text.render(black_box(sample.raw), &NoNames, &mut line);
        }
    });
    assert!(
        String::from_utf8_lossy(&line).contains("prev_comm=nginx prev_pid=7 "),
        "{:?}",
        String::from_utf8_lossy(&line)
    );
    Ok(())
}

/// The value of an expression for a record: a key, a comparison of fields, one of texts.
fn expressions(layout: &Layout, record: &[u8]) -> Result<()> {
    let format = Format::parse("sched", SCHED_SWITCH)?;
    let sample = layout.sample(record).ok().context("a record of ours")?;
    for text in ["prev_pid", "prev_pid < next_pid", "prev_comm == \"nginx\"", "prev_comm ~ \"ng*\" && _cpu < 8"] {
        let program = Expr::parse(text)?.compile(&format)?;
        report(&format!("evaluate {text}"), OPERATIONS, || {
            for _ in 0..OPERATIONS {
                black_box(program.eval(black_box(&sample)));
            }
        });
        assert!(program.eval(&sample).is_some());
    }
    let mut texts = KeyTexts::default();
    for text in ["prev_pid", "prev_comm"] {
        let expr = Expr::parse(text)?;
        let key = KeyExpr::new(&expr, expr.compile(&format)?, &format);
        report(&format!("key={text}"), OPERATIONS, || {
            for _ in 0..OPERATIONS {
                let _ = black_box(key.key(black_box(&sample), &mut texts));
            }
        });
        assert!(key.key(&sample, &mut texts).is_ok());
    }
    Ok(())
}

fn distribution() {
    let mut distribution = Distribution::new();
    report("count a value in a distribution", OPERATIONS, || {
        for number in 0..OPERATIONS {
            distribution.record(black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40));
        }
    });
    assert_eq!(distribution.count(), OPERATIONS * TURNS as u64);
}

/// Callchains that were seen before, as nearly all are.
fn stacks() {
    const CHAINS: u64 = 1000;
    let mut stacks = Stacks::new(64 << 20, 127);
    let mut spaces = SpaceKeys::default();
    let chains: Vec<Vec<u8>> = (0..CHAINS).map(chain).collect();
    report("find a stack of 24 among 1000", OPERATIONS, || {
        for number in 0..OPERATIONS {
            let chain = &chains[(number.wrapping_mul(7919) % CHAINS) as usize];
            black_box(stacks.intern(Callchain::from_bytes(chain), ChainForm::default(), 7, &mut spaces));
        }
    });
}

fn kernel_names() -> Result<()> {
    const SYMBOLS: u64 = 100_000;
    let mut file = tempfile::NamedTempFile::new()?;
    for number in 0..SYMBOLS {
        writeln!(file, "{:016x} T function_{number}", KERNEL + number * 64)?;
    }
    file.flush()?;
    let options = SymbolOptions { demangle: true, debug_dirs: Vec::new(), budget: Budget::default() };
    let mut names = FrameNames::new(file.path(), options);
    names.read_kernel();
    report("name a kernel address seen before", OPERATIONS, || {
        for number in 0..OPERATIONS {
            black_box(names.kernel(KERNEL + number % 1000 * 640 + 8));
        }
    });
    let mut fresh = 0;
    report("name a new kernel address", 10_000, || {
        for _ in 0..10_000 {
            fresh += 1;
            black_box(names.kernel(KERNEL + fresh * 64 % (SYMBOLS * 64) + 4));
        }
    });
    Ok(())
}

const KERNEL: u64 = 0xffff_ffff_8100_0000;

const SCHED_SWITCH: &str = "\
name: sched_switch
ID: 300
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;

print fmt: \"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d\", \
REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & 0xff) ? __print_flags(REC->prev_state & 0xff, \"|\", \
{ 0x1, \"S\" }, { 0x2, \"D\" }, { 0x4, \"T\" }) : \"R\", REC->prev_state & 0x100 ? \"+\" : \"\", REC->next_comm, \
REC->next_pid, REC->next_prio
";

/// A sample with the fields of `SampleType::BASE` and the raw bytes.
fn sched_switch(tid: i32, time: u64) -> Vec<u8> {
    let mut raw = vec![0_u8; 64];
    raw[0..2].copy_from_slice(&300_u16.to_ne_bytes());
    raw[4..8].copy_from_slice(&tid.to_ne_bytes());
    raw[8..13].copy_from_slice(b"nginx");
    raw[24..28].copy_from_slice(&tid.to_ne_bytes());
    raw[28..32].copy_from_slice(&120_i32.to_ne_bytes());
    raw[32..40].copy_from_slice(&1_u64.to_ne_bytes());
    raw[40..44].copy_from_slice(b"java");
    raw[56..60].copy_from_slice(&(tid + 1).to_ne_bytes());
    raw[60..64].copy_from_slice(&120_i32.to_ne_bytes());
    let mut body = Vec::new();
    for word in [1_u64.to_ne_bytes(), pair(7, tid as u32), time.to_ne_bytes(), pair(1, 0)] {
        body.extend_from_slice(&word);
    }
    with_header(&body, &raw)
}

/// A record of type 9 (sample): header, `body`, and the raw bytes with their size, padded.
fn with_header(body: &[u8], raw: &[u8]) -> Vec<u8> {
    let size = (8 + body.len() + 4 + raw.len()).next_multiple_of(8);
    let raw_size = size - 8 - body.len() - 4;
    let mut record = Vec::with_capacity(size);
    record.extend_from_slice(&9_u32.to_ne_bytes());
    record.extend_from_slice(&1_u16.to_ne_bytes());
    record.extend_from_slice(&(size as u16).to_ne_bytes());
    record.extend_from_slice(body);
    record.extend_from_slice(&(raw_size as u32).to_ne_bytes());
    record.extend_from_slice(raw);
    record.resize(size, 0);
    record
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut word = [0; 8];
    word[..4].copy_from_slice(&first.to_ne_bytes());
    word[4..].copy_from_slice(&second.to_ne_bytes());
    word
}

fn with_callchain(record: &[u8]) -> Vec<u8> {
    let chain = chain(1);
    let mut body = record[8..40].to_vec();
    body.extend_from_slice(&(chain.len() as u64 / 8).to_ne_bytes());
    body.extend_from_slice(&chain);
    with_header(&body, &record[44..])
}

/// A callchain of the kernel: the marker and 24 addresses.
fn chain(seed: u64) -> Vec<u8> {
    const IN_KERNEL: u64 = -128_i64 as u64;
    let addresses = (0..24).map(|depth| KERNEL + (seed * 31 + depth) * 1024);
    [IN_KERNEL].into_iter().chain(addresses).flat_map(u64::to_ne_bytes).collect()
}
