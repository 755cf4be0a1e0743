//! Windows of user stacks: events that carry them in their own samples, and companions for events that must not.

use crate::perf::classes::is_loud;
use crate::perf::event_id::{EventId, WINDOW_OWNER};
use crate::perf::evsel::{ChainUse, Evsel};
use crate::perf::evsels::Evsels;

/// The windows that a run asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    /// Bytes of each window. None: the size depends on how often the event comes.
    pub bytes: Option<u32>,
    /// Events that may come a hundred thousand times a second get companions, too.
    pub loud_too: bool,
    /// The user asks for the frames of programs: so do those of these events that may have a companion.
    pub is_asked_for: bool,
}

/// The windows that were added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowsAdded {
    /// Bytes of the largest window.
    pub most_bytes: u32,
    /// Number of events whose samples have a window themselves.
    pub own: usize,
    /// Number of companions.
    pub companions: usize,
    /// Some of them may be ended. The others cost a program less than the probe that they come with.
    pub may_end: bool,
    /// Number of events that come too often for a companion.
    pub too_loud: usize,
}

/// Window of a paced event. At 1,000 Hz that is 33 MB/s per CPU, which costs the load about 1 %.
const PACED_BYTES: u32 = 32 << 10;
/// Window of an event that is sampled more often than [`FAST_HZ`].
const FAST_BYTES: u32 = 16 << 10;
const FAST_HZ: u64 = 1000;
/// Window of an event that no clock or counter paces. Copying it takes as long as a callchain, 1.7 µs.
const COMPANION_BYTES: u32 = 8 << 10;
/// Window of an allocator's event, and of what comes a hundred thousand times a second, if it is asked for. Of ls, sort and
/// g++ up to 1 % of the stacks of malloc are longer, and up to 93 % longer than 2 KiB; of Python and git more than half are longer
/// than either. With 8 MiB for them, 27,000 a second fit.
/// A signal frame of aarch64 has more than 4 KiB.
const SMALL_BYTES: u32 = if cfg!(target_arch = "aarch64") { 8 << 10 } else { 4 << 10 };

/// How an event gets windows; the numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowUse {
    /// The event has no callchain of programs.
    None,
    /// The event comes too often.
    TooLoud,
    Own(u32),
    Companion(u32),
}

impl WindowUse {
    fn bytes(self) -> u32 {
        match self {
            WindowUse::None | WindowUse::TooLoud => 0,
            WindowUse::Own(bytes) | WindowUse::Companion(bytes) => bytes,
        }
    }
}

fn has_no_companion(evsel: &Evsel) -> bool {
    evsel.attr.is_software() || evsel.attr.is_counter() && !evsel.is_probe
}

impl WindowPlan {
    fn of(self, evsel: &Evsel, any_task: bool) -> WindowUse {
        if !evsel.is_opened() || evsel.chain_use != ChainUse::Shown || !evsel.attr.has_user_callchain() {
            return WindowUse::None;
        }
        match evsel.attr.paced_hz() {
            Some(hz) => WindowUse::Own(self.bytes.unwrap_or(if hz > FAST_HZ { FAST_BYTES } else { PACED_BYTES })),
            // The kernel prepares a sample once for all software events of a kind (`do_perf_sw_event`,
            // kernel/events/core.c): a companion with other fields would spoil the event's own records. The companion
            // of a counter would take its samples at other moments.
            None if has_no_companion(evsel) && self.loud_too => WindowUse::Own(self.bytes.unwrap_or(COMPANION_BYTES)),
            None if has_no_companion(evsel) => WindowUse::TooLoud,
            None if any_task && is_loud(evsel) && evsel.filter.is_none() => match self {
                WindowPlan { loud_too: true, bytes, .. } => WindowUse::Companion(bytes.unwrap_or(COMPANION_BYTES)),
                WindowPlan { is_asked_for: true, .. } => WindowUse::Companion(SMALL_BYTES),
                _ => WindowUse::TooLoud,
            },
            None if evsel.has_small_copies => WindowUse::Companion(self.bytes.unwrap_or(SMALL_BYTES)),
            None => WindowUse::Companion(self.bytes.unwrap_or(COMPANION_BYTES)),
        }
    }
}

impl Evsels {
    /// Gives every event with callchains of programs a window in its samples, or a companion that has one. To be called
    /// after all filters are set and before events are opened. A companion is enabled after its event, and the kernel
    /// calls the event first that was enabled last (`perf_trace_add`, kernel/trace/trace_event_perf.c), so a window
    /// comes before its sample.
    pub fn add_windows(&mut self, plans: impl Fn(usize) -> Option<WindowPlan>, any_task: bool) -> WindowsAdded {
        let mut added = WindowsAdded::default();
        for index in 0..self.list.len() {
            let evsel = &mut self.list[index];
            let Some(plan) = plans(evsel.owner) else { continue };
            let use_of = plan.of(evsel, any_task);
            match use_of {
                WindowUse::None => continue,
                WindowUse::TooLoud => {
                    added.too_loud += 1;
                    continue;
                }
                WindowUse::Own(bytes) => {
                    evsel.attr = evsel.attr.clone().user_window(bytes);
                    added.own += 1;
                }
                WindowUse::Companion(bytes) => {
                    added.may_end |= evsel.in_program.is_none() || bytes > SMALL_BYTES;
                    let companion = evsel.window_companion(EventId(index as u16), bytes);
                    if self.push(companion).is_err() {
                        continue; // there are no event ids left
                    }
                    added.companions += 1;
                }
            }
            added.most_bytes = added.most_bytes.max(use_of.bytes());
        }
        added
    }

    /// Bytes of the largest window that [`Evsels::add_windows`] would add.
    pub fn most_window_bytes(&self, plans: impl Fn(usize) -> Option<WindowPlan>, any_task: bool) -> u32 {
        let bytes = |evsel: &Evsel| Some(plans(evsel.owner)?.of(evsel, any_task).bytes());
        self.list.iter().filter_map(bytes).max().unwrap_or(0)
    }

    /// Some event has a window, or a companion with one.
    pub fn any_windows(&self) -> bool {
        self.list.iter().any(|evsel| evsel.is_window() || evsel.attr.has_user_window())
    }
}

impl Evsel {
    /// The companion: the same event once more, whose samples hold only a window of the user stack.
    fn window_companion(&self, event: EventId, bytes: u32) -> Evsel {
        // A return probe replaces return addresses on the stack; only the kernel's callchain has the original ones.
        let attr = self.attr.clone().only_user_window(bytes, self.is_probe || self.in_program.is_some());
        let mut companion = Evsel::new(self.name.clone(), attr);
        companion.binding = self.binding;
        companion.cpus = self.cpus.clone();
        companion.filter = self.filter.clone();
        companion.optional = self.optional;
        companion.is_probe = self.is_probe;
        // `in_program` stays unset: the guards of the event keep the probe, which is the same for the companion.
        companion.owner = WINDOW_OWNER;
        companion.window_of = Some(event);
        companion
    }

    /// For a companion: the event that it belongs to.
    pub fn window_of(&self) -> Option<EventId> {
        self.window_of
    }

    /// The event is the companion of another event.
    pub fn is_window(&self) -> bool {
        self.window_of.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::{Attr, Sampling};

    #[test]
    fn what_paces_itself_has_windows_in_its_samples() {
        let plan = |loud_too| WindowPlan { bytes: None, loud_too, is_asked_for: false };
        let use_of = |attr: Attr, loud_too| {
            let mut evsel = Evsel::new("an event", attr).callchain(0);
            evsel.attr = evsel.attr.clone().user_callchain();
            plan(loud_too).of(&evsel, false)
        };
        let period = || Attr::cycles(Sampling::Period(1_000_000));
        let cases = [
            (Attr::cycles(Sampling::Frequency(99)), WindowUse::Own(PACED_BYTES), WindowUse::Own(PACED_BYTES)),
            (Attr::cpu_clock(Sampling::Period(100_000)), WindowUse::Own(FAST_BYTES), WindowUse::Own(FAST_BYTES)),
            // Two counters with one period do not sample at the same moments.
            (period().paced_at(Some(997)), WindowUse::Own(PACED_BYTES), WindowUse::Own(PACED_BYTES)),
            (period(), WindowUse::TooLoud, WindowUse::Own(COMPANION_BYTES)),
            (Attr::tracepoint(7), WindowUse::Companion(COMPANION_BYTES), WindowUse::Companion(COMPANION_BYTES)),
        ];
        for (attr, auto, dwarf) in cases {
            let found = [false, true].map(|loud_too| use_of(attr.clone(), loud_too));
            assert_eq!(found, [auto, dwarf], "{attr:?}");
        }
    }

    #[test]
    fn windows_of_what_comes_often_are_small() {
        let [small, usual] = [SMALL_BYTES, COMPANION_BYTES].map(WindowUse::Companion);
        let (auto, asked) = ((None, false, false), (None, false, true));
        let (dwarf, given) = ((None, true, false), (Some(2048), true, false));
        let given_use = WindowUse::Companion(2048);
        let rare = Evsel::new("a:b", Attr::tracepoint(7)).callchain(0);
        let loud = || Evsel::new("kmem:kmalloc", Attr::tracepoint(8)).callchain(0);
        let often = Evsel::new("c:d", Attr::tracepoint(9)).callchain(0).small_copies();
        let cases = [
            (&rare, auto, usual),
            (&rare, asked, usual),
            (&often, auto, small),
            (&often, dwarf, small),
            (&often, given, given_use),
            (&loud(), auto, WindowUse::TooLoud),
            (&loud(), asked, small),
            (&loud(), dwarf, usual),
            (&loud(), given, given_use),
            (&loud().kernel_callchain(), asked, WindowUse::None),
        ];
        for (evsel, (bytes, loud_too, is_asked_for), want) in cases {
            let plan = WindowPlan { bytes, loud_too, is_asked_for };
            assert_eq!(plan.of(evsel, true), want, "{} {plan:?}", evsel.name);
        }
        // Of few tasks, what is loud elsewhere is not.
        assert_eq!(WindowPlan { bytes: None, loud_too: false, is_asked_for: true }.of(&loud(), false), usual);
    }
}
