//! Events and fields that profilers read and that kernels have renamed, merged, added or dropped. All such knowledge is
//! here.
//!
//! A kernel is asked for what it has, never for its version. Types need no entry: a [`Field`] is read as its format
//! describes it, `char comm[16]` or `__data_loc char[] comm`, an int or a long.

use crate::tep::format::field::Field;
use crate::tep::format::{FieldError, Format};
use crate::tep::print_fmt::{FlagTable, PrintFmt};

/// A field that profilers rely on and that is not the same in all kernels.
#[derive(Debug, PartialEq, Eq)]
pub struct DriftingField {
    pub event: &'static str,
    /// Names of the field, the best first.
    pub names: &'static [&'static str],
    /// What profilers do on a kernel with none of these names. None: they need the field.
    pub without: Option<&'static str>,
}

const fn drifting(event: &'static str, names: &'static [&'static str], without: Option<&'static str>) -> DriftingField {
    DriftingField { event, names, without }
}

/// Names of the field with the bytes that an allocator took, the best first: it includes what rounding wastes.
pub const ALLOCATED_BYTES: [&str; 2] = ["bytes_alloc", "size"];

/// Fields that were retyped, renamed or dropped over the years.
pub static DRIFTING_FIELDS: [DriftingField; 16] = [
    drifting("sched:sched_switch", &["prev_comm"], None),
    drifting("sched:sched_switch", &["prev_pid"], None),
    drifting("sched:sched_switch", &["prev_state"], None),
    drifting("sched:sched_wakeup", &["comm"], None),
    drifting("sched:sched_wakeup", &["success"], Some("every wake-up counts")),
    drifting("sched:sched_waking", &["pid"], Some("waits end at sched_wakeup")),
    drifting("sched:sched_process_exec", &["filename"], None),
    drifting("raw_syscalls:sys_enter", &["id"], Some("no system call can be traced")),
    drifting("raw_syscalls:sys_enter", &["args"], Some("no system call can be traced")),
    drifting("raw_syscalls:sys_exit", &["ret"], Some("no system call can be traced")),
    drifting("signal:signal_generate", &["comm"], None),
    drifting("kmem:kmalloc", &["bytes_alloc"], None),
    drifting("percpu:percpu_alloc_percpu", &ALLOCATED_BYTES, Some("per-CPU memory cannot be watched")),
    drifting("filelock:flock_lock_inode", &["type", "fl_type"], Some("waits for locks of files cannot be watched")),
    drifting("filelock:posix_lock_inode", &["type", "fl_type"], Some("waits for locks of files cannot be watched")),
    drifting("filelock:posix_lock_inode", &["flags", "fl_flags"], Some("waits for locks of files cannot be watched")),
];

/// Older names of events, each with its successor.
static SUCCESSORS: [(&str, &str); 8] = [
    ("ext4:ext4_readpage", "ext4:ext4_read_folio"),
    ("ext4:ext4_releasepage", "ext4:ext4_release_folio"),
    ("kmem:kmalloc_node", "kmem:kmalloc"),
    ("kmem:kmem_cache_alloc_node", "kmem:kmem_cache_alloc"),
    ("timer:hrtimer_init", "timer:hrtimer_setup"),
    ("vmscan:mm_vmscan_writepage", "vmscan:mm_vmscan_write_folio"),
    ("writeback:wait_on_page_writeback", "writeback:folio_wait_writeback"),
    ("writeback:writeback_dirty_page", "writeback:writeback_dirty_folio"),
];

impl DriftingField {
    /// The field in `format`, under the first of its names that is there.
    pub fn find<'f>(&self, format: &'f Format) -> Option<&'f Field> {
        self.names.iter().find_map(|name| format.field(name))
    }
}

/// The field of `format` that profilers know as `name`, under any name it has had.
///
/// # Errors
/// The event has no such field; the error lists its fields.
pub fn require<'f>(format: &'f Format, name: &str) -> Result<&'f Field, FieldError> {
    let full_name = format.full_name();
    let known = DRIFTING_FIELDS.iter().find(|field| field.event == full_name && field.names.first() == Some(&name));
    known.and_then(|known| known.find(format)).map_or_else(|| format.require(name), Ok)
}

/// What the event `name` is called in other kernels, newer and older ones.
pub fn other_names(name: &str) -> impl Iterator<Item = &'static str> + use<'_> {
    SUCCESSORS.iter().filter_map(move |&(old, new)| match name {
        name if name == old => Some(new),
        name if name == new => Some(old),
        _ => None,
    })
}

/// Which bits of `prev_state` mean which letter, out of the print format of `sched_switch`: the bits have moved often.
pub fn task_states(sched_switch: &Format) -> Option<FlagTable> {
    PrintFmt::compile(sched_switch).ok()?.flag_table("prev_state")
}

/// The field that is 0 for a wake-up of a task that did not sleep. Kernels without it record no such wake-ups.
pub fn wakeup_success(wakeup: &Format) -> Option<&Field> {
    wakeup.field("success")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percpu(fields: &str) -> Format {
        let text = format!("name: percpu_alloc_percpu\nID: 1\nformat:\n{fields}\nprint fmt: \"\"\n");
        Format::parse("percpu", &text).unwrap()
    }

    #[test]
    fn a_field_is_found_under_any_of_its_names() {
        let size = "\tfield:size_t size;\toffset:8;\tsize:8;\tsigned:0;\n";
        let bytes = "\tfield:size_t bytes_alloc;\toffset:16;\tsize:8;\tsigned:0;\n";
        assert_eq!(require(&percpu(&[size, bytes].concat()), "bytes_alloc").unwrap().offset, 16);
        assert_eq!(require(&percpu(size), "bytes_alloc").unwrap().offset, 8);
        assert!(require(&percpu(size), "size").is_ok());
        let err = require(&percpu(size), "ptr").unwrap_err();
        assert_eq!((err.field.as_str(), err.has.as_str()), ("ptr", "size"));
    }

    #[test]
    fn events_have_other_names() {
        assert!(other_names("kmem:kmalloc_node").eq(["kmem:kmalloc"]));
        assert!(other_names("timer:hrtimer_setup").eq(["timer:hrtimer_init"]));
        assert!(other_names("sched:sched_switch").next().is_none());
    }
}
