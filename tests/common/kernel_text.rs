//! perf-prof's text of events against the kernel's own: what `trace --json` printed, and what a `trace` file of tracefs
//! holds of the same load, with `mono` for its clock.
//!
//! A record of ours and a line of the kernel's are the same occurrence when event, CPU, time and text are the same. The
//! two tracers look at the clock one after the other, so the times differ by a moment: see [`NEAR_US`]. Where the texts
//! cannot be the same, [`DIFFERENT`] says why, and must stay true.
#![allow(dead_code)] // each test binary uses a part

use std::collections::{BTreeMap, BTreeSet};

use perf_prof::escape::escape;

/// Longest time between the two readings of the clock. Half a microsecond is usual; an interrupt between them, or
/// another guest on the same CPU, makes it milliseconds, and an emulated CPU of a busy machine may stand still for
/// seconds.
const NEAR_US: u64 = 10_000_000;
/// Records of one event that are searched on either side at first.
const NEIGHBOURS: usize = 256;
/// Differences shown of one event.
const MAX_SHOWN: usize = 2;
/// One record in this many may share its line with another: the kernel's tracer leaves one out when an interrupt comes
/// at a bad moment, of which more than enough are the same.
const SHARED_ONE_OF: usize = 1000;
/// A rare difference is in one record, or in one of this many.
const RARE_ONE_OF: usize = 10;

/// Events whose texts differ in the word behind this text, and why nothing can be done about it.
struct Different {
    behind: &'static str,
    events: &'static str,
    when: When,
    reason: &'static str,
}

#[derive(PartialEq)]
enum When {
    /// In each record that has the word.
    Always,
    /// In some records.
    Sometimes,
    /// The kernel fills its record in anew for each tracer, and there it takes what may change between them: a count of
    /// ticks, say, while an emulated CPU stands still.
    Rarely,
}

const DIFFERENT: &[Different] = &[
    Different {
        behind: "page=",
        events: "kmem:mm_page_alloc kmem:mm_page_alloc_extfrag kmem:mm_page_alloc_zone_locked kmem:mm_page_free
            kmem:mm_page_free_batched kmem:mm_page_pcpu_drain filemap:mm_filemap_add_to_page_cache
            filemap:mm_filemap_delete_from_page_cache vmscan:mm_vmscan_write_folio vmscan:mm_vmscan_writepage",
        when: When::Always,
        reason: "computed from where the kernel has its table of pages; ours shows what it is computed from",
    },
    Different {
        behind: "age=",
        events: "writeback:writeback_sb_inodes_requeue writeback:writeback_single_inode
            writeback:writeback_single_inode_start",
        when: When::Always,
        reason: "the kernel computes it from the moment when the text is read",
    },
    Different {
        behind: "address=",
        events: "exceptions:page_fault_user",
        when: When::Sometimes,
        reason: "the kernel takes the page of old system calls for its own, and names it after its very last symbol",
    },
    Different { behind: "ip=", events: "exceptions:page_fault_user", when: When::Sometimes, reason: "as its address" },
    Different {
        behind: "gw ",
        events: "fib:fib_table_lookup",
        when: When::Sometimes,
        reason: "the kernel sets no gateway of a route without one: the bytes are left over, in each tracer from others",
    },
    Different {
        behind: "primary_key6 ",
        events: "neigh:neigh_create",
        when: When::Sometimes,
        reason: "the kernel leaves the bytes of an IPv6 address unset in a record about IPv4",
    },
    Different {
        behind: "new_lladdr ",
        events: "neigh:neigh_update",
        when: When::Sometimes,
        reason: "the kernel leaves the bytes of a new address unset when there is none",
    },
    Different { behind: " paused=", events: "writeback:balance_dirty_pages", when: When::Rarely, reason: TICKS },
    Different { behind: " think=", events: "writeback:balance_dirty_pages", when: When::Rarely, reason: TICKS },
    Different { behind: " age=", events: "writeback:writeback_queue_io", when: When::Rarely, reason: TICKS },
    Different { behind: "[timeout=", events: "timer:timer_start", when: When::Rarely, reason: TICKS },
    Different { behind: " now=", events: "timer:timer_expire_entry", when: When::Rarely, reason: TICKS },
    Different { behind: "dirty=", events: "writeback:global_dirty_state", when: When::Rarely, reason: COUNTS },
    Different { behind: " writeback=", events: "writeback:global_dirty_state", when: When::Rarely, reason: COUNTS },
    Different { behind: " dirtied=", events: "writeback:global_dirty_state", when: When::Rarely, reason: COUNTS },
    Different { behind: " written=", events: "writeback:global_dirty_state", when: When::Rarely, reason: COUNTS },
    Different { behind: " size=", events: "kmem:rss_stat", when: When::Rarely, reason: COUNTS },
    Different {
        behind: " state ",
        events: "writeback:sb_clear_inode_writeback writeback:sb_mark_inode_writeback writeback:writeback_lazytime
            writeback:writeback_lazytime_iput writeback:writeback_dirty_inode_enqueue",
        when: When::Rarely,
        reason: INODE,
    },
    Different {
        behind: " state=",
        events: "writeback:writeback_dirty_inode writeback:writeback_dirty_inode_start writeback:writeback_mark_inode_dirty",
        when: When::Rarely,
        reason: INODE,
    },
    Different {
        behind: " state=",
        events: "writeback:writeback_sb_inodes_requeue writeback:writeback_single_inode
            writeback:writeback_single_inode_start",
        when: When::Sometimes,
        reason: INODE,
    },
];

const TICKS: &str = "taken from a count of ticks, for each tracer anew";
const COUNTS: &str = "a count that other CPUs change, taken for each tracer anew";
const INODE: &str = "the state of an inode that other CPUs change, taken for each tracer anew";

/// One line of the kernel's.
#[derive(Debug)]
struct Line {
    time_us: u64,
    text: String,
    taken: bool,
}

impl Line {
    fn is_near(&self, time_us: u64) -> bool {
        self.time_us.abs_diff(time_us) <= NEAR_US
    }
}

/// By event (without its system, which the kernel does not print) and CPU. Not by task: one that has been reaped has no
/// tid in perf's records.
#[derive(Debug, Default)]
pub struct Trace(BTreeMap<(String, u64), Vec<Line>>);

impl Trace {
    /// Of a `trace` file.
    pub fn of(trace: &[u8]) -> Trace {
        let mut all = Trace::default();
        for line in trace.split(|&byte| byte == b'\n') {
            if let Some((event, cpu, line)) = parse(&String::from_utf8_lossy(line)) {
                all.0.entry((event, cpu)).or_default().push(line);
            }
        }
        all.0.values_mut().for_each(|lines| lines.sort_by_key(|line| line.time_us)); // interrupts swap neighbours
        all
    }

    /// The names of all events in it.
    pub fn events(&self) -> BTreeSet<&str> {
        self.0.keys().map(|(event, _)| event.as_str()).collect()
    }
}

/// `  bash-6997    [001] ..... 12465.569987: sched_waking: comm=x`
fn parse(line: &str) -> Option<(String, u64, Line)> {
    if line.starts_with('#') {
        return None;
    }
    let (cpu, rest) = line.match_indices(" [").find_map(|(at, _)| {
        let (cpu, rest) = line[at + 2..].split_once("] ")?;
        Some((cpu.parse::<u64>().ok()?, rest))
    })?;
    let (flags_and_time, rest) = rest.split_once(": ")?;
    let (seconds, micros) = flags_and_time.rsplit(' ').next()?.split_once('.')?;
    let time_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let (event, text) = system_call(rest).or_else(|| {
        let (event, text) = rest.split_once(':')?;
        let text = text.strip_prefix(' ').unwrap_or(text);
        Some((event.to_owned(), escape(text.trim_end().as_bytes())))
    })?;
    Some((event, cpu, Line { time_us, text, taken: false }))
}

/// `sys_openat(dfd: 0xffffff9c, filename: 0x7ffd)` and `sys_openat -> 0x3`: the kernel does not print these events by
/// their `print fmt`. What it prints is turned into that form.
fn system_call(rest: &str) -> Option<(String, String)> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = rest.split_at(end);
    let name = name.strip_prefix("sys_")?;
    match rest.trim_end().strip_prefix(" -> ") {
        Some(result) => Some((format!("sys_exit_{name}"), values(result)?)),
        None => {
            let arguments = rest.trim_end().strip_prefix('(')?.strip_suffix(')')?;
            Some((format!("sys_enter_{name}"), values(arguments)?))
        }
    }
}

/// Names and values, with each value in one way of writing: `%lx` here, `0x%08lx` there.
fn values(text: &str) -> Option<String> {
    let value = |part: &str| -> Option<String> {
        let (name, value) = part.rsplit_once(": ").unwrap_or(("", part));
        let value = u64::from_str_radix(value.strip_prefix("0x").unwrap_or(value), 16).ok()?;
        Some(format!("{name}: {value:#x}"))
    };
    let parts: Option<Vec<String>> = text.split(", ").filter(|part| !part.is_empty()).map(value).collect();
    Some(parts?.join(", "))
}

/// The text without the word behind each of these.
fn without(text: &str, behind: &[&str]) -> String {
    let mut text = text.to_owned();
    for behind in behind {
        if let Some((before, after)) = text.split_once(behind) {
            let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
            text = format!("{before}{behind}* {rest}");
        }
    }
    text
}

/// A record of ours.
struct Record<'a> {
    time_us: u64,
    cpu: u64,
    event: &'a str,
    text: String,
}

impl Record<'_> {
    /// Only of an event, and without reading all of the JSON: there are very many, and debug builds are slow at it. A
    /// quote in a string has a backslash before it, so a key cannot be part of one.
    fn of(line: &str) -> Option<Record<'_>> {
        if !line.starts_with(r#"{"type":"event""#) {
            return None;
        }
        let behind = |key: &str| Some(line.split_once(key)?.1);
        let number = |key: &str| behind(key)?.split_once(',')?.0.parse::<u64>().ok();
        let text = behind(r#","text":"#)?;
        let text = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>().next()?.ok()?;
        let event = behind(r#","event":""#)?.split_once('"')?.0;
        // The text of a call has names in place of numbers.
        let text = match event.strip_prefix("syscalls:sys_") {
            Some(call) => arguments(behind(r#","fields":{"#)?, call.starts_with("enter"))?,
            None => text.as_str()?.to_owned(),
        };
        let record = Record { time_us: number(r#","time_ns":"#)? / 1000, cpu: number(r#","cpu":"#)?, event, text };
        Some(record)
    }
}

/// The arguments of a call as the kernel has them, from what follows `"fields":{`: names and numbers, or numbers in quotes. What it
/// returns has no name.
fn arguments(fields: &str, are_named: bool) -> Option<String> {
    let fields = fields.split_once('}')?.0.split(',').skip(1); // the number of the call
    let value = |value: &str| match value.trim_matches('"') {
        hex if hex.starts_with("0x") => u64::from_str_radix(&hex[2..], 16).ok(),
        number if number.starts_with('-') => Some(number.parse::<i64>().ok()?.cast_unsigned()),
        number => number.parse().ok(),
    };
    let field = |field: &str| {
        let (name, number) = field.split_once(':')?;
        let name = if are_named { name.trim_matches('"') } else { "" };
        Some(format!("{name}: {:#x}", value(number)?))
    };
    fields.map(field).collect::<Option<Vec<String>>>().map(|fields| fields.join(", "))
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Compared {
    /// Records by event.
    pub events: BTreeMap<String, usize>,
    /// Of these, the ones with a difference that is known.
    known: BTreeMap<String, usize>,
    /// Of these, the ones whose line is that of another record, too.
    shared: usize,
    wrong: BTreeMap<String, Vec<String>>,
}

impl Compared {
    /// Each record of perf-prof must be a line of the kernel. Returns the kernel's lines of system calls without a
    /// record, between the first and the last record.
    ///
    /// Of other events the kernel has more: a task's end takes perf away before much of it happens, and at a switch of
    /// tasks perf comes last.
    pub fn add(&mut self, ours: &str, mut theirs: Trace) -> Vec<String> {
        let (mut first, mut last) = (u64::MAX, 0);
        for line in ours.lines() {
            if line.starts_with(r#"{"type":"end""#) {
                let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
                assert_eq!((&object["lost"], &object["lost_output"]), (&0.into(), &0.into()), "{line}");
            }
            if let Some(record) = Record::of(line) {
                (first, last) = (first.min(record.time_us), last.max(record.time_us));
                self.add_one(&record, &mut theirs);
            }
        }
        let calls = theirs.0.iter().filter(|((event, _), _)| event.starts_with("sys_"));
        let lines = calls.flat_map(|((event, _), lines)| lines.iter().map(move |line| (event, line)));
        let unseen = lines.filter(|(_, line)| !line.taken && line.time_us > first && line.time_us < last);
        unseen.map(|(event, line)| format!("{event} at {}: {}", line.time_us, line.text)).collect()
    }

    fn add_one(&mut self, record: &Record, theirs: &mut Trace) {
        let &Record { time_us, cpu, event: name, ref text } = record;
        let (system, event) = name.split_once(':').expect("a system");
        let text = match system {
            "syscalls" => values(text).unwrap_or_else(|| panic!("{name}: {text}")),
            _ => text.trim_end().to_owned(),
        };
        let key = (event.to_owned(), cpu);
        let lines = theirs.0.entry(key).or_default();
        let behind: Vec<&str> = different(name).map(|different| different.behind).collect();
        let masked = without(&text, &behind);
        let is_known = |line: &Line| !behind.is_empty() && without(&line.text, &behind) == masked;
        let same = nearest(lines, time_us, |line| !line.taken && line.text == text);
        let found = same.or_else(|| nearest(lines, time_us, |line| !line.taken && is_known(line)));
        // An interrupt between the tracers makes the next of a thousand same calls the nearest one, and so on to the
        // last.
        let found =
            found.or_else(|| lines.iter().position(|line| !line.taken && line.text == text && line.is_near(time_us)));
        *self.events.entry(name.to_owned()).or_default() += 1;
        match found {
            Some(at) => {
                lines[at].taken = true;
                if lines[at].text != text {
                    *self.known.entry(name.to_owned()).or_default() += 1;
                }
                let stale = |entry: &&Different| entry.when == When::Always && text.contains(entry.behind);
                if let Some(entry) = different(name).find(stale).filter(|_| lines[at].text == text) {
                    let text = format!("{name} at {time_us}\n  both   {text}, but listed: {}", entry.reason);
                    self.wrong.entry(name.to_owned()).or_default().push(text);
                }
            }
            None if nearest(lines, time_us, |line| line.text == text || is_known(line)).is_some() => self.shared += 1,
            None => {
                let closest = nearest(lines, time_us, |_| true).map(|at| &lines[at].text);
                let text = format!("{name} at {time_us}\n  ours   {text}\n  kernel {closest:?}");
                self.wrong.entry(name.to_owned()).or_default().push(text);
            }
        }
    }

    /// The events with unknown differences.
    pub fn wrong(&self) -> Vec<String> {
        self.wrong.keys().cloned().collect()
    }

    /// Lets go of the differences of all events that had none when they were looked at `again`. The kernel fills its
    /// record in for each tracer anew: what changes in that moment differs once, what we decode wrongly does each time.
    pub fn confirm(&mut self, again: &Compared) {
        self.wrong.retain(|event, all| {
            let differs = !again.events.contains_key(event) || again.wrong.contains_key(event);
            if !differs {
                println!("once, and not again: {}", all.join("\n"));
            }
            differs
        });
    }

    /// Number of events of system calls, and of others.
    pub fn kinds(&self) -> (usize, usize) {
        let calls = self.events.keys().filter(|name| name.starts_with("syscalls:")).count();
        (calls, self.events.len() - calls)
    }

    /// Adds what another look has seen.
    pub fn join(&mut self, other: Compared) {
        let add = |sums: &mut BTreeMap<String, usize>, more: BTreeMap<String, usize>| {
            more.into_iter().for_each(|(event, count)| *sums.entry(event).or_default() += count);
        };
        add(&mut self.events, other.events);
        add(&mut self.known, other.known);
        self.shared += other.shared;
        other.wrong.into_iter().for_each(|(event, all)| self.wrong.entry(event).or_default().extend(all));
    }

    /// Asserts that there are only known differences. Prints how much was compared, and known differences that did not
    /// occur.
    /// Returns the number of events of system calls, and of others.
    pub fn check(&self) -> (usize, usize) {
        let records: usize = self.events.values().sum();
        let (calls, others) = self.kinds();
        let events = calls + others;
        println!("{records} records of {events} events compared, {calls} of them of system calls");
        let known: usize = self.known.values().sum();
        println!("{known} differ as known, {} share a line: {:?}", self.shared, self.known);
        let shown: Vec<&str> =
            self.wrong.values().flat_map(|all| all.iter().take(MAX_SHOWN)).map(String::as_str).collect();
        assert!(shown.is_empty(), "{} events differ:\n{}", self.wrong.len(), shown.join("\n"));
        assert!(self.shared * SHARED_ONE_OF <= records, "{} of {records} have no line", self.shared);
        for Different { events, reason, .. } in DIFFERENT.iter().filter(|entry| entry.when == When::Rarely) {
            for event in events.split_whitespace() {
                let (all, known) = (self.events.get(event).unwrap_or(&0), self.known.get(event).unwrap_or(&0));
                assert!(
                    *known <= 1 + all / RARE_ONE_OF,
                    "{event}: {known} of {all} differ, which should be rare: {reason}"
                );
            }
        }
        for Different { events, reason, .. } in DIFFERENT.iter().filter(|entry| entry.when == When::Sometimes) {
            let is_same = |event: &&str| self.events.contains_key(*event) && !self.known.contains_key(*event);
            let all = events.split_whitespace().filter(is_same);
            all.for_each(|event| println!("{event} did not differ this time, but is listed: {reason}"));
        }
        (calls, others)
    }
}

fn different(event: &str) -> impl Iterator<Item = &'static Different> {
    DIFFERENT.iter().filter(move |different| different.events.split_whitespace().any(|name| name == event))
}

/// The nearest line in time for which `wanted` is true.
fn nearest(lines: &[Line], time_us: u64, wanted: impl Fn(&Line) -> bool) -> Option<usize> {
    let middle = lines.partition_point(|line| line.time_us < time_us);
    let around = middle.saturating_sub(NEIGHBOURS)..lines.len().min(middle + NEIGHBOURS);
    let is_wanted = |&at: &usize| lines[at].is_near(time_us) && wanted(&lines[at]);
    around.filter(is_wanted).min_by_key(|&at| lines[at].time_us.abs_diff(time_us))
}
