//! A typed builder of `perf_event_attr`, and the features that older kernels lack.

use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings as b;

use crate::perf::sample_type::SampleType;
use crate::perf::user_window::{MAX_WINDOW_BYTES, WINDOW_REGS};
use crate::sys::perf::{Watch, open};

/// The modes (user, kernel, ...) in which an event does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    pub user: bool,
    pub kernel: bool,
    pub guest: bool,
    pub host: bool,
}

/// Where the samples of an event come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Tracepoint,
    Hardware,
    Other,
}

/// A hardware or software event, by its `config` number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// `PERF_COUNT_SW_*`
    Software(u64),
    /// `PERF_COUNT_HW_*`
    Hardware(u64),
    /// The event code of the CPU's manual.
    Raw(u64),
}

/// When an event writes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Samples per second of running: the kernel adapts the period.
    Frequency(u64),
    /// Counts per sample.
    Period(u64),
}

/// A `perf_event_attr` under construction. Every event is opened disabled.
#[derive(Clone, Debug)]
pub struct Attr {
    raw: b::perf_event_attr,
    /// False: the event is only counted.
    samples: bool,
    /// Counts per sample, or samples per second.
    period_or_hz: u64,
    /// Approximate samples per second of an event with a fixed period.
    expected_hz: Option<u64>,
}

/// How a counter's value becomes a number of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplesPerCount {
    /// Samples per count.
    Samples(f64),
    /// Each sample has a period: the counts that it stands for.
    Periods,
    /// The count does not determine the number of samples.
    Unknown,
}

/// The bit of the stack pointer among the user's registers: PERF_REG_X86_SP, PERF_REG_ARM64_SP.
const STACK_POINTER: u64 = if cfg!(target_arch = "aarch64") { 1 << 31 } else { 1 << 7 };

impl Attr {
    fn new(type_: u32, config: u64) -> Attr {
        let mut raw =
            b::perf_event_attr { type_, config, size: size_of::<b::perf_event_attr>() as u32, ..Default::default() };
        raw.set_disabled(1);
        raw.set_sample_id_all(1);
        // One clock for all rings of a run, and the one that users can compare with other logs.
        raw.set_use_clockid(1);
        raw.clockid = libc::CLOCK_MONOTONIC;
        raw.read_format = u64::from(b::PERF_FORMAT_LOST);
        raw.sample_type = SampleType::BASE.bits();
        Attr { raw, samples: true, period_or_hz: 0, expected_hz: None }
    }

    /// A tracepoint by the id of its format file, one sample per event.
    pub fn tracepoint(id: u32) -> Attr {
        let mut attr = Attr::new(b::PERF_TYPE_TRACEPOINT, u64::from(id));
        attr.set_period(1);
        attr.raw.sample_type |= SampleType::RAW.bits();
        attr
    }

    fn set_period(&mut self, period: u64) {
        self.raw.__bindgen_anon_1.sample_period = period;
        self.period_or_hz = period;
    }

    /// Both attrs ask for the same event. Breakpoints never count as the same: their addresses are not compared.
    pub fn is_same(&self, other: &Attr) -> bool {
        let key = |attr: &Attr| {
            let raw = &attr.raw;
            let user = (raw.sample_regs_user, raw.sample_stack_user, raw.sample_max_stack);
            (raw.type_, raw.config, raw.sample_type, raw.read_format, raw._bitfield_1, user, raw.branch_sample_type)
        };
        let is_plain =
            [b::PERF_TYPE_TRACEPOINT, b::PERF_TYPE_SOFTWARE, b::PERF_TYPE_HARDWARE].contains(&self.raw.type_);
        is_plain && key(self) == key(other) && self.samples == other.samples && self.period_or_hz == other.period_or_hz
    }

    /// The id of a tracepoint.
    pub fn tracepoint_id(&self) -> Option<u32> {
        if self.raw.type_ == b::PERF_TYPE_TRACEPOINT { u32::try_from(self.raw.config).ok() } else { None }
    }

    /// A tracepoint that writes a sample for each event.
    pub fn is_sampled_each_time(&self) -> bool {
        self.samples && self.period_or_hz == 1 && self.tracepoint_id().is_some()
    }

    /// Samples of the CPU's cycles.
    pub fn cycles(sampling: Sampling) -> Attr {
        Attr::sampling(b::PERF_TYPE_HARDWARE, u64::from(b::PERF_COUNT_HW_CPU_CYCLES), sampling)
    }

    /// Samples by a timer, for machines without a PMU: each sample stands for the same time; a period is in ns.
    pub fn cpu_clock(sampling: Sampling) -> Attr {
        Attr::sampling(b::PERF_TYPE_SOFTWARE, u64::from(b::PERF_COUNT_SW_CPU_CLOCK), sampling)
    }

    /// The output event of a BPF program: each record that the program writes is a sample, with its bytes in RAW.
    pub fn bpf_output() -> Attr {
        let mut attr = Attr::new(b::PERF_TYPE_SOFTWARE, u64::from(b::PERF_COUNT_SW_BPF_OUTPUT));
        attr.set_period(1);
        attr.raw.sample_type |= SampleType::RAW.bits();
        attr
    }

    /// The output event of a BPF program, whose samples have the same fields as those of this event.
    pub fn bpf_output_like(&self) -> Attr {
        let mut attr = self.clone();
        attr.raw.type_ = b::PERF_TYPE_SOFTWARE;
        attr.raw.config = u64::from(b::PERF_COUNT_SW_BPF_OUTPUT);
        attr
    }

    /// Counts the time for which its tasks run, in ns.
    pub fn task_clock() -> Attr {
        Attr::counter(Counter::Software(b::PERF_COUNT_SW_TASK_CLOCK.into()), 0)
    }

    /// No samples while the idle task is current. Among the software events only the clocks obey this bit.
    #[must_use]
    pub fn exclude_idle(mut self) -> Attr {
        self.raw.set_exclude_idle(1);
        self
    }

    /// Counts an event, with the times enabled and running. Every `period` counts there is a sample with its address;
    /// 0: no samples.
    pub fn counter(counter: Counter, period: u64) -> Attr {
        let (type_, config) = match counter {
            Counter::Software(config) => (b::PERF_TYPE_SOFTWARE, config),
            Counter::Hardware(config) => (b::PERF_TYPE_HARDWARE, config),
            Counter::Raw(config) => (b::PERF_TYPE_RAW, config),
        };
        let mut attr = Attr::new(type_, config);
        attr.set_period(period);
        attr.samples = period > 0;
        attr.raw.sample_type |= SampleType::IP.bits();
        attr.raw.read_format |= u64::from(b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING);
        attr
    }

    fn sampling(type_: u32, config: u64, sampling: Sampling) -> Attr {
        let mut attr = Attr::new(type_, config);
        match sampling {
            Sampling::Frequency(hz) => {
                attr.raw.set_freq(1);
                attr.raw.__bindgen_anon_1.sample_freq = hz;
                attr.period_or_hz = hz;
            }
            Sampling::Period(period) => attr.set_period(period),
        }
        attr.raw.sample_type |= SampleType::IP.with(SampleType::PERIOD).bits();
        attr.raw.read_format |= u64::from(b::PERF_FORMAT_TOTAL_TIME_RUNNING);
        attr
    }

    /// Samples each CPU every `period_ns` by the CPU's own timer, also while the idle task is current.
    pub fn timer(period_ns: u64) -> Attr {
        let mut attr = Attr::new(b::PERF_TYPE_SOFTWARE, u64::from(b::PERF_COUNT_SW_CPU_CLOCK));
        attr.set_period(period_ns);
        attr
    }

    /// Callchains without the frames of the kernel.
    pub fn user_callchain(mut self) -> Attr {
        self.raw.set_exclude_callchain_kernel(1);
        self
    }

    /// Callchains without the frames of programs.
    pub fn kernel_callchain(mut self) -> Attr {
        self.raw.set_exclude_callchain_user(1);
        self
    }

    pub(super) fn exclude_user_frames(&mut self, exclude: bool) {
        self.raw.set_exclude_callchain_user(exclude.into());
    }

    pub(super) fn exclude_kernel_frames(&mut self, exclude: bool) {
        self.raw.set_exclude_callchain_kernel(exclude.into());
    }

    /// Callchains have frames neither of programs nor of the kernel.
    pub(super) fn has_no_chain_half(&self) -> bool {
        self.raw.exclude_callchain_user() != 0 && self.raw.exclude_callchain_kernel() != 0
    }

    /// Sets the modes in which the event does not count.
    pub fn exclude(mut self, exclude: Exclude) -> Attr {
        self.raw.set_exclude_user(exclude.user.into());
        self.raw.set_exclude_kernel(exclude.kernel.into());
        self.raw.set_exclude_hv(exclude.kernel.into());
        self.raw.set_exclude_guest(exclude.guest.into());
        self.raw.set_exclude_host(exclude.host.into());
        self
    }

    /// An event that counts nothing; it owns a ring and may carry side records.
    pub fn dummy() -> Attr {
        let mut attr = Attr::new(b::PERF_TYPE_SOFTWARE, u64::from(b::PERF_COUNT_SW_DUMMY));
        // Without CAP_PERFMON a dummy that may see the kernel is refused, though it counts nothing.
        attr.raw.set_exclude_kernel(1);
        attr
    }

    /// An event that counts nothing and prevents the kernel from swapping the events of its task with another task: see
    /// `evlist/inherited.rs`.
    pub fn stays_with_task() -> Attr {
        let mut attr = Attr::dummy().counting().inherit(true);
        attr.raw.sample_type = SampleType::READ.with(SampleType::TID).bits();
        attr
    }

    /// The struct that perf_event_open(2) takes.
    pub fn raw(&self) -> b::perf_event_attr {
        self.raw
    }

    /// The same event, which only counts and writes no records.
    #[must_use]
    pub fn counting(mut self) -> Attr {
        self.raw.set_freq(0);
        self.set_period(0);
        self.raw.__bindgen_anon_2.wakeup_watermark = 0;
        self.raw.set_watermark(0);
        self.raw.sample_type = 0;
        self.raw.sample_regs_user = 0;
        self.raw.sample_stack_user = 0;
        self.raw.sample_max_stack = 0;
        self.raw.read_format = 0;
        self.raw.set_sample_id_all(0);
        self.samples = false;
        self
    }

    /// How a count of this event becomes a number of samples.
    pub fn samples_per_count(&self) -> SamplesPerCount {
        if !self.samples {
            return SamplesPerCount::Samples(0.0);
        }
        let is_clock =
            self.raw.type_ == b::PERF_TYPE_SOFTWARE && self.raw.config == u64::from(b::PERF_COUNT_SW_CPU_CLOCK);
        let excludes = self.raw.exclude_user() + self.raw.exclude_kernel() + self.raw.exclude_idle() != 0;
        match self.raw.type_ {
            // See `Evsel::once`.
            b::PERF_TYPE_TRACEPOINT if self.sample_type().contains(SampleType::PERIOD) => SamplesPerCount::Periods,
            // The clock also counts in the modes in which it takes no samples.
            _ if is_clock && excludes => SamplesPerCount::Unknown,
            _ if self.raw.freq() != 0 && is_clock => SamplesPerCount::Samples(self.period_or_hz as f64 / 1e9),
            _ if self.raw.freq() != 0 => SamplesPerCount::Periods,
            _ => SamplesPerCount::Samples(1.0 / self.period_or_hz.max(1) as f64),
        }
    }

    /// Upper bound of the bytes that the samples take per CPU and second. None: there is a sample for each event, so no
    /// bound is known.
    pub fn bytes_per_s(&self) -> Option<u64> {
        const HEAD_BYTES: u64 = 128;
        const DEEPEST: u64 = 127; // default of kernel.perf_event_max_stack
        let is_clock =
            self.raw.type_ == b::PERF_TYPE_SOFTWARE && self.raw.config == u64::from(b::PERF_COUNT_SW_CPU_CLOCK);
        let hz = match () {
            () if !self.samples => 0,
            () if self.raw.freq() != 0 => self.period_or_hz,
            () if is_clock => 1_000_000_000 / self.period_or_hz.max(1),
            () => return None,
        };
        let depth = if self.raw.sample_max_stack == 0 { DEEPEST } else { self.raw.sample_max_stack.into() };
        let chain_bytes = if self.sample_type().contains(SampleType::CALLCHAIN) { 8 * depth } else { 0 };
        Some(hz.saturating_mul(HEAD_BYTES + chain_bytes + u64::from(self.user_window_bytes())))
    }

    /// A SWITCH record for each switch-out and each switch-in of a task, written while that task is current.
    pub fn switches(mut self) -> Attr {
        self.raw.set_context_switch(1);
        self
    }

    /// The event writes SWITCH records: see [`Attr::switches`]. [`MissingFeatures::open`] may remove the bit.
    pub fn has_switches(&self) -> bool {
        self.raw.context_switch() != 0
    }

    /// COMM, FORK, EXIT records, and MMAP2 when stacks need names.
    pub fn side_records(mut self, mappings: bool) -> Attr {
        self.raw.set_task(1);
        self.raw.set_comm(1);
        self.raw.set_comm_exec(1);
        if mappings {
            self.raw.set_mmap(1);
            self.raw.set_mmap2(1);
        }
        self
    }

    /// Callchains with each sample; `depth` 0 is the kernel's own limit.
    pub fn callchain(mut self, depth: u16) -> Attr {
        self.raw.sample_type |= SampleType::CALLCHAIN.bits();
        self.raw.sample_max_stack = depth;
        self
    }

    /// Each sample holds the user stack pointer and `bytes` of the stack: see [`Sample::user_word`](crate::perf::Sample).
    pub fn user_stack(mut self, bytes: u32) -> Attr {
        self.raw.sample_type |= SampleType::REGS_USER.with(SampleType::STACK_USER).bits();
        self.raw.sample_regs_user = STACK_POINTER;
        self.raw.sample_stack_user = bytes.next_multiple_of(8);
        self
    }

    /// Each sample holds the user registers that unwinding needs, and `bytes` of the user stack.
    pub fn user_window(mut self, bytes: u32) -> Attr {
        self.raw.sample_type |= SampleType::REGS_USER.with(SampleType::STACK_USER).bits();
        self.raw.sample_regs_user = WINDOW_REGS;
        self.raw.sample_stack_user = bytes.min(MAX_WINDOW_BYTES).next_multiple_of(8);
        self
    }

    /// The same event, whose samples hold a window of the user stack and, with `callchain`, the user part of the
    /// callchain.
    pub fn only_user_window(mut self, bytes: u32, callchain: bool) -> Attr {
        self.raw.sample_type &= !SampleType::CALLCHAIN.with(SampleType::RAW).bits();
        self.raw.sample_max_stack = 0;
        let attr = if callchain { self.callchain(0).user_callchain() } else { self };
        attr.user_window(bytes)
    }

    /// Sets the approximate samples per second that the period of the event leads to.
    pub fn paced_at(mut self, hz: Option<u64>) -> Attr {
        self.expected_hz = hz;
        self
    }

    /// Approximate samples per second, if a clock or a hardware counter paces the event. None: as often as tasks cause
    /// the event.
    pub fn paced_hz(&self) -> Option<u64> {
        let is_clock = self.raw.type_ == b::PERF_TYPE_SOFTWARE
            && [b::PERF_COUNT_SW_CPU_CLOCK, b::PERF_COUNT_SW_TASK_CLOCK].map(u64::from).contains(&self.raw.config);
        match self.raw.freq() {
            0 if is_clock => 1_000_000_000_u64.checked_div(self.period_or_hz),
            0 => self.expected_hz,
            _ => Some(self.period_or_hz),
        }
    }

    /// A counter of the CPU or of another PMU: if it is opened twice, the two take their samples at different moments.
    pub fn is_counter(&self) -> bool {
        ![b::PERF_TYPE_SOFTWARE, b::PERF_TYPE_TRACEPOINT, b::PERF_TYPE_BREAKPOINT].contains(&self.raw.type_)
    }

    /// One of the kernel's own counters, `PERF_COUNT_SW_*`.
    pub fn is_software(&self) -> bool {
        self.raw.type_ == b::PERF_TYPE_SOFTWARE
    }

    /// Samples hold a window of the user stack.
    pub fn has_user_window(&self) -> bool {
        self.raw.sample_regs_user == WINDOW_REGS && self.sample_type().contains(SampleType::STACK_USER)
    }

    /// Bytes of the window; 0 without one.
    pub fn user_window_bytes(&self) -> u32 {
        if self.has_user_window() { self.raw.sample_stack_user } else { 0 }
    }

    /// Callchains hold the user part.
    pub fn has_user_callchain(&self) -> bool {
        self.sample_type().contains(SampleType::CALLCHAIN) && self.raw.exclude_callchain_user() == 0
    }

    /// Each sample says whether the current task is in 32-bit mode: see [`Sample::is_compat`](crate::perf::Sample).
    pub fn with_abi(mut self) -> Attr {
        self.raw.sample_type |= SampleType::REGS_USER.bits();
        // The kernel writes the ABI only with registers, of which there must be at least one: perf_reg_validate,
        // arch/*/kernel/perf_regs.c.
        self.raw.sample_regs_user = 1;
        self
    }

    /// The user registers that each sample holds, as a bit mask.
    pub fn regs_user(&self) -> u64 {
        self.raw.sample_regs_user
    }

    /// Wakes the reader when `bytes` are unread. All events of a ring need a watermark: one with `wakeup_events` wakes
    /// the reader anyway.
    pub fn watermark(mut self, bytes: u32) -> Attr {
        self.raw.set_watermark(1);
        self.raw.__bindgen_anon_2.wakeup_watermark = bytes;
        self
    }

    /// Follows threads and children that are created later.
    pub fn inherit(mut self, on: bool) -> Attr {
        self.raw.set_inherit(u64::from(on));
        self
    }

    /// Starts when its task executes a program.
    pub fn enable_on_exec(mut self, on: bool) -> Attr {
        self.raw.set_enable_on_exec(u64::from(on));
        self
    }

    pub fn with_sample_type(mut self, bits: SampleType) -> Attr {
        self.add_sample_type(bits);
        self
    }

    pub fn add_sample_type(&mut self, bits: SampleType) {
        self.raw.sample_type |= bits.bits();
    }

    pub fn sample_type(&self) -> SampleType {
        SampleType::from_bits(self.raw.sample_type)
    }

    /// Addresses in a callchain at most; 0: the kernel's limit.
    pub fn max_stack(&self) -> u16 {
        self.raw.sample_max_stack
    }

    pub fn source(&self) -> Source {
        match self.raw.type_ {
            b::PERF_TYPE_TRACEPOINT => Source::Tracepoint,
            b::PERF_TYPE_HARDWARE | b::PERF_TYPE_RAW => Source::Hardware,
            _ => Source::Other,
        }
    }

    /// The event also counts in kernel mode.
    pub fn sees_kernel(&self) -> bool {
        self.raw.exclude_kernel() == 0
    }

    pub fn counts_lost(&self) -> bool {
        self.raw.read_format & u64::from(b::PERF_FORMAT_LOST) != 0
    }

    /// The event writes samples, and does not only count.
    pub fn samples(&self) -> bool {
        self.samples
    }

    /// A read(2) of the event gives the time enabled.
    pub fn counts_time_enabled(&self) -> bool {
        self.raw.read_format & u64::from(b::PERF_FORMAT_TOTAL_TIME_ENABLED) != 0
    }

    /// A read(2) of the event gives the time running.
    pub fn counts_time(&self) -> bool {
        self.raw.read_format & u64::from(b::PERF_FORMAT_TOTAL_TIME_RUNNING) != 0
    }
}

/// Features that a kernel may lack, newest first.
const FEATURES: [Feature; 5] = [
    Feature {
        name: "PERF_FORMAT_LOST (6.0): lost counts include side records",
        strip: |raw| {
            let had = raw.read_format & u64::from(b::PERF_FORMAT_LOST) != 0;
            raw.read_format &= !u64::from(b::PERF_FORMAT_LOST);
            had
        },
    },
    Feature {
        name: "sample_max_stack (4.8): callchains have the kernel's own depth",
        strip: |raw| std::mem::take(&mut raw.sample_max_stack) != 0,
    },
    Feature {
        name: "context_switch (4.3): where the idle task is hidden, so are switches from it",
        strip: |raw| {
            let had = raw.context_switch() != 0;
            raw.set_context_switch(0);
            had
        },
    },
    Feature {
        name: "comm_exec (3.16): an exec looks like a rename",
        strip: |raw| {
            let had = raw.comm_exec() != 0;
            raw.set_comm_exec(0);
            had
        },
    },
    Feature {
        name: "mmap2 (3.16): mapped files have no inode",
        strip: |raw| {
            let had = raw.mmap2() != 0;
            raw.set_mmap2(0);
            had
        },
    },
];

struct Feature {
    /// The name that `-v` shows.
    name: &'static str,
    /// Removes the feature from the attr; false when the attr did not use it.
    strip: fn(&mut b::perf_event_attr) -> bool,
}

/// The features that the running kernel was found to lack: found by trying, never by the kernel's version.
#[derive(Clone, Debug, Default)]
pub struct MissingFeatures([bool; FEATURES.len()]);

impl MissingFeatures {
    /// Opens `attr` without the features that this kernel refused before. On EINVAL or E2BIG, features are given up
    /// newest first, and remembered for the next events.
    ///
    /// # Errors
    /// The errno of the first try, when the kernel refuses all smaller requests, too.
    pub fn open(&mut self, attr: &mut Attr, watch: Watch) -> io::Result<OwnedFd> {
        for (feature, missing) in FEATURES.iter().zip(self.0) {
            if missing {
                (feature.strip)(&mut attr.raw);
            }
        }
        let first = match open(&mut attr.raw, watch) {
            Ok(fd) => return Ok(fd),
            Err(err) => err,
        };
        if !matches!(first.raw_os_error(), Some(libc::EINVAL | libc::E2BIG)) {
            return Err(first);
        }
        attr.raw.size = size_of::<b::perf_event_attr>() as u32; // the kernel overwrites it with E2BIG
        // First each feature alone is removed, then the newest ones together: a feature that was not refused must not
        // be given up.
        let alone = (0..FEATURES.len()).map(|index| index..index + 1);
        let together = (2..=FEATURES.len()).map(|count| 0..count);
        for features in alone.chain(together) {
            let (mut smaller, mut found) = (attr.clone(), self.clone());
            for index in features {
                found.0[index] |= (FEATURES[index].strip)(&mut smaller.raw);
            }
            if let Ok(fd) = open(&mut smaller.raw, watch) {
                (*self, *attr) = (found, smaller);
                return Ok(fd);
            }
        }
        Err(first)
    }

    /// The features this kernel lacks, as text for `-v`.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        FEATURES.iter().zip(self.0).filter(|(_, missing)| *missing).map(|(feature, _)| feature.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_bits_are_in_every_attr() {
        for attr in [Attr::dummy(), Attr::tracepoint(7), Attr::tracepoint(7).callchain(3)] {
            assert!(attr.sample_type().contains(SampleType::BASE));
            assert!(attr.counts_lost());
        }
        assert!(Attr::tracepoint(7).callchain(0).sample_type().contains(SampleType::CALLCHAIN));
    }

    #[test]
    fn features_strip_once() {
        let mut attr = Attr::tracepoint(1).callchain(16).side_records(true).switches();
        for feature in &FEATURES {
            assert!((feature.strip)(&mut attr.raw), "{}", feature.name);
            assert!(!(feature.strip)(&mut attr.raw), "{}", feature.name);
        }
    }
}
