//! A snapshot as text: OpenMetrics 1.0, or the older text format of Prometheus, which lacks units and the end mark.

use std::io::Write;

use crate::output::metrics::family::{
    FamilyKind, MetricFamily, MetricPoint, MetricUnit, MetricValue, MetricsSnapshot, counts_up_to,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    OpenMetrics,
    /// `text/plain; version=0.0.4`
    Plain,
}

/// The snapshot as text. Native histograms, which only protobuf has, are left out.
pub fn encode(snapshot: &MetricsSnapshot, format: TextFormat) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    snapshot
        .families
        .iter()
        .filter(|family| !family.is_native())
        .for_each(|family| push_family(family, format, &mut out));
    if format == TextFormat::OpenMetrics {
        out.extend_from_slice(b"# EOF\n");
    }
    out
}

fn push_family(family: &MetricFamily, format: TextFormat, out: &mut Vec<u8>) {
    let MetricFamily { name, kind, unit, help, points } = family;
    let (word, suffix) = match kind {
        FamilyKind::Counter => ("counter", "_total"),
        FamilyKind::Gauge => ("gauge", ""),
        FamilyKind::Histogram => ("histogram", ""),
    };
    // In the older format the suffix is part of the family's name.
    let of_name = if format == TextFormat::Plain { suffix } else { "" };
    let _ = writeln!(out, "# TYPE {name}{of_name} {word}");
    if let Some(unit) = unit.word().filter(|_| format == TextFormat::OpenMetrics) {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = write!(out, "# HELP {name}{of_name} ");
    push_escaped(help, out);
    out.push(b'\n');
    for MetricPoint { labels, value } in points {
        let mut line = |suffix: &str, bound: Option<&str>, number: &str| {
            let labels = labels.iter().map(|(key, value)| (&**key, &**value));
            push_line(name, suffix, labels.chain(bound.map(|bound| ("le", bound))), number, out);
        };
        match value {
            MetricValue::Number(number) => line(suffix, None, &decimal((*number).into(), *unit)),
            MetricValue::Fraction(number) => line(suffix, None, &float(*number)),
            MetricValue::Distribution(values) => {
                for (power, count) in counts_up_to(values, family.powers()) {
                    let bound = MetricValue::Number(1 << power).as_f64(*unit);
                    line("_bucket", Some(&float(bound)), &count.to_string());
                }
                let count = values.count().to_string();
                line("_bucket", Some("+Inf"), &count);
                line("_count", None, &count);
                line("_sum", None, &decimal(values.sum(), *unit));
            }
        }
    }
}

fn push_line<'a>(
    name: &str,
    suffix: &str,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    number: &str,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    let mut any = false;
    for (key, value) in labels {
        out.push(if any { b',' } else { b'{' });
        any = true;
        let _ = write!(out, "{key}=\"");
        push_escaped(value, out);
        out.push(b'"');
    }
    if any {
        out.push(b'}');
    }
    out.push(b' ');
    out.extend_from_slice(number.as_bytes());
    out.push(b'\n');
}

/// Appends text that stands in quotes or in a line: backslashes, quotes and line feeds are escaped with a backslash.
fn push_escaped(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(br"\\"),
            b'"' => out.extend_from_slice(br#"\""#),
            b'\n' => out.extend_from_slice(br"\n"),
            byte => out.push(byte),
        }
    }
}

/// The exact decimal form of a number that is stored in `unit`.
fn decimal(number: u128, unit: MetricUnit) -> String {
    const NS_PER_S: u128 = 1_000_000_000;
    if unit != MetricUnit::Seconds || number == 0 {
        return number.to_string();
    }
    let text = format!("{}.{:09}", number / NS_PER_S, number % NS_PER_S);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A float as Go prints it. Prometheus prints the bucket bounds that it reads from protobuf in the same way, so that a
/// series keeps its name if the scrape format changes.
fn float(number: f64) -> String {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ if number.is_finite() && number.fract() == 0.0 => format!("{number:.1}"),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::output::metrics::family::LabelSet;
    use crate::stats::Distribution;

    fn labels(list: &[(&str, &str)]) -> LabelSet {
        list.iter().map(|&(key, value)| (Arc::from(key), Arc::from(value))).collect()
    }

    fn snapshot() -> MetricsSnapshot {
        let mut values = Distribution::new();
        [0, 1024, 1025, 5_000_000_000, 1 << 40].iter().for_each(|ns| values.record(*ns));
        let values = MetricValue::Distribution(Arc::new(values));
        let counter = MetricFamily::new("a_seconds", FamilyKind::Counter, MetricUnit::Seconds, "time \\ in\nit");
        let gauge = MetricFamily::new("b", FamilyKind::Gauge, MetricUnit::None, "how many");
        let histogram = MetricFamily::new("c_seconds", FamilyKind::Histogram, MetricUnit::Seconds, "lengths");
        let native = MetricFamily::new("c_nanoseconds", FamilyKind::Histogram, MetricUnit::Nanoseconds, "lengths");
        MetricsSnapshot {
            families: vec![
                counter
                    .with(labels(&[("comm", "a\"b\\x1b\n"), ("cpu", "0")]), MetricValue::Number(1_500_000_000))
                    .with(labels(&[]), MetricValue::Number(7)),
                gauge.with(labels(&[("x", "")]), MetricValue::Fraction(0.25)),
                histogram.with(labels(&[("state", "D")]), values.clone()),
                native.with(labels(&[]), values),
            ],
        }
    }

    #[test]
    fn text_is_as_the_standard_wants_it() {
        let text = String::from_utf8(encode(&snapshot(), TextFormat::OpenMetrics)).unwrap();
        let want = r#"# TYPE a_seconds counter
# UNIT a_seconds seconds
# HELP a_seconds time \\ in\nit
a_seconds_total{comm="a\"b\\x1b\n",cpu="0"} 1.5
a_seconds_total 0.000000007
# TYPE b gauge
# HELP b how many
b{x=""} 0.25
# TYPE c_seconds histogram
# UNIT c_seconds seconds
# HELP c_seconds lengths
c_seconds_bucket{state="D",le="1.024e-06"} 2
c_seconds_bucket{state="D",le="4.096e-06"} 3
c_seconds_bucket{state="D",le="1.6384e-05"} 3
c_seconds_bucket{state="D",le="6.5536e-05"} 3
c_seconds_bucket{state="D",le="0.000262144"} 3
c_seconds_bucket{state="D",le="0.001048576"} 3
c_seconds_bucket{state="D",le="0.004194304"} 3
c_seconds_bucket{state="D",le="0.016777216"} 3
c_seconds_bucket{state="D",le="0.067108864"} 3
c_seconds_bucket{state="D",le="0.268435456"} 3
c_seconds_bucket{state="D",le="1.073741824"} 3
c_seconds_bucket{state="D",le="4.294967296"} 3
c_seconds_bucket{state="D",le="17.179869184"} 4
c_seconds_bucket{state="D",le="68.719476736"} 4
c_seconds_bucket{state="D",le="+Inf"} 5
c_seconds_count{state="D"} 5
c_seconds_sum{state="D"} 1104.511629825
# EOF
"#;
        assert_eq!(text, want);
        let plain = String::from_utf8(encode(&snapshot(), TextFormat::Plain)).unwrap();
        assert!(plain.starts_with("# TYPE a_seconds_total counter\n# HELP a_seconds_total time"), "{plain}");
        assert!(!plain.contains("# UNIT") && !plain.contains("# EOF"));
        let lines =
            |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&plain), lines(want));
    }

    #[test]
    fn floats_are_as_in_go() {
        let cases = [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (1_048_576.0, "1048576.0"),
            (0.0001, "0.0001"),
            (0.000_016_384, "1.6384e-05"),
            (1e21, "1e+21"),
            (17.179_869_184, "17.179869184"),
        ];
        for (number, want) in cases {
            assert_eq!(float(number), want);
        }
    }
}
