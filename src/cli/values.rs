//! Texts of option values: times, sizes, CPU lists, name patterns, ids.
//!
//! Each parser is a clap `value_parser`. clap names the option and quotes the text before the message, so a message
//! says only what is wrong and shows a text that works.

mod comm;
mod prio;

pub use comm::{CommList, CommPattern, comm_list};
pub use prio::{PriorityList, priorities};

const NS: u64 = 1;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// Size of one ring's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSize {
    Pages(usize),
    Bytes(usize),
}

impl RingSize {
    /// Pages of `page_bytes` each that hold this size, at least one.
    pub fn pages(self, page_bytes: usize) -> usize {
        match self {
            RingSize::Pages(pages) => pages,
            RingSize::Bytes(bytes) => bytes.div_ceil(page_bytes.max(1)).max(1),
        }
    }
}

/// One word of `-p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PidOrName {
    Pid(i32),
    Name(CommPattern),
}

/// A count, at least 1.
pub fn count(text: &str) -> Result<u64, String> {
    match digits(text).map(str::parse) {
        Some(Ok(0)) => Err("at least 1 is needed".to_owned()),
        Some(Ok(count)) => Ok(count),
        Some(Err(_)) => Err(format!("too large, the limit is {}", u64::MAX)),
        None => Err("not a number, write one as in 10".to_owned()),
    }
}

/// A period: events per sample. The kernel takes it as a signed number.
pub fn period(text: &str) -> Result<u64, String> {
    let period = count(text)?;
    if i64::try_from(period).is_err() { Err(format!("too large, the limit is {}", i64::MAX)) } else { Ok(period) }
}

/// A whole percentage, 0 to 100: `0`, `50`, `75%`.
pub fn watermark(text: &str) -> Result<u8, String> {
    match digits(text.strip_suffix('%').unwrap_or(text)).map(str::parse) {
        Some(Ok(percent @ 0..=100)) => Ok(percent),
        Some(_) => Err("a ring holds no more than 100 %, write less".to_owned()),
        None => Err("not a percentage, write a whole number as in 50".to_owned()),
    }
}

/// A percentage, in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u32);

/// A threshold as a percentage: `90`, `12.5`, `50%`.
pub fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Some(whole), Some(fraction)) = (digits(whole), digits(fraction)) else {
        return Err("not a percentage, write a number as in 90 or 12.5".to_owned());
    };
    let hundredths = format!("{fraction:0<2}");
    match (whole.parse::<u32>(), hundredths.parse::<u32>()) {
        (Ok(whole), Ok(fraction)) if whole < 100 && hundredths.len() == 2 => Ok(Percent(whole * 100 + fraction)),
        (Ok(whole), Ok(_)) if whole < 100 => Err("two digits after the point are enough".to_owned()),
        _ => Err("no share is over 100 %, write less".to_owned()),
    }
}

/// A bare number means milliseconds.
pub fn time_ms(text: &str) -> Result<Time, String> {
    time(text, Some(MS))
}

/// A bare number means seconds.
pub fn time_s(text: &str) -> Result<Time, String> {
    time(text, Some(S))
}

/// A bare number means microseconds.
pub fn time_us(text: &str) -> Result<Time, String> {
    time(text, Some(US))
}

/// A bare number means nanoseconds.
pub fn time_ns(text: &str) -> Result<Time, String> {
    time(text, Some(NS))
}

/// A bare number is refused.
pub fn time_strict(text: &str) -> Result<Time, String> {
    time(text, None)
}

fn time(text: &str, bare: Option<u64>) -> Result<Time, String> {
    let (number, unit) = split_number(text, |c| c.is_ascii_digit() || c == '.');
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = if number.starts_with('.') { "0" } else { whole };
    let (Some(whole), Some(fraction)) = (digits(whole), digits(fraction)) else {
        return Err("not a time, write a number with ns, us, ms or s as in 1.5ms".to_owned());
    };
    let known = "ns, us, ms or s";
    let unit_ns = match (unit, bare) {
        ("ns", _) => NS,
        ("us", _) => US,
        ("ms", _) => MS,
        ("s", _) => S,
        ("", Some(unit_ns)) => unit_ns,
        ("", None) => return Err(format!("the unit is missing: {known}, as in {number}ms")),
        _ => return Err(format!("unknown unit `{unit}`, write {known}, as in 1.5ms")),
    };
    let fraction = fraction.trim_end_matches('0');
    let fraction_ns = fraction_ns(fraction, unit_ns).ok_or("finer than 1 ns, write a whole number of ns")?;
    let whole_ns = whole.parse().ok().and_then(|whole: u64| whole.checked_mul(unit_ns));
    match whole_ns.and_then(|whole_ns| whole_ns.checked_add(fraction_ns)) {
        Some(total_ns) => Ok(Time(total_ns)),
        None => Err("too long, the limit is 18446744073s (584 years)".to_owned()),
    }
}

/// `digits` after the decimal point, if that is a whole number of ns.
fn fraction_ns(digits: &str, unit_ns: u64) -> Option<u64> {
    // The largest unit is 10^9 ns, so a tenth digit is below 1 ns in every unit.
    let scale = 10_u64.pow(u32::try_from(digits.len()).ok().filter(|&len| len <= 9)?);
    let scaled = if digits.is_empty() { 0 } else { digits.parse::<u64>().ok()? * unit_ns };
    (scaled % scale == 0).then_some(scaled / scale)
}

/// Pages (`256`) or bytes (`512K`, `4M`, `4MiB`, `1G`), a power of two.
pub fn ring_size(text: &str) -> Result<RingSize, String> {
    let (number, unit) = split_number(text, |c| c.is_ascii_digit());
    if number.is_empty() {
        return Err("not a size, write pages as in 256 or bytes as in 4M".to_owned());
    }
    let Some(unit_bytes) = unit_bytes(unit) else {
        return Err(format!("unknown unit `{unit}`, write K, M or G, as in 4M, or none for pages"));
    };
    let size = number.parse().ok().filter(|size: &usize| size.checked_mul(unit_bytes).is_some());
    match size.map(|size| (size, size.checked_next_power_of_two())) {
        None | Some((_, None)) => Err("too large, try 4M".to_owned()),
        Some((0, _)) => Err("must be at least 1".to_owned()),
        Some((size, Some(next))) if next != size => Err(format!("must be a power of two, the next is {next}{unit}")),
        Some((pages, _)) if unit.is_empty() => Ok(RingSize::Pages(pages)),
        Some((size, _)) => Ok(RingSize::Bytes(size * unit_bytes)),
    }
}

fn unit_bytes(unit: &str) -> Option<usize> {
    match unit {
        "" => Some(1),
        "k" | "K" | "KiB" => Some(1 << 10),
        "m" | "M" | "MiB" => Some(1 << 20),
        "g" | "G" | "GiB" => Some(1 << 30),
        _ => None,
    }
}

/// Bytes (`64M`, `1G`), at least one.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text, |c| c.is_ascii_digit());
    let unit = unit_bytes(unit).filter(|_| !unit.is_empty() && !number.is_empty());
    let unit = unit.ok_or("not a size, write it with its unit, as in 64M or 1G")?;
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit as u64)) {
        None => Err("too large, try 1G".to_owned()),
        Some(0) => Err("must be at least 1K".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// The number at the start of the text, and the rest of the text.
fn split_number(text: &str, part_of_number: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !part_of_number(c)).unwrap_or(text.len()))
}

/// `a,b`, blanks around the elements removed.
pub fn list(text: &str) -> Result<Vec<String>, String> {
    let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    if parts.iter().any(String::is_empty) {
        return Err("an element is empty, write a list as in a,b".to_owned());
    }
    Ok(parts)
}

/// Ids alone, `1,22`, each once, in the order given.
pub fn pid_list(text: &str) -> Result<Vec<i32>, String> {
    let mut pids = Vec::new();
    for task in task_list(text)? {
        match task {
            PidOrName::Pid(pid) => pids.push(pid),
            PidOrName::Name(name) => {
                return Err(format!("`{}` is not an id, write numbers as in 1,22", name.typed()));
            }
        }
    }
    Ok(pids)
}

/// Ids and patterns of names, `1,nginx,java*`, each once, in the order given.
pub fn task_list(text: &str) -> Result<Vec<PidOrName>, String> {
    let parts = list(text).map_err(|_| "an element is empty, write ids or names as in 1,nginx".to_owned())?;
    let mut tasks = Vec::new();
    for part in parts {
        let unsigned = part.trim_start_matches(['-', '+']);
        let task = match digits(unsigned).map(str::parse::<i32>) {
            None => PidOrName::Name(CommPattern::new(part)),
            Some(Ok(pid)) if pid > 0 && unsigned == part => PidOrName::Pid(pid),
            Some(_) => {
                return Err(format!("`{part}` is not an id, ids run from 1 to {}, as in 1,22", i32::MAX));
            }
        };
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    Ok(tasks)
}

/// The text if it is one or more decimal digits: `parse` alone would also take `+1`.
fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_times() {
        let cases = [
            ("20", 20_000_000),
            ("20ms", 20_000_000),
            ("1.5ms", 1_500_000),
            (".5ms", 500_000),
            ("0.25s", 250_000_000),
            ("1.500000s", 1_500_000_000),
            ("0.000000001s", 1),
            ("7us", 7_000),
            ("812ns", 812),
            ("1.0ns", 1),
            ("0", 0),
            ("18446744073709551615ns", u64::MAX),
            ("18446744073.709551615s", u64::MAX),
        ];
        for (text, want) in cases {
            assert_eq!(time_ms(text), Ok(Time(want)), "{text:?}");
        }
        let refused = "abc ms 10S 10m 10min 1e3 -1 +1 . .s -.5s 5.s 1.2.3s 1µs １ms 1.5ns 0.0000000001s 0.00000015ms \
                       0.0000000000000000000000000000001s 18446744073.709551616s 18446744073709551616ns 18446744073709552s";
        for text in refused.split(' ').chain(["", " 1", "1 ms"]) {
            assert!(time_ms(text).is_err(), "{text:?}");
        }
        assert_eq!([time_s("2"), time_us("2"), time_ns("2")], [2 * S, 2 * US, 2].map(|ns| Ok(Time(ns))));
        assert_eq!(time_strict("2us"), Ok(Time(2 * US)));
        let message = "the unit is missing: ns, us, ms or s, as in 2ms";
        assert_eq!(time_strict("2"), Err(message.to_owned()));
    }

    #[test]
    fn parses_percentages() {
        for (text, want) in [("90", 9000), ("50%", 5000), ("12.5", 1250), ("0", 0), ("99.99", 9999), ("0.05%", 5)] {
            assert_eq!(percent(text), Ok(Percent(want)), "{text:?}");
        }
        for text in ["", "%", "100", "-1", "+5", "abc", "1.", ".5", "12.345", "50 %", "99999999999", "1.999999999999"] {
            assert!(percent(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn parses_ring_sizes() {
        use RingSize::{Bytes, Pages};
        let cases = [
            ("1", Pages(1)),
            ("256", Pages(256)),
            ("64k", Bytes(64 << 10)),
            ("512K", Bytes(512 << 10)),
            ("4M", Bytes(4 << 20)),
            ("4MiB", Bytes(4 << 20)),
            ("1G", Bytes(1 << 30)),
        ];
        for (text, want) in cases {
            assert_eq!(ring_size(text), Ok(want), "{text:?}");
        }
        let refused = [
            ("100", "must be a power of two, the next is 128"),
            ("3M", "must be a power of two, the next is 4M"),
            ("0", "must be at least 1"),
            ("0M", "must be at least 1"),
            ("18446744073709551615", "too large, try 4M"),
            ("99999999999999999999", "too large, try 4M"),
            ("17179869184G", "too large, try 4M"),
        ];
        for (text, want) in refused {
            assert_eq!(ring_size(text), Err(want.to_owned()), "{text:?}");
        }
        for text in ["", "M", "-1", "4MB", "4mib", "4 M", "4.5M", "4T", "0x10"] {
            assert!(ring_size(text).is_err(), "{text:?}");
        }
        let sizes = [Pages(8), Bytes(1 << 10), Bytes(1 << 20)];
        assert_eq!(sizes.map(|size| size.pages(4096)), [8, 1, 256]);
    }

    #[test]
    fn parses_ids_and_names() {
        let name = |text: &str| PidOrName::Name(CommPattern::new(text.to_owned()));
        let (one, two) = (PidOrName::Pid(1), PidOrName::Pid(22));
        assert_eq!(task_list("1, nginx,1,22"), Ok(vec![one, name("nginx"), two]));
        assert_eq!(task_list("-bash,7zip"), Ok(vec![name("-bash"), name("7zip")]));
        assert_eq!(pid_list("1,22"), Ok(vec![1, 22]));
        for text in ["", "0", "-5", "+5", "2147483648", "1,"] {
            assert!(task_list(text).is_err(), "{text:?}");
        }
        assert!(pid_list("1,nginx").is_err());
    }

    proptest! {
        #[test]
        fn survives_any_text(text: String) {
            let _ = (time_strict(&text), ring_size(&text), pid_list(&text));
        }
    }
}
