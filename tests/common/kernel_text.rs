//! Our text of events against the kernel's own: what `trace --json` printed, and what a `trace` file of tracefs holds of the
//! same load.
//!
//! Known exceptions: values computed from kernel addresses (`page=`); the preempt count in the latency flags, which is one
//! higher in perf's records (it is not part of the text).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use perf_prof::output::escape::escape;

/// Interrupts may swap neighbours: the order is looked at no closer than this.
const SLACK: usize = 64;
/// As many differences are shown.
const MOST_WRONG: usize = 40;

/// By event (without its system, which the kernel does not print) and CPU. Not by task: one that has been reaped has no
/// tid in perf's records.
pub type Texts = BTreeMap<(String, u64), VecDeque<String>>;

/// The texts of a `trace` file, in order, as they are compared.
pub fn texts(trace: &[u8]) -> Texts {
    let mut texts = Texts::new();
    for line in trace.split(|&byte| byte == b'\n') {
        if let Some((key, text)) = parse(&String::from_utf8_lossy(line)) {
            texts.entry(key).or_default().push_back(text);
        }
    }
    texts
}

/// `  bash-6997    [001] ..... 12465.569987: sched_waking: comm=x`
fn parse(line: &str) -> Option<((String, u64), String)> {
    if line.starts_with('#') {
        return None;
    }
    let (cpu, rest) = line.match_indices(" [").find_map(|(at, _)| {
        let (cpu, rest) = line[at + 2..].split_once("] ")?;
        Some((cpu.parse::<u64>().ok()?, rest))
    })?;
    let (_flags_and_time, rest) = rest.split_once(": ")?;
    let (event, text) = rest.split_once(':')?;
    let text = text.strip_prefix(' ').unwrap_or(text).trim_end();
    Some(((event.to_owned(), cpu), comparable(&escape(text.as_bytes()))))
}

/// The text without what is a known exception.
fn comparable(text: &str) -> String {
    let mask = |word: &str| match word.split_once('=') {
        Some(("page", _)) => "page=*".to_owned(),
        _ => word.to_owned(),
    };
    text.split(' ').map(mask).collect::<Vec<_>>().join(" ")
}

/// Each text of ours must be among the kernel's for the same event and CPU, in about the same order.
pub fn compare(ours: &str, mut theirs: Texts) -> BTreeSet<String> {
    let (mut compared, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    for line in ours.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if object["type"] == "end" {
            assert_eq!((&object["lost"], &object["lost_output"]), (&0.into(), &0.into()), "{line}");
        }
        if object["type"] != "event" {
            continue;
        }
        let name = object["event"].as_str().expect("a name");
        let key = (name.split_once(':').expect("a system").1.to_owned(), object["cpu"].as_u64().expect("a CPU"));
        let ours = comparable(object["text"].as_str().expect("a text"));
        let list = theirs.entry(key).or_default();
        match list.iter().position(|text| *text == ours) {
            Some(at) => {
                list.remove(at);
                list.drain(..at.saturating_sub(SLACK));
                *compared.entry(name.to_owned()).or_default() += 1;
            }
            None if wrong.len() >= MOST_WRONG => break,
            None => wrong.push(format!("{name}\n  ours   {ours}\n  kernel {:?}", list.front())),
        }
    }
    let total: usize = compared.values().sum();
    println!("{total} records of {} events compared, {} differ", compared.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared.into_keys().collect()
}
