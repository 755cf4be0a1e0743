//! Where the fields of a sample are: computed once per event from its `sample_type`.
//!
//! Source of the order: `perf_output_sample` in kernel/events/core.c, perf_event_open(2).

use perf_event_open_sys::bindings as b;

use crate::perf::record::{
    Branches, Callchain, ChainForm, Extra, Innermost, Malformed, ReadValues, SampleId, UserPart,
};
use crate::perf::sample_type::SampleType;
use crate::perf::user_window::{UserWindow, WINDOW_REGS};

/// The layout of one event's samples, and of the `sample_id` that ends its other records.
#[derive(Clone, Debug)]
pub struct Layout {
    sample_type: SampleType,
    read_format: u64,
    branch_sample_type: u64,
    regs_user: u64,
    regs_intr: u64,
    /// Byte offsets of the fields of fixed length from the start of the record; 0: absent.
    ip: usize,
    tid: usize,
    time: usize,
    addr: usize,
    id: usize,
    stream_id: usize,
    cpu: usize,
    period: usize,
    /// Byte offset of the first field of variable length.
    variable: usize,
    /// Bytes of the sample_id at the end of other records.
    id_len: usize,
    /// Byte offset of the time in the sample_id.
    id_time: usize,
    chain_form: ChainForm,
    /// See [`Sample::expects_window`].
    expects_window: bool,
    /// The fields of `BASE` are adjacent, so they are at the offsets `BASE_*`.
    is_base_first: bool,
    kind: SampleLayoutKind,
}

/// The fields between those of `BASE` and RAW, which decide how a sample is decoded fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayoutKind(u8);

/// Bits rather than an `enum`, since a branch per variant would be slower.
#[expect(non_upper_case_globals)]
impl SampleLayoutKind {
    /// None: RAW follows `BASE`.
    pub const Plain: SampleLayoutKind = SampleLayoutKind(0);
    pub const Period: SampleLayoutKind = SampleLayoutKind(1);
    pub const Callchain: SampleLayoutKind = SampleLayoutKind(2);
    pub const PeriodAndCallchain: SampleLayoutKind = SampleLayoutKind(3);
    /// Any other field, or no RAW.
    pub const Other: SampleLayoutKind = SampleLayoutKind(4);
    /// RAW follows `BASE`, and the ABI with one register follows RAW.
    pub const Abi: SampleLayoutKind = SampleLayoutKind(8);
}

impl SampleLayoutKind {
    #[inline(always)]
    pub fn has_period(self) -> bool {
        self.0 & SampleLayoutKind::Period.0 != 0
    }

    #[inline(always)]
    pub fn has_callchain(self) -> bool {
        self.0 & SampleLayoutKind::Callchain.0 != 0
    }

    #[inline(always)]
    pub fn is_other(self) -> bool {
        self.0 & SampleLayoutKind::Other.0 != 0
    }

    fn of(sample_type: SampleType, regs_user: u64) -> SampleLayoutKind {
        let with_abi = SampleType::BASE.with(SampleType::RAW).with(SampleType::REGS_USER);
        if sample_type == with_abi && regs_user.count_ones() == 1 {
            return SampleLayoutKind::Abi;
        }
        let others = [SampleType::IP, SampleType::ADDR, SampleType::ID, SampleType::STREAM_ID, SampleType::READ];
        if !sample_type.contains(SampleType::BASE.with(SampleType::RAW))
            || others.iter().any(|bit| sample_type.contains(*bit))
        {
            return SampleLayoutKind::Other;
        }
        match [SampleType::PERIOD, SampleType::CALLCHAIN].map(|bit| sample_type.contains(bit)) {
            [false, false] => SampleLayoutKind::Plain,
            [true, false] => SampleLayoutKind::Period,
            [false, true] => SampleLayoutKind::Callchain,
            [true, true] => SampleLayoutKind::PeriodAndCallchain,
        }
    }
}

const HEADER: usize = 8;
/// Byte offsets of the fields of [`SampleType::BASE`] when they are adjacent.
pub(in crate::perf) const BASE_TID: usize = 16;
pub(in crate::perf) const BASE_TIME: usize = 24;
pub(in crate::perf) const BASE_CPU: usize = 32;
/// Size of a record from its header to the CPU, both included.
pub(in crate::perf) const BASE_BYTES: usize = 40;

/// A sample's record, with the fields of variable length found.
#[derive(Clone, Copy, Debug)]
pub(in crate::perf) struct VariableFields<'a> {
    pub record: &'a [u8],
    pub callchain: Callchain<'a>,
    pub raw: &'a [u8],
    /// Byte offset of the end of RAW in the record.
    pub raw_end: usize,
}

impl Layout {
    /// The layout of samples without fields.
    pub const NONE: Layout = Layout {
        sample_type: SampleType::from_bits(0),
        read_format: 0,
        branch_sample_type: 0,
        regs_user: 0,
        regs_intr: 0,
        ip: 0,
        tid: 0,
        time: 0,
        addr: 0,
        id: 0,
        stream_id: 0,
        cpu: 0,
        period: 0,
        variable: HEADER,
        id_len: 0,
        id_time: 0,
        chain_form: ChainForm { depth: 0, innermost: Innermost::Executed, user: UserPart::FramePointers },
        expects_window: false,
        is_base_first: false,
        kind: SampleLayoutKind::Other,
    };

    /// The layout of an event whose attr has these bits.
    pub fn new(sample_type: SampleType, read_format: u64) -> Layout {
        Layout::full(sample_type, read_format, 0, 0, 0)
    }

    /// As [`Layout::new`], for events that sample branches (`branch_sample_type`) or registers (their masks).
    pub fn full(
        sample_type: SampleType,
        read_format: u64,
        branch_sample_type: u64,
        regs_user: u64,
        regs_intr: u64,
    ) -> Layout {
        let mut offset = HEADER;
        let mut place = |bit: SampleType| {
            if !sample_type.contains(bit) {
                return 0;
            }
            let here = offset;
            offset += 8;
            here
        };
        let _identifier = place(SampleType::IDENTIFIER);
        let ip = place(SampleType::IP);
        let tid = place(SampleType::TID);
        let time = place(SampleType::TIME);
        let addr = place(SampleType::ADDR);
        let id = place(SampleType::ID);
        let stream_id = place(SampleType::STREAM_ID);
        let cpu = place(SampleType::CPU);
        let period = place(SampleType::PERIOD);
        let in_id = |bit: SampleType| if sample_type.contains(bit) { 8 } else { 0 };
        let id_time = in_id(SampleType::TID);
        let id_len = id_time
            + [SampleType::TIME, SampleType::ID, SampleType::STREAM_ID, SampleType::CPU, SampleType::IDENTIFIER]
                .into_iter()
                .map(in_id)
                .sum::<usize>();
        Layout {
            sample_type,
            read_format,
            branch_sample_type,
            regs_user,
            regs_intr,
            ip,
            tid,
            time,
            addr,
            id,
            stream_id,
            cpu,
            period,
            variable: offset,
            id_len,
            id_time,
            chain_form: ChainForm::default(),
            expects_window: false,
            is_base_first: tid == BASE_TID && time == BASE_TIME && cpu == BASE_CPU,
            kind: SampleLayoutKind::of(sample_type, regs_user),
        }
    }

    #[must_use]
    pub fn with_chain_form(mut self, form: ChainForm) -> Layout {
        self.chain_form = form;
        self
    }

    #[must_use]
    pub fn with_window(mut self, expected: bool) -> Layout {
        self.expects_window = expected;
        self
    }

    pub fn expects_window(&self) -> bool {
        self.expects_window
    }

    pub fn chain_form(&self) -> ChainForm {
        self.chain_form
    }

    /// Bytes of a sample's record with `raw` bytes of tracepoint data and `addresses` entries in its callchain.
    pub fn estimated_bytes(&self, raw: usize, addresses: usize) -> usize {
        let has = |bit: SampleType| usize::from(self.sample_type.contains(bit));
        let callchain = has(SampleType::CALLCHAIN) * 8 * (1 + addresses);
        let raw = has(SampleType::RAW) * (4 + raw).next_multiple_of(8);
        self.variable + callchain + raw
    }

    /// The time of a sample, without decoding the rest. None: the record is too short, or the event has no time.
    #[inline]
    pub fn sample_time(&self, record: &[u8]) -> Option<u64> {
        match record.first_chunk::<BASE_BYTES>() {
            Some(fixed) if self.is_base_first => u64_at(fixed, BASE_TIME),
            _ if self.time == 0 => None,
            _ => u64_at(record, self.time),
        }
    }

    /// Time and thread of a sample. None: they are not at the offsets of nearly all samples.
    #[inline]
    pub fn time_and_thread(&self, record: &[u8]) -> Option<(u64, i32)> {
        let fixed = record.first_chunk::<BASE_BYTES>().filter(|_| self.is_base_first)?;
        Some((u64_at(fixed, BASE_TIME)?, high(u64_at(fixed, BASE_TID)?) as i32))
    }

    /// The time of a record that is no sample.
    #[inline]
    pub fn side_time(&self, record: &[u8]) -> Option<u64> {
        if self.time == 0 {
            None
        } else {
            u64_at(record, record.len().checked_sub(self.id_len)?.checked_add(self.id_time)?)
        }
    }

    #[inline]
    pub fn kind(&self) -> SampleLayoutKind {
        self.kind
    }

    /// The words of `BASE` in a complete record: pid and tid, time, CPU.
    #[inline]
    pub(in crate::perf) fn base_words(&self, record: &[u8]) -> [u64; 3] {
        [self.tid, self.time, self.cpu].map(|offset| word(record, offset))
    }

    /// The fields of variable length of the sample at the start of `rest`. None: an error of [`Layout::sample`].
    pub(in crate::perf) fn variable_fields<'a>(&self, rest: &'a [u8]) -> Option<VariableFields<'a>> {
        let record = rest.get(..size_in(rest.first_chunk::<HEADER>()?))?;
        if record.len() < self.variable || !record.len().is_multiple_of(8) {
            return None;
        }
        let mut cursor = Cursor { record, offset: self.variable };
        let (mut callchain, mut raw) = (Callchain::empty(), &[][..]);
        if self.sample_type.contains(SampleType::READ) {
            self.read(&mut cursor).ok()?;
        }
        if self.sample_type.contains(SampleType::CALLCHAIN) {
            let count = cursor.u64().ok()?;
            callchain = Callchain::of_sample(cursor.words(count).ok()?);
        }
        if self.sample_type.contains(SampleType::RAW) {
            let size = cursor.u32().ok()? as usize;
            raw = cursor.bytes(size).ok()?;
        }
        Some(VariableFields { record, callchain, raw, raw_end: cursor.offset })
    }

    #[inline]
    pub(in crate::perf) fn ip(&self, record: &[u8]) -> u64 {
        word(record, self.ip)
    }

    pub(in crate::perf) fn addr(&self, record: &[u8]) -> u64 {
        word(record, self.addr)
    }

    pub(in crate::perf) fn id(&self, record: &[u8]) -> u64 {
        word(record, if self.sample_type.contains(SampleType::IDENTIFIER) { HEADER } else { self.id })
    }

    pub(in crate::perf) fn stream_id(&self, record: &[u8]) -> u64 {
        word(record, self.stream_id)
    }

    #[inline]
    pub(in crate::perf) fn period(&self, record: &[u8]) -> u64 {
        word(record, self.period)
    }

    /// The READ values of a sample that was decoded before.
    pub(in crate::perf) fn read_values<'a>(&self, record: &'a [u8]) -> ReadValues<'a> {
        if !self.sample_type.contains(SampleType::READ) {
            return ReadValues::none();
        }
        self.read(&mut Cursor { record, offset: self.variable }).unwrap_or(ReadValues::none())
    }

    fn read<'a>(&self, cursor: &mut Cursor<'a>) -> Result<ReadValues<'a>, Malformed> {
        let has = |bit: u32| self.read_format & u64::from(bit) != 0;
        let times = |cursor: &mut Cursor<'a>| -> Result<(u64, u64), Malformed> {
            let enabled = if has(b::PERF_FORMAT_TOTAL_TIME_ENABLED) { cursor.u64()? } else { 0 };
            let running = if has(b::PERF_FORMAT_TOTAL_TIME_RUNNING) { cursor.u64()? } else { 0 };
            Ok((enabled, running))
        };
        let id_and_lost = u64::from(has(b::PERF_FORMAT_ID)) + u64::from(has(b::PERF_FORMAT_LOST));
        if has(b::PERF_FORMAT_GROUP) {
            let count = cursor.u64()?;
            let (enabled, running) = times(cursor)?;
            let per_value = 1 + id_and_lost;
            let words = cursor.words(count.checked_mul(per_value).ok_or(Malformed::Length)?)?;
            Ok(ReadValues::new(enabled, running, words, per_value as usize))
        } else {
            let value = cursor.words(1)?;
            let (enabled, running) = times(cursor)?;
            cursor.words(id_and_lost)?;
            Ok(ReadValues::new(enabled, running, value, 1))
        }
    }

    /// Decodes the fields behind RAW. `rest`: [`Sample::rest`](crate::perf::Sample::rest) of a sample of this event.
    ///
    /// # Errors
    /// As [`Layout::sample`].
    pub fn extra<'a>(&self, rest: &'a [u8]) -> Result<Extra<'a>, Malformed> {
        let has = |bit| self.sample_type.contains(bit);
        let mut cursor = Cursor { record: rest, offset: 0 };
        let mut extra = Extra::default();
        if has(SampleType::BRANCH_STACK) {
            let count = cursor.u64()?;
            let with_index = self.branch_sample_type & u64::from(b::PERF_SAMPLE_BRANCH_HW_INDEX) != 0;
            let hw_index = if with_index { Some(cursor.u64()?) } else { None };
            let entries = cursor.words(count.checked_mul(3).ok_or(Malformed::Length)?)?;
            if self.branch_sample_type & u64::from(b::PERF_SAMPLE_BRANCH_COUNTERS) != 0 {
                cursor.words(count)?;
            }
            extra.branches = Some(Branches { hw_index, entries });
        }
        if has(SampleType::REGS_USER) {
            extra.regs_user = cursor.regs(self.regs_user)?;
        }
        if has(SampleType::STACK_USER) {
            let size = usize::try_from(cursor.u64()?).map_err(|_| Malformed::Length)?;
            let stack = cursor.bytes(size)?;
            // The kernel may copy fewer bytes than it reserves; the number copied follows them.
            let filled = if size == 0 { 0 } else { usize::try_from(cursor.u64()?).map_err(|_| Malformed::Length)? };
            extra.stack_user = stack.get(..filled).ok_or(Malformed::Length)?;
            extra.stack_reserved = size;
        }
        if has(SampleType::WEIGHT) || has(SampleType::WEIGHT_STRUCT) {
            extra.weight = Some(cursor.u64()?);
        }
        let mut word = |bit| if has(bit) { cursor.u64().map(Some) } else { Ok(None) };
        extra.data_src = word(SampleType::DATA_SRC)?;
        extra.transaction = word(SampleType::TRANSACTION)?;
        if has(SampleType::REGS_INTR) {
            extra.regs_intr = cursor.regs(self.regs_intr)?;
        }
        let mut word = |bit| if has(bit) { cursor.u64().map(Some) } else { Ok(None) };
        extra.phys_addr = word(SampleType::PHYS_ADDR)?;
        extra.cgroup = word(SampleType::CGROUP)?;
        extra.data_page_size = word(SampleType::DATA_PAGE_SIZE)?;
        extra.code_page_size = word(SampleType::CODE_PAGE_SIZE)?;
        if has(SampleType::AUX) {
            let size = usize::try_from(cursor.u64()?).map_err(|_| Malformed::Length)?;
            extra.aux = cursor.bytes(size)?;
        }
        Ok(extra)
    }

    /// The user registers and stack bytes in `rest`. None: the event does not ask for them, or the sample lacks them.
    #[inline]
    pub(in crate::perf) fn user_window<'a>(&self, rest: &'a [u8]) -> Option<UserWindow<'a>> {
        if self.regs_user != WINDOW_REGS || !self.sample_type.contains(SampleType::STACK_USER) {
            return None;
        }
        let abi = self.user_abi(rest)?;
        let extra = self.extra(rest).ok()?;
        UserWindow::new(abi, extra.regs_user?, extra.stack_user, extra.stack_reserved)
    }

    /// The ABI of the user registers in `rest`. None: the event does not ask for it.
    #[inline]
    pub(in crate::perf) fn user_abi(&self, rest: &[u8]) -> Option<u64> {
        let first =
            self.sample_type.contains(SampleType::REGS_USER) && !self.sample_type.contains(SampleType::BRANCH_STACK);
        if first { u64_at(rest, 0) } else { None }
    }

    /// Splits a record that is no sample into its body (after the header) and its sample_id.
    ///
    /// # Errors
    /// The record is shorter than it says, or too short for a sample_id.
    pub fn split_id<'a>(&self, record: &'a [u8]) -> Result<(&'a [u8], SampleId), Malformed> {
        // The sample_id is found from the end of the slice, which must be the end of the record.
        if record.get(6..HEADER).is_none_or(|size| size != (record.len() as u16).to_ne_bytes()) {
            return Err(Malformed::Short);
        }
        let end = record.len().checked_sub(self.id_len).filter(|end| *end >= HEADER).ok_or(Malformed::Short)?;
        let mut cursor = Cursor { record, offset: end };
        let mut word = |bit| if self.sample_type.contains(bit) { cursor.u64() } else { Ok(0) };
        let tid = word(SampleType::TID)?;
        let time = word(SampleType::TIME)?;
        let id = word(SampleType::ID)?;
        word(SampleType::STREAM_ID)?;
        let cpu = word(SampleType::CPU)?;
        let identifier = word(SampleType::IDENTIFIER)?;
        let id = if self.sample_type.contains(SampleType::IDENTIFIER) { identifier } else { id };
        Ok((&record[HEADER..end], SampleId { pid: low(tid) as i32, tid: high(tid) as i32, time, id, cpu: low(cpu) }))
    }
}

/// The word at a byte offset; 0 where the offset is 0, which stands for an absent field.
#[inline]
fn word(record: &[u8], offset: usize) -> u64 {
    if offset == 0 { 0 } else { u64_at(record, offset).unwrap_or(0) }
}

/// The size of a record in bytes, from its header.
#[inline(always)]
pub(in crate::perf) fn size_in<const BYTES: usize>(start: &[u8; BYTES]) -> usize {
    usize::from(u16::from_ne_bytes([start[6], start[7]]))
}

/// The first of two u32 in one word: they are stored in memory order.
#[inline]
pub(in crate::perf) fn low(word: u64) -> u32 {
    let bytes = word.to_ne_bytes();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[inline]
pub(in crate::perf) fn high(word: u64) -> u32 {
    let bytes = word.to_ne_bytes();
    u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
}

#[inline]
pub(in crate::perf) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let word = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

/// Reads forward through a record and checks each length before it is used.
struct Cursor<'a> {
    record: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.offset.checked_add(len).ok_or(Malformed::Length)?;
        let bytes = self.record.get(self.offset..end).ok_or(Malformed::Length)?;
        self.offset = end;
        Ok(bytes)
    }

    #[inline]
    fn u64(&mut self) -> Result<u64, Malformed> {
        let value = u64_at(self.record, self.offset).ok_or(Malformed::Short)?;
        self.offset += 8;
        Ok(value)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4).map_err(|_| Malformed::Short)?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    #[inline]
    fn words(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(count).ok().and_then(|n| n.checked_mul(8)).ok_or(Malformed::Length)?;
        self.bytes(len)
    }

    /// A register dump: an ABI word, and unless that is 0 one word per bit of `mask`.
    fn regs(&mut self, mask: u64) -> Result<Option<&'a [u8]>, Malformed> {
        let abi = self.u64()?;
        if abi == 0 { Ok(None) } else { self.words(u64::from(mask.count_ones())).map(Some) }
    }
}
