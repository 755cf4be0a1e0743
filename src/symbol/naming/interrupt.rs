//! The interrupt that the kernel was in, by its stack: the innermost function that dispatches interrupts tells the
//! kind, the function it called tells which one.

use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::names::is_interrupt_entry;
use crate::tep::context::Interruption;

/// Kind of a function that dispatches to handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dispatch {
    /// High-resolution timers, in a hard interrupt or their softirq.
    HighResTimer,
    Timer,
    Softirq,
    /// To the handler of a device.
    DeviceIrq,
    /// To a function that another CPU asked this one to call.
    SmpCall,
    IrqWork,
}

/// Names of kernels since 4.3. Callers stand for functions that the compiler may have inlined into them.
const DISPATCHERS: [(&str, Dispatch); 21] = [
    ("__hrtimer_run_queues", Dispatch::HighResTimer),
    ("hrtimer_run_queues", Dispatch::HighResTimer),
    ("hrtimer_interrupt", Dispatch::HighResTimer),
    ("hrtimer_run_softirq", Dispatch::HighResTimer),
    ("call_timer_fn", Dispatch::Timer),
    ("expire_timers", Dispatch::Timer),
    ("__run_timers", Dispatch::Timer),
    ("run_timer_softirq", Dispatch::Timer),
    ("handle_softirqs", Dispatch::Softirq),
    ("__do_softirq", Dispatch::Softirq),
    ("__softirqentry_text_start", Dispatch::Softirq), // the same address
    ("__handle_irq_event_percpu", Dispatch::DeviceIrq),
    ("handle_irq_event_percpu", Dispatch::DeviceIrq),
    ("handle_percpu_devid_irq", Dispatch::DeviceIrq),
    ("handle_percpu_irq", Dispatch::DeviceIrq),
    ("__flush_smp_call_function_queue", Dispatch::SmpCall),
    ("flush_smp_call_function_queue", Dispatch::SmpCall),
    ("generic_smp_call_function_single_interrupt", Dispatch::SmpCall),
    ("irq_work_single", Dispatch::IrqWork),
    ("irq_work_run_list", Dispatch::IrqWork),
    ("irq_work_run", Dispatch::IrqWork),
];

/// Names of softirqs (`softirq_to_name`, kernel/softirq.c) by their handlers.
const SOFTIRQS: [(&str, &str); 15] = [
    ("tasklet_hi_action", "HI"),
    ("run_timer_softirq", "TIMER"),
    ("net_tx_action", "NET_TX"),
    ("net_rx_action", "NET_RX"),
    ("blk_done_softirq", "BLOCK"),
    ("blk_complete_reqs", "BLOCK"),
    ("irq_poll_softirq", "IRQ_POLL"),
    ("tasklet_action", "TASKLET"),
    ("tasklet_action_common", "TASKLET"),
    ("run_rebalance_domains", "SCHED"),
    ("sched_balance_softirq", "SCHED"),
    ("hrtimer_run_softirq", "HRTIMER"),
    ("rcu_core", "RCU"),
    ("rcu_core_si", "RCU"),
    ("rcu_process_callbacks", "RCU"),
];

/// Functions that wake up a task without telling what for. A handler that ends with such a call may be missing on the
/// stack (tail call).
const WAKERS: [&str; 4] = ["try_to_wake_up", "wake_up_process", "wake_up_state", "default_wake_function"];

/// Handlers of timers that a task sets to wake itself up.
const OWN_TIMEOUTS: [&str; 2] = ["hrtimer_wakeup", "process_timeout"];

/// The name of the interrupt with the stack `frames`, innermost first. None when the stack does not tell.
pub fn name(kind: Interruption, frames: &[NamedFrame]) -> Option<String> {
    let unknown = || (kind == Interruption::Soft).then(|| "softirq".to_owned());
    let mut inner = None;
    for frame in frames {
        let Ok(symbol) = &frame.symbol else { return unknown() };
        // Without suffixes of the compiler: `.isra.0`, `.llvm.123`.
        let function = symbol.split('.').next().unwrap_or_default();
        // The frames further out were interrupted.
        if is_interrupt_entry(function) {
            return unknown();
        }
        if let Some((_, dispatch)) = DISPATCHERS.iter().find(|(name, _)| *name == function) {
            let called = inner.filter(|called| !WAKERS.contains(called));
            return dispatch.name(kind, called).or_else(unknown);
        }
        inner = Some(function);
    }
    unknown()
}

impl Dispatch {
    /// `called`: the function called by the dispatcher, where that is known.
    fn name(self, kind: Interruption, called: Option<&str>) -> Option<String> {
        let is_hard = kind == Interruption::Hard;
        let with = |word: &str| called.map_or_else(|| word.to_owned(), |called| format!("{word} {called}"));
        let of_timer = || {
            let other = called.filter(|called| !OWN_TIMEOUTS.contains(called));
            other.map_or_else(|| "timer".to_owned(), |called| format!("timer {called}"))
        };
        match self {
            Dispatch::HighResTimer => Some(of_timer()),
            Dispatch::Timer if !is_hard => Some(of_timer()),
            Dispatch::Softirq if !is_hard => {
                let known = SOFTIRQS.iter().find(|(function, _)| Some(*function) == called);
                Some(known.map_or_else(|| with("softirq"), |(_, name)| format!("softirq {name}")))
            }
            Dispatch::DeviceIrq if is_hard => called.filter(|called| *called != "__irq_wake_thread").map(str::to_owned),
            Dispatch::SmpCall if is_hard => Some(with("IPI")),
            Dispatch::IrqWork if is_hard => Some(with("irq_work")),
            // The stack contradicts the flags of the record.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(kind: Interruption, functions: &str) -> Option<String> {
        let named = |symbol: &str| NamedFrame::new(Ok(symbol.into()), 0, None);
        let frames: Vec<NamedFrame> = functions.split(' ').map(named).collect();
        name(kind, &frames)
    }

    #[test]
    fn the_innermost_dispatcher_names_the_interrupt() {
        use Interruption::{Hard, Soft};
        let cases = [
            (Hard, "try_to_wake_up hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt", Some("timer")),
            (
                Hard,
                "try_to_wake_up timerfd_tmrproc __hrtimer_run_queues hrtimer_interrupt",
                Some("timer timerfd_tmrproc"),
            ),
            (Hard, "try_to_wake_up hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt", Some("timer")),
            (Soft, "try_to_wake_up call_timer_fn __run_timers.part.0 run_timer_softirq handle_softirqs", Some("timer")),
            (Soft, "try_to_wake_up call_timer_fn.constprop.0 __run_timers", Some("timer")),
            (
                Soft,
                "try_to_wake_up kick_pool __queue_work call_timer_fn __run_timers run_timer_softirq handle_softirqs",
                Some("timer __queue_work"),
            ),
            (Soft, "try_to_wake_up swake_up_one rcu_core handle_softirqs __irq_exit_rcu", Some("softirq RCU")),
            (Soft, "try_to_wake_up tcp_v4_rcv net_rx_action __do_softirq", Some("softirq NET_RX")),
            (Soft, "try_to_wake_up new_action __do_softirq", Some("softirq new_action")),
            (Soft, "try_to_wake_up handle_softirqs", Some("softirq")),
            (Soft, "try_to_wake_up deep deeper", Some("softirq")),
            (Hard, "try_to_wake_up nvme_irq __handle_irq_event_percpu handle_irq_event", Some("nvme_irq")),
            (Hard, "try_to_wake_up __irq_wake_thread __handle_irq_event_percpu", None),
            (Hard, "try_to_wake_up deep deeper", None),
            // On arm64, the timer is behind a handler of a device.
            (
                Hard,
                "try_to_wake_up hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt arch_timer_handler_virt \
                 handle_percpu_devid_irq el1h_64_irq",
                Some("timer"),
            ),
            (Hard, "try_to_wake_up f __flush_smp_call_function_queue", Some("IPI f")),
            (
                Hard,
                "try_to_wake_up perf_pending_irq irq_work_single irq_work_run_list",
                Some("irq_work perf_pending_irq"),
            ),
            // An unknown interrupt of a softirq, which must not name it.
            (Hard, "try_to_wake_up strange asm_sysvec_strange net_rx_action handle_softirqs", None),
            (Hard, "try_to_wake_up strange net_rx_action handle_softirqs", None),
        ];
        for (kind, functions, want) in cases {
            assert_eq!(name_of(kind, functions).as_deref(), want, "{kind:?} {functions}");
        }
    }

    #[test]
    fn a_stack_without_names_tells_nothing() {
        let unnamed = NamedFrame::new(Err("kallsyms cannot be read".into()), 0, None);
        assert_eq!(name(Interruption::Hard, std::slice::from_ref(&unnamed)), None);
        assert_eq!(name(Interruption::Soft, &[unnamed]).as_deref(), Some("softirq"));
        assert_eq!(name(Interruption::Nmi, &[]), None);
    }
}
