//! Short samples of tracepoints: what is asked of a record is asked once, and its fields are read without a check at each.

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

use crate::perf::layout::{HEADER, USUAL_BYTES, USUAL_CPU, USUAL_TIME};

/// So many bytes must be there from the start of a record on, of it or behind it: then a [`Place`] lies in them.
pub const WINDOW: usize = (1 << u8::BITS) + 8;

/// Longer records are none of these.
const MOST_BYTES: usize = 128;

/// Where the tracepoint's record begins.
const RAW: usize = USUAL_BYTES + 4;

/// Where a field of up to 8 bytes is, from the start of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u8);

impl Place {
    /// Of a field at `offset` in the tracepoint's record. None: too far.
    pub fn in_raw(offset: usize) -> Option<Place> {
        u8::try_from(RAW.checked_add(offset)?).ok().map(Place)
    }
}

/// A sample of an event of the shape [`Plain`](crate::perf::layout::Shape::Plain) that is short and ends with its
/// tracepoint's record: the same as [`Layout::sample`](crate::perf::layout::Layout::sample) makes of it.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a> {
    window: &'a [u8; WINDOW],
    bytes: usize,
    raw_bytes: usize,
}

impl<'a> Short<'a> {
    /// The record at the start of `window`, whose event must be of that shape. None: it is something else.
    #[inline(always)]
    pub fn new(window: &'a [u8; WINDOW]) -> Option<Short<'a>> {
        let kind = u32::from_ne_bytes(array(window, 0));
        let bytes = usize::from(u16::from_ne_bytes(array(window, 6)));
        let raw_bytes = u32::from_ne_bytes(array(window, USUAL_BYTES)) as usize;
        // That also says that it is made of whole words.
        let is_all = RAW.wrapping_add(raw_bytes).wrapping_add(7) & !7 == bytes;
        (kind == PERF_RECORD_SAMPLE && is_all && bytes <= MOST_BYTES).then_some(Short { window, bytes, raw_bytes })
    }

    /// Of the record.
    #[inline(always)]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub fn identifier(self) -> u64 {
        u64::from_ne_bytes(array(self.window, HEADER))
    }

    /// ns, CLOCK_MONOTONIC.
    #[inline(always)]
    pub fn time(self) -> u64 {
        u64::from_ne_bytes(array(self.window, USUAL_TIME))
    }

    #[inline(always)]
    pub fn cpu(self) -> u32 {
        u32::from_ne_bytes(array(self.window, USUAL_CPU))
    }

    /// Bytes of the tracepoint's record. Whoever reads fields asks first whether they end before.
    #[inline(always)]
    pub fn raw_bytes(self) -> usize {
        self.raw_bytes
    }

    #[inline(always)]
    pub fn int32(self, place: Place) -> i32 {
        i32::from_ne_bytes(array(self.window, usize::from(place.0)))
    }

    #[inline(always)]
    pub fn word(self, place: Place) -> u64 {
        u64::from_ne_bytes(array(self.window, usize::from(place.0)))
    }
}

/// `at` is a constant or a place, so that nothing is checked.
#[inline(always)]
fn array<const N: usize>(window: &[u8; WINDOW], at: usize) -> [u8; N] {
    window.get(at..at + N).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::perf::layout::{Layout, SampleType, Shape};

    /// Whatever is short is the same the long way.
    fn short_is_the_same(window: &[u8; WINDOW]) -> bool {
        let Some(short) = Short::new(window) else { return false };
        let layout = Layout::new(SampleType::BASE.with(SampleType::RAW), 0);
        assert_eq!(layout.shape(), Shape::Plain);
        let sample = layout.sample(&window[..short.bytes()]).unwrap();
        let same = (short.time(), short.cpu(), short.raw_bytes());
        assert_eq!(same, (sample.time, sample.cpu, sample.raw.len()));
        assert!(sample.rest().is_empty() && short.bytes().is_multiple_of(8));
        for offset in 0..sample.raw.len() {
            let place = Place::in_raw(offset).unwrap();
            let in_raw = |bytes: usize| sample.raw.get(offset..offset + bytes);
            if let Some(bytes) = in_raw(4) {
                assert_eq!(short.int32(place), i32::from_ne_bytes(bytes.try_into().unwrap()));
            }
            if let Some(bytes) = in_raw(8) {
                assert_eq!(short.word(place), u64::from_ne_bytes(bytes.try_into().unwrap()));
            }
        }
        true
    }

    fn window(kind: u32, bytes: u16, raw: u32, filling: u8) -> [u8; WINDOW] {
        let mut window = [filling; WINDOW];
        window[..4].copy_from_slice(&kind.to_ne_bytes());
        window[6..8].copy_from_slice(&bytes.to_ne_bytes());
        window[USUAL_BYTES..RAW].copy_from_slice(&raw.to_ne_bytes());
        window
    }

    #[test]
    fn only_whole_short_samples_are_short() {
        let cases = [
            (PERF_RECORD_SAMPLE, 104, 60, true),
            (PERF_RECORD_SAMPLE, 104, 53, true), // padded
            (PERF_RECORD_SAMPLE, 104, 52, false),
            (PERF_RECORD_SAMPLE, 104, 61, false),
            (PERF_RECORD_SAMPLE, 48, 0, true),
            (PERF_RECORD_SAMPLE, 40, u32::MAX - 3, false),
            (PERF_RECORD_SAMPLE, 40, u32::MAX, false),
            (PERF_RECORD_SAMPLE, 44, 0, false),
            (PERF_RECORD_SAMPLE, 0, 0, false),
            (PERF_RECORD_SAMPLE, 128, 84, true),
            (PERF_RECORD_SAMPLE, 136, 92, false), // long
            (PERF_RECORD_SAMPLE + 1, 104, 60, false),
        ];
        for (kind, bytes, raw, want) in cases {
            assert_eq!(short_is_the_same(&window(kind, bytes, raw, 7)), want, "{kind} {bytes} {raw}");
        }
        assert_eq!((Place::in_raw(211), Place::in_raw(212)), (Some(Place(255)), None));
        assert_eq!(Place::in_raw(usize::MAX), None);
    }

    proptest! {
        #[test]
        fn short_samples_of_random_bytes(
            bytes in prop::collection::vec(any::<u8>(), WINDOW),
            words in 0_u16..20,
            padding in 0_u32..10,
        ) {
            let mut window: [u8; WINDOW] = bytes.try_into().unwrap();
            short_is_the_same(&window);
            let size = words * 8;
            window[..4].copy_from_slice(&PERF_RECORD_SAMPLE.to_ne_bytes());
            window[6..8].copy_from_slice(&size.to_ne_bytes());
            let raw = u32::from(size).checked_sub(RAW as u32 + padding);
            window[USUAL_BYTES..RAW].copy_from_slice(&raw.unwrap_or(u32::MAX).to_ne_bytes());
            prop_assert_eq!(short_is_the_same(&window), raw.is_some() && padding < 8 && words <= 16);
        }
    }
}
