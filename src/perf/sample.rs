//! A sample: decoded where it is used, borrowed from the ring.

use perf_event_open_sys::bindings as b;

use crate::perf::event_id::EventId;
use crate::perf::layout::{
    BASE_BYTES, BASE_CPU, BASE_TID, BASE_TIME, Layout, SampleLayoutKind, VariableFields, high, low, size_in, u64_at,
};
use crate::perf::record::{Callchain, ChainForm, Extra, Malformed, ReadValues};
use crate::perf::user_window::UserWindow;

/// One sample with the fields that its event's attr asks for; the others are 0 or empty. Fields that few profilers use are read
/// from the record by methods.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// The current process, in perf-prof's pid namespace; -1 if it has exited, 0 if it belongs to another namespace.
    /// `tid` likewise.
    pub pid: i32,
    pub tid: i32,
    /// ns, CLOCK_MONOTONIC.
    pub time: u64,
    pub cpu: u32,
    /// A record with a later time was delivered before.
    pub late: bool,
    /// A BPF program wrote the sample in place of the event. It lacks the event's count, which is taken as 1.
    pub is_copy: bool,
    pub callchain: Callchain<'a>,
    /// The tracepoint's data, padded to whole words.
    pub raw: &'a [u8],
    /// Byte offset of the end of RAW in the record, not aligned yet: see [`Sample::rest`].
    raw_end: usize,
    /// The record with its header.
    record: &'a [u8],
    layout: LayoutOf<'a>,
}

/// Bytes of the shortest sample that `Sample::decode_fast` takes: those of `BASE`, and the size of RAW.
pub const FAST_MIN_BYTES: usize = BASE_BYTES + 4;

/// Where the layout of a sample is found; most samples never need it.
#[derive(Clone, Copy, Debug)]
pub(in crate::perf) enum LayoutOf<'a> {
    Known(&'a Layout),
    /// The layout of an event, in the layouts of all events.
    Event(&'a [Layout], EventId),
}

impl<'a> LayoutOf<'a> {
    fn get(self) -> &'a Layout {
        match self {
            LayoutOf::Known(layout) => layout,
            LayoutOf::Event(layouts, event) => layouts.get(event.index()).unwrap_or(&Layout::NONE),
        }
    }
}

impl Layout {
    /// The sample at the start of `rest`, decoded field by field.
    ///
    /// # Errors
    /// As [`Layout::sample_of_kind`].
    pub fn sample<'a>(&'a self, rest: &'a [u8]) -> Result<Sample<'a>, Malformed> {
        self.sample_of_kind(SampleLayoutKind::Other, rest)
    }

    /// The sample at the start of `rest`, decoded the fastest way for layouts of this kind.
    ///
    /// # Errors
    /// The record is not whole, or ends before a field that its event asks for, or a length in it does not fit.
    pub fn sample_of_kind<'a>(&'a self, kind: SampleLayoutKind, rest: &'a [u8]) -> Result<Sample<'a>, Malformed> {
        Sample::decode(LayoutOf::Known(self), kind, rest).ok_or(Malformed::Length)
    }
}

impl<'a> Sample<'a> {
    /// The sample at the start of `rest`. `kind`: the kind of the layout, which the caller has already loaded. None:
    /// the record is not whole, or ends before a field that its event asks for, or a length in it does not fit.
    pub(in crate::perf) fn decode(layout: LayoutOf<'a>, kind: SampleLayoutKind, rest: &'a [u8]) -> Option<Sample<'a>> {
        let fast = Sample::decode_fast(layout, kind, rest).map(|(sample, _)| sample);
        fast.or_else(|| Sample::decode_any(layout, rest))
    }

    /// The sample at the start of `rest`, and the bytes behind it. None: the sample is malformed, or of the kind
    /// `Other`, or something other than the ABI follows RAW. Nearly all samples can be decoded so.
    // Inlined, so that the sample is built in registers: writing it to memory costs measurable time at a million
    // samples per second.
    #[inline(always)]
    pub(in crate::perf) fn decode_fast<'r: 'a>(
        layout: LayoutOf<'a>,
        kind: SampleLayoutKind,
        rest: &'r [u8],
    ) -> Option<(Sample<'a>, &'r [u8])> {
        if kind == SampleLayoutKind::Plain {
            return Sample::with_raw(layout, rest, Callchain::empty(), BASE_BYTES, false);
        }
        if kind == SampleLayoutKind::Abi {
            return Sample::with_raw(layout, rest, Callchain::empty(), BASE_BYTES, true);
        }
        if kind.is_other() {
            return None;
        }
        let mut offset = BASE_BYTES;
        if kind.has_period() {
            offset += 8;
        }
        if !kind.has_callchain() {
            return Sample::with_raw(layout, rest, Callchain::empty(), offset, false);
        }
        let (count, behind) = rest.get(offset..)?.split_first_chunk::<8>()?;
        let words = behind.as_chunks::<8>().0.get(..usize::try_from(u64::from_ne_bytes(*count)).ok()?)?.as_flattened();
        Sample::with_raw(layout, rest, Callchain::of_sample(words), offset + 8 + words.len(), false)
    }

    /// A sample whose RAW, with its size, begins at `offset`. The kernel pads RAW so that it ends with the record or,
    /// with `before_abi`, in front of the ABI and its one register. A task without user mode has no register.
    #[inline(always)]
    fn with_raw<'r: 'a>(
        layout: LayoutOf<'a>,
        rest: &'r [u8],
        callchain: Callchain<'a>,
        offset: usize,
        before_abi: bool,
    ) -> Option<(Sample<'a>, &'r [u8])> {
        let (raw_bytes, raw_at) = (u32::from_ne_bytes(*rest.get(offset..offset + 4)?.first_chunk()?), offset + 4);
        let (fixed, raw_end) = (rest.first_chunk::<BASE_BYTES>()?, raw_at + raw_bytes as usize);
        // `raw_end` is in a register already. With the size in the header the compiler would load bytes one by one.
        let end = if before_abi { size_in(fixed) } else { raw_end };
        let is_whole = if before_abi { matches!(end.wrapping_sub(raw_end), 8 | 16) } else { raw_end == size_in(fixed) };
        if !raw_end.is_multiple_of(8) || !is_whole {
            return None;
        }
        let (record, behind) = rest.split_at_checked(end)?;
        let raw = record.get(raw_at..raw_end)?;
        let [tid, time, cpu] = [BASE_TID, BASE_TIME, BASE_CPU].map(|offset| u64_at(fixed, offset).unwrap_or(0));
        let (pid, tid) = (low(tid) as i32, high(tid) as i32);
        let cpu = low(cpu);
        Some((
            Sample { pid, tid, time, cpu, late: false, is_copy: false, callchain, raw, raw_end, record, layout },
            behind,
        ))
    }

    /// A sample of any kind.
    fn decode_any(layout: LayoutOf<'a>, rest: &'a [u8]) -> Option<Sample<'a>> {
        let of = layout.get();
        let VariableFields { record, callchain, raw, raw_end } = of.variable_fields(rest)?;
        let [tid, time, cpu] = of.base_words(record);
        let (pid, tid) = (low(tid) as i32, high(tid) as i32);
        let cpu = low(cpu);
        Some(Sample { pid, tid, time, cpu, late: false, is_copy: false, callchain, raw, raw_end, record, layout })
    }

    /// `PERF_RECORD_MISC_*`
    #[inline]
    pub fn misc(&self) -> u16 {
        self.record.get(4..6).map_or(0, |misc| u16::from_ne_bytes([misc[0], misc[1]]))
    }

    /// The sample was taken while the task was in user mode.
    pub fn is_in_user_code(&self) -> bool {
        u32::from(self.misc()) & b::PERF_RECORD_MISC_CPUMODE_MASK == b::PERF_RECORD_MISC_USER
    }

    #[inline]
    pub fn ip(&self) -> u64 {
        self.layout.get().ip(self.record)
    }

    pub fn addr(&self) -> u64 {
        self.layout.get().addr(self.record)
    }

    pub fn id(&self) -> u64 {
        self.layout.get().id(self.record)
    }

    pub fn stream_id(&self) -> u64 {
        self.layout.get().stream_id(self.record)
    }

    #[inline]
    pub fn period(&self) -> u64 {
        if self.is_copy { 1 } else { self.layout.get().period(self.record) }
    }

    /// The READ values of a sampled counter or group.
    pub fn read(&self) -> ReadValues<'a> {
        self.layout.get().read_values(self.record)
    }

    #[inline]
    pub fn chain_form(&self) -> ChainForm {
        self.layout.get().chain_form()
    }

    /// A window of the user stack comes with each sample of the event, or just before it.
    pub fn expects_window(&self) -> bool {
        self.layout.get().expects_window()
    }

    /// The bytes behind RAW: see [`Sample::extra`].
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        // The size of RAW and its data together fill whole words; perf counts the padding as data.
        self.record.get(self.raw_end.next_multiple_of(8)..).unwrap_or_default()
    }

    /// The sample's record with its header.
    #[inline(always)]
    pub fn record(&self) -> &'a [u8] {
        self.record
    }

    /// The current task is in 32-bit mode on a 64-bit kernel: its system calls have numbers of their own. False where the event
    /// does not ask for it ([`Attr::with_abi`](crate::perf::Attr)).
    #[inline]
    pub fn is_compat(&self) -> bool {
        self.layout.get().user_abi(self.rest()) == Some(u64::from(b::PERF_SAMPLE_REGS_ABI_32))
    }

    /// As [`Sample::is_compat`], for an event that asks for nothing else behind RAW.
    #[inline(always)]
    pub fn is_compat_at_end(&self) -> bool {
        self.rest().first_chunk() == Some(&u64::from(b::PERF_SAMPLE_REGS_ABI_32).to_ne_bytes())
    }

    /// The word (4 bytes in 32-bit mode) at an address of the current task's stack. None: the sample's copy of the
    /// stack ([`Attr::user_stack`](crate::perf::Attr)) does not contain this address.
    pub fn user_word(&self, address: u64) -> Option<u64> {
        let extra = self.extra().ok()?;
        let (stack_pointer, _) = extra.regs_user?.split_first_chunk()?;
        let offset = usize::try_from(address.checked_sub(u64::from_ne_bytes(*stack_pointer))?).ok()?;
        let stack = extra.stack_user.get(offset..)?;
        if self.is_compat() {
            return stack.first_chunk().map(|word| u64::from(u32::from_ne_bytes(*word)));
        }
        stack.first_chunk().map(|word| u64::from_ne_bytes(*word))
    }

    /// The task's registers and the innermost part of its stack, if the event asks for them
    /// ([`Attr::user_window`](crate::perf::Attr)). None: a task without a 64-bit user mode.
    pub fn user_window(&self) -> Option<UserWindow<'a>> {
        self.layout.get().user_window(self.rest())
    }

    /// Branches, registers, stack copies and the other rare fields.
    ///
    /// # Errors
    /// A length in them does not fit.
    pub fn extra(&self) -> Result<Extra<'a>, Malformed> {
        self.layout.get().extra(self.rest())
    }
}
