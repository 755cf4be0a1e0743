//! The profilers. Adding one means its file, its line in `profilers!`, its docs page and its tests.

pub mod blktrace;
pub mod expr;
pub mod files;
pub mod irq_off;
pub mod irqs;
pub mod kmemleak;
pub mod locks;
pub mod multi_trace;
pub mod net;
pub mod num_dist;
pub mod oncpu;
pub mod page_faults;
pub mod profile;
pub mod reclaim;
pub mod rundelay;
pub mod sched_migrate;
pub mod signal;
pub mod split_lock;
pub mod syscalls;
pub mod task_state;
pub mod top;
pub mod trace;
pub mod watchdog;

use crate::profiler::Trial;
use crate::report::{ColumnKind, TableSchema};

/// Passes the list of all profilers to the macro `$to`: the name of the subcommand, and the type of its options.
macro_rules! profilers {
    ($to:ident) => {
        $to! {
            Blktrace(blktrace::BlktraceArgs),
            Expr(expr::ExprArgs),
            Files(files::FilesArgs),
            IrqOff(irq_off::IrqOffArgs),
            Irqs(irqs::IrqsArgs),
            Kmemleak(kmemleak::KmemleakArgs),
            Locks(locks::LocksArgs),
            MultiTrace(multi_trace::MultiTraceArgs),
            Net(net::NetArgs),
            NumDist(num_dist::NumDistArgs),
            Oncpu(oncpu::OncpuArgs),
            PageFaults(page_faults::PageFaultsArgs),
            Profile(profile::ProfileArgs),
            Reclaim(reclaim::ReclaimArgs),
            Rundelay(rundelay::RundelayArgs),
            SchedMigrate(sched_migrate::SchedMigrateArgs),
            Signal(signal::SignalArgs),
            SplitLock(split_lock::SplitLockArgs),
            Syscalls(syscalls::SyscallsArgs),
            TaskState(task_state::TaskStateArgs),
            Top(top::TopArgs),
            Trace(trace::TraceArgs),
            Watchdog(watchdog::WatchdogArgs),
        }
    };
}
pub(crate) use profilers;

macro_rules! trials {
    ($($name:ident($module:ident::$args:ident),)*) => {
        /// Every profiler.
        pub fn trials() -> Vec<Trial> {
            vec![$(Trial::of::<$module::$args>(),)*]
        }
    };
}

profilers!(trials);

/// Whether some table counts values into buckets.
pub fn has_distribution(tables: &[&dyn TableSchema]) -> bool {
    let columns = tables.iter().flat_map(|table| table.head().columns);
    columns.into_iter().any(|column| column.kind == ColumnKind::Distribution)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scrape omits unexplained columns, and for most profilers distributions are the main result.
    #[test]
    fn distributions_are_explained() {
        for head in trials().iter().flat_map(|trial| trial.tables).map(|table| table.head()) {
            for column in head.columns.iter().filter(|column| column.kind == ColumnKind::Distribution) {
                let is_told = column.in_json || head.meanings.iter().any(|(key, _)| *key == column.key);
                assert!(is_told, "{} of table {}", column.key, head.table);
            }
        }
    }
}
