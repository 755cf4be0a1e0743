//! Short ways through a tracepoint's samples: what is asked of a record is asked once, and its fields are read without a
//! check at each.

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;

use crate::perf::layout::{HEADER, Shape, USUAL_BYTES, USUAL_CPU, USUAL_TID, USUAL_TIME};
use crate::perf::record::Callchain;

/// So many bytes must be there from the start of a tracepoint's record on, of it or behind it: then a [`Place`] lies in them.
const WINDOW: usize = (1 << u8::BITS) + 8;

/// Where the tracepoint's record begins when nothing else comes before it.
const RAW: usize = USUAL_BYTES + 4;

/// Where a field of up to 8 bytes is in a tracepoint's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u8);

impl Place {
    /// None: too far.
    pub fn new(offset: usize) -> Option<Place> {
        u8::try_from(offset).ok().map(Place)
    }
}

/// A sample of an event of a [`Shape`] that ends with its tracepoint's record: the same as
/// [`Layout::sample`](crate::perf::layout::Layout::sample) makes of it.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a> {
    fixed: &'a [u8; USUAL_BYTES],
    callchain: Callchain<'a>,
    raw: &'a [u8; WINDOW],
    raw_bytes: usize,
    /// Of the record.
    bytes: usize,
}

/// The start of a sample whose event is not known yet.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    bytes: &'a [u8; RAW + WINDOW],
}

impl<'a> Start<'a> {
    /// Of the record at the start of `rest`. None: it is something else, or too near to the end.
    #[inline(always)]
    pub fn of(rest: &'a [u8]) -> Option<Start<'a>> {
        let bytes = rest.first_chunk()?;
        (u32::from_ne_bytes(array(bytes, 0)) == PERF_RECORD_SAMPLE).then_some(Start { bytes })
    }

    #[inline(always)]
    pub fn identifier(self) -> u64 {
        u64::from_ne_bytes(array(self.bytes, HEADER))
    }

    /// Of the record, as its header says.
    #[inline(always)]
    fn size(self) -> usize {
        usize::from(u16::from_ne_bytes(array(self.bytes, 6)))
    }

    /// If its event is of the shape `Plain`. None: it is longer than `most`, or not as it should be.
    #[inline(always)]
    pub fn plain(self, most: usize) -> Option<Short<'a>> {
        let (head, raw) = self.bytes.split_first_chunk::<RAW>()?;
        let fixed = head.first_chunk()?;
        let raw_bytes = u32::from_ne_bytes(array(head, USUAL_BYTES)) as usize;
        let short =
            Short { fixed, callchain: Callchain::empty(), raw: raw.first_chunk()?, raw_bytes, bytes: self.size() };
        (short.bytes <= most && short.ends_at(RAW)).then_some(short)
    }

    /// If its event has this shape, with `rest` as above. None: it is not as it should be.
    #[inline(always)]
    pub fn shaped(self, shape: Shape, rest: &'a [u8]) -> Option<Short<'a>> {
        if shape == Shape::Other {
            return None;
        }
        let (mut chain, mut tail) = (Callchain::empty(), rest.get(USUAL_BYTES..)?);
        if shape.has_period() {
            tail = tail.get(8..)?;
        }
        if shape.has_callchain() {
            let (words, behind) = tail.split_first_chunk::<8>()?;
            let bytes = usize::try_from(u64::from_ne_bytes(*words).checked_mul(8)?).ok()?;
            let (words, behind) = behind.split_at_checked(bytes)?;
            (chain, tail) = (Callchain::from_bytes(words), behind);
        }
        let (size, tail) = tail.split_first_chunk::<4>()?;
        let raw_bytes = u32::from_ne_bytes(*size) as usize;
        let (fixed, raw) = (self.bytes.first_chunk()?, tail.first_chunk()?);
        let short = Short { fixed, callchain: chain, raw, raw_bytes, bytes: self.size() };
        short.ends_at(rest.len() - tail.len()).then_some(short)
    }
}

impl<'a> Short<'a> {
    /// The tracepoint's record, which begins at `raw_at`, is the last that is in it, but for what makes the words whole.
    #[inline(always)]
    fn ends_at(&self, raw_at: usize) -> bool {
        raw_at.wrapping_add(self.raw_bytes).wrapping_add(7) & !7 == self.bytes
    }

    /// Of the record.
    #[inline(always)]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub fn pid(self) -> i32 {
        i32::from_ne_bytes(array(self.fixed, USUAL_TID))
    }

    #[inline(always)]
    pub fn tid(self) -> i32 {
        i32::from_ne_bytes(array(self.fixed, USUAL_TID + 4))
    }

    /// ns, CLOCK_MONOTONIC.
    #[inline(always)]
    pub fn time(self) -> u64 {
        u64::from_ne_bytes(array(self.fixed, USUAL_TIME))
    }

    #[inline(always)]
    pub fn cpu(self) -> u32 {
        u32::from_ne_bytes(array(self.fixed, USUAL_CPU))
    }

    #[inline(always)]
    pub fn callchain(self) -> Callchain<'a> {
        self.callchain
    }

    /// Bytes of the tracepoint's record. Whoever reads fields asks first whether they end before.
    #[inline(always)]
    pub fn raw_bytes(self) -> usize {
        self.raw_bytes
    }

    #[inline(always)]
    pub fn int32(self, place: Place) -> i32 {
        i32::from_ne_bytes(array(self.raw, place.0.into()))
    }

    #[inline(always)]
    pub fn word(self, place: Place) -> u64 {
        u64::from_ne_bytes(array(self.raw, place.0.into()))
    }
}

/// `at` is a constant or a place, so that nothing is checked.
#[inline(always)]
fn array<const N: usize, const ALL: usize>(bytes: &[u8; ALL], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::perf::layout::{Layout, SampleType};

    const SHAPES: [Shape; 4] = [Shape::Plain, Shape::Period, Shape::Callchain, Shape::PeriodAndCallchain];

    /// Long enough for everything here.
    const ROOM: usize = 1024;

    /// Whatever is short is the same the long way.
    fn short_is_the_same(rest: &[u8], shape: Shape, most: usize) -> bool {
        let Some(start) = Start::of(rest) else { return false };
        let mut bits = SampleType::BASE.with(SampleType::RAW);
        for (bit, is_there) in
            [(SampleType::PERIOD, shape.has_period()), (SampleType::CALLCHAIN, shape.has_callchain())]
        {
            bits = if is_there { bits.with(bit) } else { bits };
        }
        let layout = Layout::new(bits, 0);
        assert_eq!((layout.shape(), start.identifier().to_ne_bytes().as_slice()), (shape, &rest[8..16]));
        let short = if most < ROOM { start.plain(most) } else { start.shaped(shape, rest) };
        assert!(most < ROOM || shape != Shape::Plain || start.plain(most).is_some() == short.is_some());
        let Some(short) = short else { return false };
        let sample = layout.sample(&rest[..short.bytes()]).unwrap();
        assert_eq!((short.pid(), short.tid(), short.time()), (sample.pid, sample.tid, sample.time));
        assert_eq!((short.cpu(), short.raw_bytes()), (sample.cpu, sample.raw.len()));
        assert_eq!(short.callchain().words(), sample.callchain.words());
        assert!(sample.rest().is_empty() && short.bytes().is_multiple_of(8));
        for offset in 0..sample.raw.len().min(256) {
            let place = Place::new(offset).unwrap();
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

    fn with_header(kind: u32, size: u16, filling: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = filling.iter().copied().cycle().take(ROOM).collect();
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
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
            (PERF_RECORD_SAMPLE, 136, 92, false), // more than `most`
            (PERF_RECORD_SAMPLE + 1, 104, 60, false),
        ];
        for (kind, size, raw, want) in cases {
            let mut bytes = with_header(kind, size, &[7]);
            bytes[USUAL_BYTES..RAW].copy_from_slice(&u32::to_ne_bytes(raw));
            assert_eq!(short_is_the_same(&bytes, Shape::Plain, 128), want, "{kind} {size} {raw}");
            assert!(!short_is_the_same(&bytes[..RAW + WINDOW - 1], Shape::Plain, 128), "too near to the end");
        }
        assert_eq!((Place::new(255), Place::new(256), Place::new(usize::MAX)), (Some(Place(255)), None, None));
    }

    #[test]
    fn a_callchain_of_any_length_is_no_other_sample() {
        for words in [0, 1, 2, 30, 31, 8191, 8192, u64::MAX / 8, u64::MAX] {
            let mut bytes = with_header(PERF_RECORD_SAMPLE, 48 + 8 * 30 + 4 + 20, &[0]);
            bytes[USUAL_BYTES..USUAL_BYTES + 8].copy_from_slice(&words.to_ne_bytes());
            let raw_at = 48 + 8 * 30;
            bytes[raw_at..raw_at + 4].copy_from_slice(&20_u32.to_ne_bytes());
            assert_eq!(short_is_the_same(&bytes, Shape::Callchain, ROOM), words == 30, "{words}");
            let cut = &bytes[..raw_at + 4 + WINDOW - 1];
            assert!(!short_is_the_same(cut, Shape::Callchain, ROOM), "too near to the end");
        }
    }

    proptest! {
        #[test]
        fn short_samples_of_random_bytes(
            filling in prop::collection::vec(any::<u8>(), ROOM),
            words in 0_u16..40,
            chain in 0_u64..35,
            padding in 0_u32..10,
            shape in prop::sample::select(&SHAPES[..]),
        ) {
            short_is_the_same(&filling, shape, ROOM);
            let size = words * 8;
            let mut bytes = with_header(PERF_RECORD_SAMPLE, size, &filling);
            short_is_the_same(&bytes, shape, ROOM);
            let mut raw_at = USUAL_BYTES + if shape.has_period() { 8 } else { 0 };
            if shape.has_callchain() {
                bytes[raw_at..raw_at + 8].copy_from_slice(&chain.to_ne_bytes());
                raw_at += 8 + chain as usize * 8;
            }
            let raw = u32::from(size).checked_sub(raw_at as u32 + 4 + padding);
            bytes[raw_at..raw_at + 4].copy_from_slice(&raw.unwrap_or(u32::MAX).to_ne_bytes());
            prop_assert_eq!(short_is_the_same(&bytes, shape, ROOM), raw.is_some() && padding < 8);
        }
    }
}
