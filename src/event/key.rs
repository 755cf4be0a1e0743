//! The key of an event's record: the value of an expression, `key=pid` or `key=filename`, a number or a text.

use std::collections::HashMap;
use std::sync::Arc;

use crate::expr::{Expr, ExprType, ExprValue, NoResult, NumberPlace, Program};
use crate::perf::Sample;
use crate::tep::{FieldText, Format, PrintFmt};

/// Limit of distinct texts, and of their total bytes.
const MAX_TEXTS: usize = 10_000;
const MAX_BYTES: usize = 4 << 20;

/// The key of a record. Records with equal keys belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKey {
    /// The 64 bits of the number, signed or unsigned.
    Number(u64),
    Text(KeyText),
}

impl EventKey {
    /// The key of all records whose text found no room.
    pub const OTHERS: EventKey = EventKey::Text(KeyText::OTHERS);
}

/// The index of a text in its [`KeyTexts`]. 64 bits, as a number has, so that either kind of key fits in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyText(u64);

impl KeyText {
    /// Stands for all texts that found no room.
    pub const OTHERS: KeyText = KeyText(u64::MAX);
}

/// The texts of keys, each stored once. A known text costs one look-up.
#[derive(Debug)]
pub struct KeyTexts {
    // Traced programs choose the texts, so the hash is seeded at random: they cannot force collisions.
    places: HashMap<Arc<[u8]>, KeyText>,
    /// None: the place is free.
    texts: Vec<Option<Arc<[u8]>>>,
    free: Vec<KeyText>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
    folded: u64,
}

impl Default for KeyTexts {
    fn default() -> KeyTexts {
        KeyTexts::new(MAX_TEXTS, MAX_BYTES)
    }
}

impl KeyTexts {
    /// Room for `most` texts of `most_bytes` together.
    pub fn new(most: usize, most_bytes: usize) -> KeyTexts {
        let (places, texts, free) = Default::default();
        KeyTexts { places, texts, free, bytes: 0, most: most.min(MAX_TEXTS), most_bytes, folded: 0 }
    }

    /// The index of a text. A new text without room gets the index of the others, and the record is counted.
    pub fn place(&mut self, text: &[u8]) -> KeyText {
        match self.places.get(text) {
            Some(place) => *place,
            None => self.add(text),
        }
    }

    #[cold]
    fn add(&mut self, text: &[u8]) -> KeyText {
        if self.places.len() >= self.most || self.bytes + text.len() > self.most_bytes {
            self.folded += 1;
            return KeyText::OTHERS;
        }
        let place = self.free.pop().unwrap_or(KeyText(self.texts.len() as u64)); // at most `MAX_TEXTS`
        let text: Arc<[u8]> = text.into();
        self.bytes += text.len();
        match self.texts.get_mut(place.0 as usize) {
            Some(slot) => *slot = Some(text.clone()),
            None => self.texts.push(Some(text.clone())),
        }
        self.places.insert(text, place);
        place
    }

    /// The text at an index. None: the index of the others.
    pub fn get(&self, place: KeyText) -> Option<&Arc<[u8]>> {
        self.texts.get(place.0 as usize)?.as_ref()
    }

    /// Records whose text found no room, and which have the key of the others.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// More than half of the room is used: the caller should call `retain`.
    pub fn are_many(&self) -> bool {
        self.places.len() > self.most / 2 || self.bytes > self.most_bytes / 2
    }

    /// Forgets all texts but those that are in use.
    pub fn retain(&mut self, mut is_used: impl FnMut(KeyText) -> bool) {
        let (texts, free, bytes) = (&mut self.texts, &mut self.free, &mut self.bytes);
        self.places.retain(|text, place| {
            let stays = is_used(*place);
            if !stays {
                *bytes -= text.len();
                free.push(*place);
                texts.get_mut(place.0 as usize).into_iter().for_each(|slot| *slot = None);
            }
            stays
        });
    }
}

/// The key of one event, compiled for its records.
#[derive(Clone, Debug)]
pub struct KeyExpr {
    text: String,
    program: Program,
    field: Option<FieldText>,
}

impl KeyExpr {
    /// `program` is `expr` over the records of the event with this format.
    pub fn new(expr: &Expr, program: Program, format: &Format) -> KeyExpr {
        // System calls have all their numbers in hex, descriptors, too.
        let print_fmt = if &*format.system == "syscalls" { None } else { PrintFmt::compile(format).ok() };
        let field = print_fmt.and_then(|print_fmt| print_fmt.field_text(expr.text()));
        KeyExpr { text: expr.text().to_owned(), program, field }
    }

    /// How the event shows the key, if that is a field which it shows in another way than by a decimal number.
    pub fn field(&self) -> Option<&FieldText> {
        self.field.as_ref()
    }

    /// The text of the expression as typed.
    pub fn heading(&self) -> &str {
        &self.text
    }

    /// The key is a field that holds a tid.
    pub fn is_thread(&self) -> bool {
        matches!(&*self.text, "pid" | "tid" | "common_pid" | "prev_pid" | "next_pid" | "parent_pid" | "child_pid")
    }

    pub fn ty(&self) -> ExprType {
        self.program.ty()
    }

    /// Whether the expression depends on the field or variable `name`.
    pub fn reads(&self, name: &str) -> bool {
        self.program.reads().iter().any(|read| read.split(' ').next() == Some(name))
    }

    /// The place of the key in a record, if the key is a plain number of the record and needs no name.
    pub fn number_place(&self) -> Option<NumberPlace> {
        self.program.number_place()
    }

    /// The key of a record.
    ///
    /// # Errors
    /// The expression has no value for this record.
    #[inline]
    pub fn key(&self, sample: &Sample<'_>, texts: &mut KeyTexts) -> Result<EventKey, NoResult> {
        Ok(match self.program.value(sample)? {
            ExprValue::Signed(number) => EventKey::Number(number as u64),
            ExprValue::Unsigned(number) | ExprValue::Named(_, number) => EventKey::Number(number),
            ExprValue::Text(text) => EventKey::Text(texts.place(text)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_kept_apart_as_long_as_there_is_room() {
        let mut texts = KeyTexts::new(3, 10);
        let [a, b] = [b"aaaa".as_slice(), b"bb"].map(|text| texts.place(text));
        assert!(a != b && texts.place(b"aaaa") == a && texts.folded() == 0);
        assert_eq!(texts.get(b).map(|text| &**text), Some(&b"bb"[..]));
        assert_eq!(texts.place(b"ccccc"), KeyText::OTHERS, "more bytes than there is room for");
        let d = texts.place(b"d");
        assert_eq!([texts.place(b"e"), texts.place(b"")], [KeyText::OTHERS; 2], "more texts");
        assert_eq!((texts.folded(), texts.get(KeyText::OTHERS)), (3, None));
        assert!(texts.are_many());
        texts.retain(|place| place == d);
        assert_eq!((texts.get(a), texts.get(d).map(|text| &**text)), (None, Some(&b"d"[..])));
        assert!(!texts.are_many());
        assert_eq!(texts.place(b"fffffffff"), texts.place(b"fffffffff"));
        assert_eq!((texts.bytes, texts.texts.len()), (10, 3));
    }

    proptest! {
        /// Compared with a list of the texts in use: an index stands for one text as long as that text is in use.
        #[test]
        fn a_place_stands_for_one_text(
            most in 0_usize..8,
            steps in prop::collection::vec((prop::collection::vec(0_u8..3, 0..4), prop::bool::weighted(0.1)), 0..100),
        ) {
            let mut texts = KeyTexts::new(most, 12);
            let mut known: HashMap<KeyText, Vec<u8>> = HashMap::new();
            for (text, forgets) in steps {
                let place = texts.place(&text);
                if place != KeyText::OTHERS {
                    prop_assert_eq!(&**known.entry(place).or_insert_with(|| text.clone()), &*text);
                    prop_assert_eq!(texts.get(place).map(|kept| kept.to_vec()), Some(text));
                }
                if forgets {
                    texts.retain(|place| place.0 % 2 == 0);
                    known.retain(|place, _| place.0 % 2 == 0);
                }
                prop_assert!(texts.places.len() == known.len() && known.len() <= most);
                prop_assert!(texts.bytes == known.values().map(Vec::len).sum::<usize>() && texts.bytes <= 12);
            }
        }
    }
}
