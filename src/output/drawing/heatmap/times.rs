//! Times of day on the axis of a heat map.

const S: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * S;

/// Possible distances between two labels.
const STEPS: [u64; 24] = [
    S / 1000,
    S / 500,
    S / 200,
    S / 100,
    S / 50,
    S / 20,
    S / 10,
    S / 5,
    S / 2,
    S,
    2 * S,
    5 * S,
    10 * S,
    15 * S,
    30 * S,
    60 * S,
    120 * S,
    300 * S,
    600 * S,
    1800 * S,
    3600 * S,
    3 * 3600 * S,
    6 * 3600 * S,
    12 * 3600 * S,
];

/// Limit of the labels of an axis.
const MAX_LABELS: u64 = 10;

/// The wall clock: the text of a CLOCK_MONOTONIC time, `2026-11-20 20:46:39.830696`.
pub struct DayTimes<'a>(pub &'a mut dyn FnMut(u64) -> String);

impl DayTimes<'_> {
    /// `2026-11-20 20:46:39`
    pub fn second(&mut self, ns: u64) -> String {
        (self.0)(ns).chars().take("2026-11-20 20:46:39".len()).collect()
    }

    /// `20:46:39.830`
    pub fn millis(&mut self, ns: u64) -> String {
        (self.0)(ns).chars().skip("2026-11-20 ".len()).take("20:46:39.830".len()).collect()
    }

    /// ns since midnight.
    fn of_day_ns(&mut self, ns: u64) -> u64 {
        let text: String = (self.0)(ns).chars().skip("2026-11-20 ".len()).collect();
        let mut parts = text.split([':', '.']).map(|part| part.parse::<u64>().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        let seconds = (next() * 60 + next()) * 60 + next();
        seconds * S + next() * 1000
    }
}

/// The labels of a time axis, each with its distance from `start_ns`.
pub fn time_labels(start_ns: u64, end_ns: u64, times: &mut DayTimes<'_>) -> Vec<(u64, String)> {
    let span_ns = end_ns.saturating_sub(start_ns);
    let step_ns = STEPS
        .into_iter()
        .find(|step| span_ns / step <= MAX_LABELS)
        .unwrap_or_else(|| (span_ns / MAX_LABELS).div_ceil(DAY).max(1) * DAY);
    let first_step_ns = step_ns.min(DAY);
    let first_ns = start_ns + (first_step_ns - times.of_day_ns(start_ns) % first_step_ns) % first_step_ns;
    let places =
        std::iter::successors(Some(first_ns), |at_ns| at_ns.checked_add(step_ns)).take_while(|at_ns| *at_ns <= end_ns);
    let label = |at_ns: u64| {
        // Rounds to the millisecond: the clock's text has microseconds.
        let text = times.millis(at_ns.saturating_add(500_000));
        match step_ns {
            DAY.. => (at_ns, times.second(at_ns)),
            S.. => (at_ns, text.chars().take("20:46:39".len()).collect()),
            _ => (at_ns, text),
        }
    };
    places.take(2 * MAX_LABELS as usize).map(label).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// 10:00:00 is at 0.
    pub fn clock(ns: u64) -> String {
        let (seconds, micros) = (36_000 + ns / S, ns % S / 1000);
        let (day, hour, minute, second) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        format!("2026-11-{:02} {hour:02}:{minute:02}:{second:02}.{micros:06}", 20 + day)
    }

    #[test]
    fn labels_are_round_times_of_day() {
        let cases: [(u64, u64, &[&str]); 4] = [
            (
                700_000_000,
                3_100_000_000,
                &["10:00:01.000", "10:00:01.500", "10:00:02.000", "10:00:02.500", "10:00:03.000"],
            ),
            (59 * S + 400_000_123, 64 * S, &["10:00:59.500", "10:01:00.000", "10:01:00.500"]),
            (0, 6 * 3600 * S, &["10:00:00", "11:00:00"]),
            (S, 25 * DAY, &["2026-11-21 00:00:00"]),
        ];
        for (start_ns, end_ns, want) in cases {
            let labels = time_labels(start_ns, end_ns, &mut DayTimes(&mut clock));
            let texts: Vec<&str> = labels.iter().map(|(_, text)| text.as_str()).take(want.len()).collect();
            assert!(
                labels.len() <= MAX_LABELS as usize + 1
                    && labels.iter().all(|(at_ns, _)| (start_ns..=end_ns).contains(at_ns))
            );
            assert_eq!(texts, want);
        }
    }
}
