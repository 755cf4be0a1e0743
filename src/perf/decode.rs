//! Decodes records that are no samples.

use perf_event_open_sys::bindings as b;

use crate::perf::layout::Layout;
use crate::perf::record::{Callchain, FileId, Malformed, Mmap, Record, SampleId, TaskRecord, record_type};

/// Decodes a record that is no sample.
///
/// # Errors
/// The record ends too early.
pub fn decode<'a>(record: &'a [u8], layout: &Layout) -> Result<(Record<'a>, SampleId), Malformed> {
    let (body, id) = layout.split_id(record)?;
    let misc = u32::from(u16::from_ne_bytes([record[4], record[5]]));
    let fields = Fields(body);
    let decoded = match record_type(record) {
        b::PERF_RECORD_LOST => Record::Lost { count: fields.u64(8)? },
        b::PERF_RECORD_LOST_SAMPLES => Record::LostSamples { count: fields.u64(0)? },
        b::PERF_RECORD_COMM => Record::Comm {
            pid: fields.i32(0)?,
            tid: fields.i32(4)?,
            comm: fields.text(8)?,
            exec: misc & b::PERF_RECORD_MISC_COMM_EXEC != 0,
        },
        b::PERF_RECORD_FORK => Record::Fork(fields.task()?),
        b::PERF_RECORD_EXIT => Record::Exit(fields.task()?),
        b::PERF_RECORD_THROTTLE => Record::Throttle { on: true },
        b::PERF_RECORD_UNTHROTTLE => Record::Throttle { on: false },
        b::PERF_RECORD_MMAP => Record::Mmap(fields.mmap(FileId::Unknown, 32)?),
        b::PERF_RECORD_MMAP2 => {
            let file = if misc & b::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
                let len = usize::from(*body.get(32).ok_or(Malformed::Short)?).min(20);
                FileId::BuildId(body.get(36..36 + len).ok_or(Malformed::Short)?)
            } else {
                FileId::Inode { major: fields.u32(32)?, minor: fields.u32(36)?, inode: fields.u64(40)? }
            };
            Record::Mmap(fields.mmap(file, 64)?)
        }
        kind @ (b::PERF_RECORD_SWITCH | b::PERF_RECORD_SWITCH_CPU_WIDE) => Record::Switch {
            out: misc & b::PERF_RECORD_MISC_SWITCH_OUT != 0,
            preempted: misc & b::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0,
            other: if kind == b::PERF_RECORD_SWITCH_CPU_WIDE { Some(fields.i32(4)?) } else { None },
        },
        b::PERF_RECORD_KSYMBOL => Record::Ksymbol {
            addr: fields.u64(0)?,
            len: fields.u32(8)?,
            gone: fields.u32(12)? >> 16 & b::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0,
            name: fields.text(16)?,
        },
        b::PERF_RECORD_CGROUP => Record::Cgroup { id: fields.u64(0)?, path: fields.text(8)? },
        b::PERF_RECORD_CALLCHAIN_DEFERRED => {
            Record::DeferredCallchain { cookie: fields.u64(0)?, callchain: fields.callchain(8)? }
        }
        other => Record::Other(other),
    };
    Ok((decoded, id))
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u64(&self, offset: usize) -> Result<u64, Malformed> {
        let bytes = self.0.get(offset..offset + 8).ok_or(Malformed::Short)?;
        Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| Malformed::Short)?))
    }

    fn u32(&self, offset: usize) -> Result<u32, Malformed> {
        let bytes = self.0.get(offset..offset + 4).ok_or(Malformed::Short)?;
        Ok(u32::from_ne_bytes(bytes.try_into().map_err(|_| Malformed::Short)?))
    }

    fn i32(&self, offset: usize) -> Result<i32, Malformed> {
        Ok(self.u32(offset)? as i32)
    }

    /// The bytes from `offset` up to the first NUL.
    fn text(&self, offset: usize) -> Result<&'a [u8], Malformed> {
        let bytes = self.0.get(offset..).ok_or(Malformed::Short)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(&bytes[..end])
    }

    /// The number of words, and the words.
    fn callchain(&self, offset: usize) -> Result<Callchain<'a>, Malformed> {
        let count = usize::try_from(self.u64(offset)?).map_err(|_| Malformed::Length)?;
        let words = self.0.get(offset + 8..).ok_or(Malformed::Short)?.as_chunks::<8>().0;
        Ok(Callchain::from_bytes(words.get(..count).ok_or(Malformed::Length)?.as_flattened()))
    }

    fn task(&self) -> Result<TaskRecord, Malformed> {
        Ok(TaskRecord {
            pid: self.i32(0)?,
            ppid: self.i32(4)?,
            tid: self.i32(8)?,
            ptid: self.i32(12)?,
            time: self.u64(16)?,
        })
    }

    fn mmap(&self, file: FileId<'a>, path: usize) -> Result<Mmap<'a>, Malformed> {
        Ok(Mmap {
            pid: self.i32(0)?,
            tid: self.i32(4)?,
            addr: self.u64(8)?,
            len: self.u64(16)?,
            offset: self.u64(24)?,
            file,
            path: self.text(path)?,
        })
    }
}
