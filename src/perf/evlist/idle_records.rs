//! Records of events that happen while a hidden idle task is current, in its interrupts above all: a BPF program on the
//! event writes them to an output event in the same ring. The views get them as samples of the event.
//!
//! If the idle task of a CPU is not hidden, the event's own sample follows the copy. Then the copy is dropped, and
//! copying ends on that CPU.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::bpf::CopierRefusal;
use crate::bpf::idle::{ArrayPlace, IdleRecord, RecordBuffer, load_copier};
use crate::host::Host;
use crate::perf::Sample;
use crate::perf::attr::MissingFeatures;
use crate::perf::cpu_events::CpuEvents;
use crate::perf::event_id::{EventId, IDLE_OWNER};
use crate::perf::evlist::Evlist;
use crate::perf::evlist::event_copier::EventCopier;
use crate::perf::evlist::strings::{explain, possible_cpus};
use crate::perf::evsel::{Binding, Evsel};
use crate::perf::record::sample_identifier;
use crate::perf::refusal::Reason;
use crate::tep::context::ContextFlags;
use crate::tep::filter::Filter;
use crate::tep::format::Format;
use crate::tep::format::field::{Field, FieldKind};

/// Limit of the events with a program. Each takes a descriptor per CPU.
const MAX_COPIED_EVENTS: usize = 64;

/// Events, by the beginning of their names, that do not happen in idle tasks, or that count more than 1 each time,
/// which a copy lacks.
const NOT_COPIED: [&str; 3] = ["raw_syscalls:", "sched:sched_stat_", "syscalls:"];

/// All programs of a run.
#[derive(Debug, Default)]
pub struct IdleRecords {
    copied: Vec<CopiedIdleEvent>,
    buffer: Option<RecordBuffer>,
    /// CPUs whose idle task is not hidden from events.
    seen: Vec<u32>,
    /// Programs stay attached until the end of the run, even if they copy nothing any more.
    stays: bool,
}

/// The program on an event, and the output event that it writes to.
#[derive(Debug)]
pub struct CopiedIdleEvent {
    program: EventCopier,
    record: IdleRecord,
    /// The filter of the event, which the kernel does not apply to the output of programs.
    filter: Option<Filter>,
}

impl IdleRecords {
    pub(super) fn write_through(&mut self, output: EventId, cpu: u32, event: BorrowedFd<'_>) {
        self.copied.iter_mut().for_each(|copied| copied.program.write_through(output, cpu, event));
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = u32> + '_ {
        self.copied.iter().filter_map(|copied| copied.program.copier.id())
    }

    /// The events that keep programs attached.
    pub(super) fn attached(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.copied.iter().filter_map(|copied| Some(copied.program.attached.as_ref()?.as_raw_fd()))
    }

    fn end(&mut self) {
        self.copied.clear();
    }

    /// The program that writes to the output event `output`.
    pub fn copied(&self, output: EventId) -> Option<&CopiedIdleEvent> {
        self.copied.iter().find(|copied| copied.program.output == output)
    }

    /// For a run that must end although a CPU is stuck: detaching a program waits for all CPUs, so it is left to the
    /// process that holds the events after the run.
    pub fn keep_attached(&mut self) {
        self.stays = true;
    }

    /// Attaches the programs. Returns a message for each event whose program cannot be attached.
    fn attach(&mut self, evsels: &[Evsel], missing: &mut MissingFeatures, cpus: &[CpuEvents]) -> Vec<String> {
        let open = |of: EventId| cpus.iter().find(|cpu| cpu.events.iter().any(|event| event.event == of));
        let mut unseen = Vec::new();
        for copied in &mut self.copied {
            let Some(cpu) = open(copied.program.output).map(|cpu| cpu.cpu) else { continue };
            let evsel = &evsels[copied.program.of.index()];
            if let Err(err) = copied.program.attach(evsel, missing, cpu) {
                unseen.push(format!("degraded: {} is unseen where idle tasks are hidden: {err}", evsel.name));
            }
        }
        unseen
    }

    /// Ends copying on `cpu`, one of `cpus`, whose idle task events see.
    fn sees_idle(&mut self, cpu: u32, mut cpus: impl Iterator<Item = u32>) {
        let IdleRecords { copied, seen, stays, .. } = self;
        if seen.contains(&cpu) {
            return;
        }
        seen.push(cpu);
        copied.iter().for_each(|copied| copied.program.copier.leave_out(cpu));
        if !*stays && cpus.all(|cpu| seen.contains(&cpu)) {
            let attached: Vec<OwnedFd> =
                copied.iter_mut().filter_map(|copied| copied.program.attached.take()).collect();
            // Releasing a program takes some 40 ms, in which the rings must be read.
            let _ = std::thread::Builder::new().name("releases".into()).spawn(move || drop(attached));
        }
    }
}

impl CopiedIdleEvent {
    /// The event whose records the program copies.
    pub fn of(&self) -> EventId {
        self.program.of
    }

    /// The record passes the event's own filter.
    pub fn passes(&self, sample: &Sample<'_>) -> bool {
        let Some(filter) = &self.filter else { return true };
        filter.matches(sample.raw, format!("swapper/{}", sample.cpu).as_bytes(), sample.cpu) == Some(true)
    }
}

impl Evlist {
    /// The events that may happen in interrupts of the idle task, as opened: on whole CPUs.
    pub fn idle_candidates(&self, any_task: bool) -> Vec<EventId> {
        let is_one = |evsel: &Evsel| {
            evsel.is_opened_itself()
                && !evsel.is_window()
                && evsel.attr.tracepoint_id().is_some()
                && evsel.attr.samples()
                && !evsel.is_probe
                && evsel.in_program.is_none()
                && (any_task || evsel.binding == Binding::Cpu)
                && !NOT_COPIED.iter().any(|start| evsel.name.starts_with(start))
        };
        self.iter().filter(|(_, evsel)| is_one(evsel)).map(|(event, _)| event).collect()
    }

    /// Records of the event `of` under a hidden idle task will come as its samples, too. `format`: the event's format.
    /// False: the event gets no program, because it is no tracepoint or there are too many.
    ///
    /// # Errors
    /// Why the kernel refuses the program.
    pub fn copy_idle_records(&mut self, of: EventId, format: &Format, host: &Host) -> Result<bool, Reason> {
        let Evlist { evsels, idle_records, with_counters, .. } = self;
        let evsel = &evsels[of.index()];
        let filter = match evsel.filter.as_deref().map(|text| Filter::parse(text, format)).transpose() {
            Ok(filter) if filter.as_ref().is_none_or(|filter| !filter.needs_kernel()) => filter,
            _ => return Ok(false),
        };
        let Some(record) = record_of(format).filter(|_| !format.is_probe_event()) else { return Ok(false) };
        if idle_records.copied.len() >= MAX_COPIED_EVENTS || *with_counters {
            return Ok(false);
        }
        let refused = |refusal: CopierRefusal| explain(&refusal, host);
        let buffer = match idle_records.buffer.take() {
            Some(buffer) => buffer,
            None => RecordBuffer::new().map_err(refused)?,
        };
        let copier = load_copier(&record, possible_cpus(host), idle_records.buffer.insert(buffer));
        let copier = copier.map_err(refused)?;
        let mut output = Evsel::new(format!("{} of idle tasks", evsel.name), evsel.attr.bpf_output_like());
        (output.cpus, output.binding, output.chain_use) = (evsel.cpus.clone(), Binding::Cpu, evsel.chain_use);
        output.idle_of = Some(of);
        output.owner = IDLE_OWNER;
        let id = evsels.push(output).map_err(|_| Reason::incurable("there are more than 65,536 events"))?;
        let copied = CopiedIdleEvent { program: EventCopier::new(copier, of, id), record, filter };
        idle_records.copied.push(copied);
        Ok(true)
    }

    /// Gives up the copies, before any event is open. False: there were none to give up.
    pub(super) fn leave_out_idle_records(&mut self) -> bool {
        let had_any = !self.idle_records.copied.is_empty();
        self.idle_records.end();
        self.evsels.leave_out_last(|evsel| evsel.idle_of.is_some());
        had_any
    }

    /// Attaches the programs, once the events are open. Returns a message for each event whose program cannot be
    /// attached.
    pub fn attach_idle_copiers(&mut self) -> Vec<String> {
        self.idle_records.attach(&self.evsels, &mut self.missing, &self.cpus)
    }

    /// Whether the event's own sample is among the records behind a copy: then the idle task is not hidden.
    pub fn has_own_sample<'r>(
        &self,
        copied: &CopiedIdleEvent,
        copy: &Sample<'_>,
        behind: impl Iterator<Item = &'r [u8]>,
    ) -> bool {
        /// Records between the copy and the sample: those of an interrupt, and of further descriptors of the event.
        const MAX_BETWEEN: usize = 8;
        behind.take(MAX_BETWEEN).any(|record| {
            let route =
                sample_identifier(record).and_then(|id| self.route(id)).filter(|route| route.event == copied.of());
            let own = route.and_then(|route| self.sample(route, record));
            own.is_some_and(|own| {
                own.tid == 0 && own.cpu == copy.cpu && are_of_one_event(&copied.record, own.raw, copy.raw)
            })
        })
    }

    /// Ends copying on `cpu`, whose idle task events see.
    pub fn sees_idle(&mut self, cpu: u32) {
        self.idle_records.sees_idle(cpu, self.cpus.iter().map(|cpu| cpu.cpu));
    }
}

/// Whether the fields of a sample and of a copy are the same. The common ones are not copied. Behind the fields both have
/// bytes without meaning, and not equally many: the kernel's structure of a record is padded, and samples are, too.
fn are_of_one_event(record: &IdleRecord, own: &[u8], copy: &[u8]) -> bool {
    let fields = record.common.len()..record.bytes(copy);
    own.get(fields.clone()).is_some_and(|own| copy.get(fields) == Some(own))
}

/// None: the record lacks the common fields that all tracepoints begin with.
fn record_of(format: &Format) -> Option<IdleRecord> {
    let begins = [("common_type", 0, 2), ("common_flags", 2, 1), ("common_preempt_count", 3, 1), ("common_pid", 4, 4)];
    let is_there =
        |(name, offset, size)| format.field(name).is_some_and(|field| (field.offset, field.size) == (offset, size));
    if !begins.into_iter().all(is_there) {
        return None;
    }
    let [low, high] = u16::try_from(format.id).ok()?.to_ne_bytes();
    // Events under an idle task come from interrupts, except for the idle task's own switches.
    let flags = if format.full_name() == "sched:sched_switch" { 0 } else { ContextFlags::HARD_INTERRUPT };
    let fixed_bytes = format.fields.iter().map(|field| field.offset + field.size).max()?;
    let place = |field: &Field| match field.kind {
        FieldKind::DataLoc { .. } => Some((field.offset, 0)),
        FieldKind::RelLoc { .. } => Some((field.offset, field.offset + field.size)),
        _ => None,
    };
    let last_array = match format.fields.iter().filter_map(place).max() {
        Some((offset, base)) => Some(ArrayPlace { offset: offset.try_into().ok()?, base: base.try_into().ok()? }),
        None => None,
    };
    let common = [low, high, flags, 0, 0, 0, 0, 0];
    Some(IdleRecord { common, fixed_bytes: fixed_bytes.try_into().ok()?, last_array })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Attr;
    use crate::tep::fixture;

    #[test]
    fn a_record_is_known_from_its_format() {
        let common = [
            ("unsigned short common_type", 0, 2, false),
            ("unsigned char common_flags", 2, 1, false),
            ("unsigned char common_preempt_count", 3, 1, false),
            ("int common_pid", 4, 4, true),
        ];
        let of =
            |fields: &[(&str, usize, usize, bool)]| record_of(&fixture::format("a:b", &[&common, fields].concat()));
        let plain = IdleRecord {
            common: [1_u16.to_ne_bytes()[0], 1_u16.to_ne_bytes()[1], ContextFlags::HARD_INTERRUPT, 0, 0, 0, 0, 0],
            fixed_bytes: 18,
            last_array: None,
        };
        assert_eq!(of(&[("u64 sector", 8, 8, false), ("u16 error", 16, 2, false)]), Some(plain));
        let arrays = [("__data_loc char[] one", 8, 4, false), ("__data_loc char[] two", 12, 4, false)];
        let place = Some(ArrayPlace { offset: 12, base: 0 });
        assert_eq!(of(&arrays), Some(IdleRecord { fixed_bytes: 16, last_array: place, ..plain }));
        let place = Some(ArrayPlace { offset: 8, base: 12 });
        assert_eq!(of(&[("__rel_loc char[] one", 8, 4, false)]).and_then(|record| record.last_array), place);
        assert_eq!(record_of(&fixture::format("a:b", &[("u64 sector", 8, 8, false)])), None);
    }

    /// A record of 18 bytes in a structure of 24, and one with a text behind its fields.
    #[test]
    fn padding_belongs_to_no_field() {
        let plain = IdleRecord { common: [1, 0, 8, 0, 0, 0, 0, 0], fixed_bytes: 18, last_array: None };
        let own = [&[1; 8][..], &[2; 10], &[3; 10]].concat();
        let copy = |field| [&[0; 8][..], &[field; 10], &[0; 2]].concat();
        assert!(are_of_one_event(&plain, &own, &copy(2)));
        assert!(!are_of_one_event(&plain, &own, &copy(4)) && !are_of_one_event(&plain, &own[..17], &copy(2)));
        let text = IdleRecord { last_array: Some(ArrayPlace { offset: 8, base: 0 }), fixed_bytes: 12, ..plain };
        let record = |text: &[u8]| [&[0; 8][..], &(12_u32 | 3 << 16).to_ne_bytes(), text].concat();
        assert!(are_of_one_event(&text, &record(b"lo\0xyz"), &record(b"lo\0\0")));
        assert!(!are_of_one_event(&text, &record(b"l1\0xyz"), &record(b"lo\0\0")));
        assert!(!are_of_one_event(&text, &record(b"lo"), &record(b"lo")) && !are_of_one_event(&text, b"", b""));
    }

    #[test]
    fn events_of_whole_cpus_are_candidates() {
        let mut evlist = Evlist::new();
        for (name, binding) in [
            ("block:block_rq_complete", Binding::Task),
            ("sched:sched_switch", Binding::Cpu),
            ("syscalls:sys_enter_openat", Binding::Cpu),
            ("sched:sched_stat_sleep", Binding::Cpu),
        ] {
            evlist.add(Evsel::new(name, Attr::tracepoint(1)).binding(binding)).unwrap();
        }
        evlist.add(Evsel::new("strings", Attr::bpf_output())).unwrap();
        let of = |any_task| evlist.idle_candidates(any_task).into_iter().map(EventId::index).collect::<Vec<_>>();
        assert_eq!((of(true), of(false)), (vec![0, 1], vec![1]));
    }
}
