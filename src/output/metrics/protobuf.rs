//! A snapshot as protobuf: the messages of `io.prometheus.client` (`metrics.proto` of prometheus/client_model), each with
//! its length in front. Only this format has native histograms.

use std::sync::Arc;

use prost::Message;

use crate::output::metrics::family::{
    FamilyKind, MetricFamily, MetricPoint, MetricUnit, MetricValue, MetricsSnapshot, counts_up_to, told,
};
use crate::stats::Distribution;

/// Native histograms whose buckets end at the powers of the 16th root of 2, as those of a [`Distribution`].
const SCHEMA: i32 = 4;

#[derive(Clone, PartialEq, prost::Message)]
pub struct FamilyMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(enumeration = "TypeMessage", optional, tag = "3")]
    pub r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<PointMessage>,
    #[prost(string, optional, tag = "5")]
    pub unit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TypeMessage {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PointMessage {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelMessage>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<NumberMessage>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<NumberMessage>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LabelMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// A gauge or a counter.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NumberMessage {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<BucketMessage>,
    /// This field and those below: only for native histograms.
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<SpanMessage>,
    /// The count of each bucket minus the count of the bucket before.
    #[prost(sint64, repeated, tag = "13")]
    pub positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Successive buckets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct SpanMessage {
    /// The gap to the span before; for the first span the index of its first bucket.
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}

/// The snapshot as messages, each with its length in front.
pub fn encode(snapshot: &MetricsSnapshot) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    for family in &snapshot.families {
        let _ = message(family).encode_length_delimited(&mut out); // a Vec grows
    }
    out
}

fn message(family: &MetricFamily) -> FamilyMessage {
    let (kind, suffix) = match family.kind {
        FamilyKind::Counter => (TypeMessage::Counter, "_total"),
        FamilyKind::Gauge => (TypeMessage::Gauge, ""),
        FamilyKind::Histogram => (TypeMessage::Histogram, ""),
    };
    FamilyMessage {
        name: Some(format!("{}{suffix}", family.name)),
        help: Some(family.help.to_string()),
        r#type: Some(kind.into()),
        metric: family.points.iter().map(|point| point_message(family, point)).collect(),
        unit: family.unit.word().map(str::to_owned),
    }
}

fn point_message(family: &MetricFamily, MetricPoint { labels, value }: &MetricPoint) -> PointMessage {
    let label = |(name, value): &(Arc<str>, Arc<str>)| LabelMessage {
        name: Some(name.to_string()),
        value: Some(value.to_string()),
    };
    let mut point = PointMessage { label: labels.iter().map(label).collect(), ..PointMessage::default() };
    let number = || Some(NumberMessage { value: Some(value.as_f64(family.unit)) });
    match (family.kind, value) {
        (_, MetricValue::Distribution(values)) => point.histogram = Some(histogram_message(family, values)),
        (FamilyKind::Counter, _) => point.counter = number(),
        (FamilyKind::Gauge | FamilyKind::Histogram, _) => point.gauge = number(),
    }
    point
}

fn histogram_message(family: &MetricFamily, values: &Distribution) -> HistogramMessage {
    let mut message = HistogramMessage {
        sample_count: Some(values.count()),
        sample_sum: Some(told(values.sum(), family.unit)),
        ..HistogramMessage::default()
    };
    if !family.is_native() {
        let bucket = |(power, count)| BucketMessage {
            cumulative_count: Some(count),
            upper_bound: Some(told(1_u128 << power, family.unit)),
        };
        message.bucket = counts_up_to(values, family.powers()).into_iter().map(bucket).collect();
        return message;
    }
    message.schema = Some(SCHEMA);
    message.zero_threshold = Some(0.0);
    message.zero_count = Some(values.zeros());
    let (mut next, mut before) = (0, 0);
    for (bucket, count) in values.scale_4() {
        match message.positive_span.last_mut().filter(|_| bucket == next) {
            Some(SpanMessage { length: Some(length), .. }) => *length += 1,
            _ => message.positive_span.push(SpanMessage { offset: Some(bucket - next), length: Some(1) }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        message.positive_delta.push(count - before);
        (next, before) = (bucket + 1, count);
    }
    if message.positive_span.is_empty() {
        // Without any span the histogram would be taken for a classic one.
        message.positive_span.push(SpanMessage { offset: Some(0), length: Some(0) });
    }
    message
}

impl MetricFamily {
    /// Whether the histogram is native: the bucket bounds of a distribution are bounds of native buckets only in its
    /// stored unit.
    pub fn is_native(&self) -> bool {
        self.kind == FamilyKind::Histogram && self.unit == MetricUnit::Nanoseconds
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Vec<FamilyMessage> {
        let mut rest = bytes;
        std::iter::from_fn(|| (!rest.is_empty()).then(|| FamilyMessage::decode_length_delimited(&mut rest).unwrap()))
            .collect()
    }

    /// The buckets of a native histogram, by index, decoded as a client decodes them.
    fn buckets(message: &HistogramMessage) -> Vec<(i32, u64)> {
        let (mut index, mut count) = (0, 0);
        let mut deltas = message.positive_delta.iter();
        let mut found = Vec::new();
        for span in &message.positive_span {
            index += span.offset();
            for _ in 0..span.length() {
                count += deltas.next().unwrap();
                found.push((index, count as u64));
                index += 1;
            }
        }
        assert!(deltas.next().is_none());
        found
    }

    fn of(values: &[u64], unit: MetricUnit) -> HistogramMessage {
        let mut distribution = Distribution::new();
        values.iter().for_each(|value| distribution.record(*value));
        let family = MetricFamily::new("x", FamilyKind::Histogram, unit, "");
        let value = MetricValue::Distribution(Arc::new(distribution));
        let families = vec![family.with(Arc::from([]), value)];
        let mut all = decoded(&encode(&MetricsSnapshot { families }));
        all.remove(0).metric.remove(0).histogram.unwrap()
    }

    proptest! {
        /// Each value is in the bucket that the definition of native histograms assigns to it.
        #[test]
        fn native_buckets_have_their_values(values in prop::collection::vec((0_u32..40, any::<u64>()), 0..200)) {
            let values: Vec<u64> = values.into_iter().map(|(bits, value)| value % (1 << bits)).collect();
            let message = of(&values, MetricUnit::Nanoseconds);
            prop_assert_eq!(message.schema, Some(4));
            prop_assert_eq!(message.sample_count, Some(values.len() as u64));
            prop_assert_eq!(message.sample_sum, Some(values.iter().map(|value| *value as f64).sum()));
            prop_assert_eq!(message.zero_count, Some(values.iter().filter(|value| **value == 0).count() as u64));
            let mut all = message.zero_count();
            for (index, count) in buckets(&message) {
                let [above, end] = [index - 1, index].map(|index| (f64::from(index) / 16.0).exp2());
                // Apart from powers of two, no integer is as close to a bound as the error of `exp2`.
                let is_in = |value: u64| value as f64 > above && value as f64 <= end;
                prop_assert_eq!(values.iter().filter(|value| is_in(**value)).count() as u64, count, "{}", index);
                all += count;
            }
            prop_assert_eq!(all, values.len() as u64);
        }
    }

    #[test]
    fn classic_and_native_ones_differ() {
        let classic = of(&[1 << 20, (1 << 20) + 1, 5], MetricUnit::Seconds);
        assert_eq!((classic.schema, classic.positive_span.len(), classic.bucket.len()), (None, 0, 14));
        let bound = BucketMessage { cumulative_count: Some(2), upper_bound: Some(0.001_048_576) };
        assert_eq!(classic.bucket[5], bound);
        let native = of(&[2, 2, 3, 4, 1 << 20], MetricUnit::Nanoseconds);
        assert_eq!((native.bucket.len(), native.positive_delta.clone()), (0, vec![2, -1, 0, 0]));
        let spans: Vec<_> = native.positive_span.iter().map(|span| (span.offset(), span.length())).collect();
        assert_eq!(spans, [(16, 1), (9, 1), (5, 1), (287, 1)]);
        let empty = of(&[], MetricUnit::Nanoseconds);
        assert_eq!((empty.positive_span.len(), empty.positive_delta.len()), (1, 0));
    }

    #[test]
    fn counters_and_gauges_keep_their_names_and_labels() {
        let labels = Arc::from([(Arc::from("comm"), Arc::from("a\"\n"))]);
        let counter = MetricFamily::new("a_seconds", FamilyKind::Counter, MetricUnit::Seconds, "time");
        let gauge = MetricFamily::new("b", FamilyKind::Gauge, MetricUnit::None, "");
        let families = vec![
            counter.with(labels, MetricValue::Number(1_500_000_000)),
            gauge.with(Arc::from([]), MetricValue::Fraction(0.5)),
        ];
        let all = decoded(&encode(&MetricsSnapshot { families }));
        assert_eq!(
            (all[0].name(), all[0].unit(), all[0].r#type()),
            ("a_seconds_total", "seconds", TypeMessage::Counter)
        );
        let point = &all[0].metric[0];
        assert_eq!((point.label[0].name(), point.label[0].value()), ("comm", "a\"\n"));
        assert_eq!(point.counter.unwrap().value(), 1.5);
        assert_eq!((all[1].name(), all[1].metric[0].gauge.unwrap().value()), ("b", 0.5));
    }
}
