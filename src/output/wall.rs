//! Monotonic timestamps as text in local time. The date is computed once per second.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::digits::{six_digits, three_digits};
use crate::sys;

/// Interval at which the offset of the wall clock is measured.
const AGAIN_NS: u64 = 1_000_000_000;

/// Turns CLOCK_MONOTONIC into local time.
#[derive(Debug)]
pub struct WallClock {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
    offset_ns: i128,
    /// When the offset was measured, CLOCK_MONOTONIC in ns.
    synced_ns: u64,
    zone: TimeZone,
    second: i64,
    /// Start of `second` in CLOCK_MONOTONIC, if that clock had started by then. It saves the division for most
    /// timestamps.
    began_ns: Option<u64>,
    text: String,
    rfc_head: String,
    rfc_tail: String,
}

impl WallClock {
    pub fn now() -> WallClock {
        let zone = if sys::replayed::is_on() { TimeZone::UTC } else { TimeZone::system() };
        let mut clock = WallClock::at(0, zone);
        clock.sync();
        clock
    }

    fn at(offset_ns: i128, zone: TimeZone) -> WallClock {
        WallClock {
            offset_ns,
            synced_ns: 0,
            zone,
            second: i64::MIN,
            began_ns: None,
            text: String::new(),
            rfc_head: String::new(),
            rfc_tail: String::new(),
        }
    }

    /// Measures the offset again, so that a wall clock that was set or is slewed is followed within a second.
    pub fn follow(&mut self) {
        if sys::monotonic_ns().saturating_sub(self.synced_ns) >= AGAIN_NS {
            self.sync();
        }
    }

    fn sync(&mut self) {
        // The two clocks are not read at the same moment: the closest of a few pairs is used.
        let pair = || {
            let before = sys::monotonic_ns();
            let wall = sys::realtime_ns();
            let after = sys::monotonic_ns();
            (after - before, i128::from(wall) - i128::from(before + (after - before) / 2))
        };
        let (width, offset) = (0..3).map(|_| pair()).min_by_key(|(width, _)| *width).unwrap_or((0, 0));
        // A change within the error of the measurement is ignored: it could let time run backwards between two lines.
        if offset.abs_diff(self.offset_ns) > u128::from(width) {
            self.offset_ns = offset;
            self.began_ns = None;
        }
        self.synced_ns = sys::monotonic_ns();
    }

    /// Appends `2026-11-20 20:46:39.830696`.
    pub fn text(&mut self, monotonic_ns: u64, out: &mut Vec<u8>) {
        let nanos = self.split(monotonic_ns);
        out.extend_from_slice(self.text.as_bytes());
        out.extend_from_slice(&six_digits(nanos / 1000));
    }

    /// `20:46:39.830696`
    pub fn time_of_day(&mut self, monotonic_ns: u64) -> String {
        let micros = self.split(monotonic_ns) / 1000;
        let time = self.text.split_once(' ').map_or("", |(_, time)| time);
        format!("{time}{micros:06}")
    }

    /// Appends RFC 3339 with the local offset: `2026-11-20T20:46:39.830696123+01:00`.
    pub fn rfc3339(&mut self, monotonic_ns: u64, out: &mut Vec<u8>) {
        let nanos = self.split(monotonic_ns);
        out.extend_from_slice(self.rfc_head.as_bytes());
        out.extend_from_slice(&six_digits(nanos / 1000));
        out.extend_from_slice(&three_digits(nanos));
        out.extend_from_slice(self.rfc_tail.as_bytes());
    }

    /// Prepares the texts of the second, and returns the ns within it.
    #[inline]
    fn split(&mut self, monotonic_ns: u64) -> u32 {
        match self.began_ns.and_then(|began| monotonic_ns.checked_sub(began)) {
            Some(nanos) if nanos < 1_000_000_000 => nanos as u32,
            _ => self.another_second(monotonic_ns),
        }
    }

    #[cold]
    fn another_second(&mut self, monotonic_ns: u64) -> u32 {
        let wall = i128::from(monotonic_ns) + self.offset_ns;
        let second = i64::try_from(wall.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
        if second != self.second {
            self.second = second;
            let time = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(self.zone.clone());
            self.text = time.strftime("%Y-%m-%d %H:%M:%S.").to_string();
            self.rfc_head = time.strftime("%Y-%m-%dT%H:%M:%S.").to_string();
            self.rfc_tail = time.strftime("%:z").to_string();
        }
        let nanos = wall.rem_euclid(1_000_000_000) as u32;
        self.began_ns = monotonic_ns.checked_sub(u64::from(nanos));
        nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_clock_that_was_set() {
        let mut clock = WallClock::at(1_763_668_000_900_000_000, TimeZone::UTC);
        let text = |clock: &mut WallClock, time| {
            let mut out = Vec::new();
            clock.text(time, &mut out);
            String::from_utf8(out).unwrap()
        };
        // CLOCK_MONOTONIC began within this second.
        assert_eq!(text(&mut clock, 5000), "2025-11-20 19:46:40.900005");
        assert_eq!(text(&mut clock, 1_000_000_000), "2025-11-20 19:46:41.900000");
        clock.sync();
        let today = text(&mut clock, sys::monotonic_ns());
        assert!(!today.starts_with("2025-11-20 19:46"), "{today}");
    }

    #[test]
    fn prints_local_time() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let mut clock = WallClock::at(1_763_668_000_000_000_000, zone);
        let cases = [
            (39_830_696_123, "2025-11-20 20:47:19.830696", "2025-11-20T20:47:19.830696123+01:00"),
            (39_000_000_007, "2025-11-20 20:47:19.000000", "2025-11-20T20:47:19.000000007+01:00"),
            (38_999_999_999, "2025-11-20 20:47:18.999999", "2025-11-20T20:47:18.999999999+01:00"),
            (0, "2025-11-20 20:46:40.000000", "2025-11-20T20:46:40.000000000+01:00"),
        ];
        for (time, text, rfc) in cases {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            clock.text(time, &mut a);
            clock.rfc3339(time, &mut b);
            assert_eq!((String::from_utf8_lossy(&a), String::from_utf8_lossy(&b)), (text.into(), rfc.into()));
        }
    }
}
