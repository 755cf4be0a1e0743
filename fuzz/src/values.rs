//! Texts of option values: what is parsed is within its bounds, and prints as text that parses to the same.

use perf_prof::cli::values::{self, RingSize, Time};
use perf_prof::host::parse_cpus;

use super::input::text_and_bytes;

pub fn run(data: &[u8]) {
    let Some((text, bytes)) = text_and_bytes(data) else { return };
    times(text);
    if let Ok(size) = values::ring_size(text) {
        let (RingSize::Pages(number) | RingSize::Bytes(number)) = size;
        assert!(number.is_power_of_two() && size.pages(4096).is_power_of_two());
    }
    if let Ok(cpus) = parse_cpus(text) {
        assert!(!cpus.is_empty() && cpus.is_sorted_by(|a, b| a < b));
        let ranges = cpus.chunk_by(|a, b| a + 1 == *b);
        let list: Vec<String> = ranges.map(|range| format!("{}-{}", range[0], range[range.len() - 1])).collect();
        assert_eq!(parse_cpus(&list.join(",")), Ok(cpus));
    }
    if let Ok(count) = values::count(text) {
        assert_eq!(values::count(&count.to_string()), Ok(count));
    }
    if let Ok(percent) = values::percent(text) {
        assert!(percent.0 < 10_000);
        assert_eq!(values::percent(&format!("{}.{:02}", percent.0 / 100, percent.0 % 100)), Ok(percent));
    }
    if let Ok(pids) = values::pid_list(text) {
        assert!(pids.iter().all(|&pid| pid > 0));
        let list: Vec<String> = pids.iter().map(i32::to_string).collect();
        assert_eq!(values::pid_list(&list.join(",")), Ok(pids));
    }
    let _ = (values::list(text), values::task_list(text));
    if let Ok(comms) = values::comm_list(text) {
        let matched = comms.matches(bytes);
        assert_eq!(
            matched,
            comms.iter().any(|comm| values::comm_list(comm.typed()).is_ok_and(|comm| comm.matches(bytes)))
        );
    }
}

fn times(text: &str) {
    let parsers = [values::time_ms, values::time_s, values::time_us, values::time_ns, values::time_strict];
    let strict = values::time_strict(text);
    for parse in parsers {
        let parsed = parse(text);
        if let Ok(Time(ns)) = parsed {
            assert_eq!(values::time_strict(&format!("{ns}ns")), Ok(Time(ns)));
            assert!(perf_prof::digits::format_ns(ns).len() <= 7);
        }
        assert!(strict.is_err() || parsed == strict, "a unit says it all: {text:?}");
    }
}
