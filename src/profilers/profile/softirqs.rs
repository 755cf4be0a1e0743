//! Which samples were taken in a softirq. It runs in the context of the task that it interrupts, whatever it is for: the
//! kernel counts its time as that of the task.

use std::ops::Range;

use crate::host::Host;
use crate::perf::record::Callchain;
use crate::symbol::kernel::kallsyms;
use crate::symbol::stacks::chain_words::PERF_CONTEXT_USER;

/// The kernel functions by which a callchain shows a softirq. The address of a sample alone does not: `kfree` or
/// `tcp_v4_rcv` are called in softirqs and by tasks.
#[derive(Debug, Default)]
pub struct SoftirqCode {
    /// The functions that run softirqs. Empty: unknown.
    serves: Vec<Range<u64>>,
    /// The function of ksoftirqd, whose own work softirqs are.
    daemon: Vec<Range<u64>>,
}

impl SoftirqCode {
    /// Reads the addresses of the functions; where they are hidden, all is unknown.
    pub fn of(host: &Host) -> SoftirqCode {
        // Compilers divide a function, and give its parts names such as `handle_softirqs.cold`.
        let group = |name: &str| match name.split('.').next() {
            // handle_softirqs is a part of __do_softirq since Linux 6.10, kernel/softirq.c.
            Some("__do_softirq" | "handle_softirqs") => Some(0),
            Some("run_ksoftirqd") => Some(1),
            _ => None,
        };
        let [serves, daemon] = kallsyms::ranges_by(&host.proc.join("kallsyms"), group);
        SoftirqCode { serves, daemon }
    }

    pub fn is_known(&self) -> bool {
        !self.serves.is_empty()
    }

    /// Whether `chain` is that of a softirq in the context of a task that is not there for softirqs.
    #[inline]
    pub fn interrupts(&self, chain: Callchain<'_>) -> bool {
        let is_in = |functions: &[Range<u64>], address| functions.iter().any(|function| function.contains(&address));
        let mut kernel = chain.iter().take_while(|word| *word != PERF_CONTEXT_USER);
        kernel.any(|address| is_in(&self.serves, address)) && !kernel.any(|address| is_in(&self.daemon, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff80ffff00 t handle_softirqs.cold
ffffffff81000000 T kfree
ffffffff81000100 t do_softirq.part.0
ffffffff81000200 t handle_softirqs
ffffffff81000300 t run_ksoftirqd
ffffffff81000400 T ksoftirqd_should_run
ffffffff81000500 T __do_softirq
ffffffff81000600 T __irq_exit_rcu
";

    fn code(kallsyms: &str) -> SoftirqCode {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kallsyms"), kallsyms).unwrap();
        SoftirqCode::of(&Host { proc: dir.path().into(), cpu: dir.path().into() })
    }

    #[test]
    fn a_callchain_shows_whose_work_it_is() {
        const BASE: u64 = 0xffff_ffff_8100_0000;
        let code = code(KALLSYMS);
        let interrupts = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            code.interrupts(Callchain::from_bytes(&bytes))
        };
        let cases: [(&[u64], bool); 9] = [
            (&[BASE + 8, BASE + 0x210, BASE + 0x610], true),
            (&[BASE + 0x210], true),
            (&[BASE - 0x10, BASE + 0x610], true),
            (&[BASE + 8, BASE + 0x508, BASE + 0x610, PERF_CONTEXT_USER, 0x5555], true),
            (&[BASE + 8, BASE + 0x110, BASE + 0x610], false),
            (&[BASE + 8, BASE + 0x210, BASE + 0x310, BASE + 0x408], false),
            // The words of the user part are the process's own.
            (&[BASE + 8, PERF_CONTEXT_USER, BASE + 0x210], false),
            (&[PERF_CONTEXT_USER, 0x5555], false),
            (&[], false),
        ];
        for (words, want) in cases {
            assert_eq!(interrupts(words), want, "{words:x?}");
        }
    }

    #[test]
    fn without_addresses_nothing_is_known() {
        assert!(code(KALLSYMS).is_known());
        let hidden: String = KALLSYMS.lines().map(|line| format!("0000000000000000{}\n", &line[16..])).collect();
        for text in [&*hidden, ""] {
            assert!(!code(text).is_known(), "{text}");
        }
    }
}
