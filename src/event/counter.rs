//! Names of the kernel's software, hardware and raw counters.

use crate::perf::attr::Counter;

/// A counter, with its name as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCounter {
    pub name: String,
    pub counter: Counter,
}

/// Counters by name. The numbers are those of linux/perf_event.h.
const NAMES: [(&str, Counter); 16] = [
    ("page-faults", Counter::Software(2)),
    ("context-switches", Counter::Software(3)),
    ("cpu-migrations", Counter::Software(4)),
    ("minor-faults", Counter::Software(5)),
    ("major-faults", Counter::Software(6)),
    ("alignment-faults", Counter::Software(7)),
    ("emulation-faults", Counter::Software(8)),
    ("cycles", Counter::Hardware(0)),
    ("instructions", Counter::Hardware(1)),
    ("cache-references", Counter::Hardware(2)),
    ("cache-misses", Counter::Hardware(3)),
    ("branches", Counter::Hardware(4)),
    ("branch-misses", Counter::Hardware(5)),
    ("bus-cycles", Counter::Hardware(6)),
    ("ref-cycles", Counter::Hardware(9)),
    ("stalled-cycles-backend", Counter::Hardware(8)),
];

/// Parses a name of the list, or `r10f4`: the number of a raw event in the CPU's manual, in hex.
pub fn parse(text: &str) -> Result<NamedCounter, String> {
    if let Some((name, counter)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(NamedCounter { name: (*name).to_owned(), counter: *counter });
    }
    let hex = text.strip_prefix('r').filter(|hex| !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    match hex.map(|hex| u64::from_str_radix(hex, 16)) {
        Some(Ok(number)) => Ok(NamedCounter { name: text.to_owned(), counter: Counter::Raw(number) }),
        Some(Err(_)) => Err("too large, a raw event has 64 bits".to_owned()),
        None => {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            Err(format!("no such event, there are {} and raw ones as in r10f4", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_event_open_sys::bindings as b;

    use super::*;

    #[test]
    fn parses_names_and_numbers() {
        let cases = [
            ("page-faults", Some(Counter::Software(b::PERF_COUNT_SW_PAGE_FAULTS.into()))),
            ("context-switches", Some(Counter::Software(b::PERF_COUNT_SW_CONTEXT_SWITCHES.into()))),
            ("emulation-faults", Some(Counter::Software(b::PERF_COUNT_SW_EMULATION_FAULTS.into()))),
            ("cycles", Some(Counter::Hardware(b::PERF_COUNT_HW_CPU_CYCLES.into()))),
            ("bus-cycles", Some(Counter::Hardware(b::PERF_COUNT_HW_BUS_CYCLES.into()))),
            ("ref-cycles", Some(Counter::Hardware(b::PERF_COUNT_HW_REF_CPU_CYCLES.into()))),
            ("stalled-cycles-backend", Some(Counter::Hardware(b::PERF_COUNT_HW_STALLED_CYCLES_BACKEND.into()))),
            ("r10f4", Some(Counter::Raw(0x10f4))),
            ("rffffffffffffffff", Some(Counter::Raw(u64::MAX))),
            ("r1ffffffffffffffff", None),
            ("r", None),
            ("r+1", None),
            ("r10g4", None),
            ("", None),
            ("faults", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text).ok().map(|named| named.counter), want, "{text}");
        }
    }
}
