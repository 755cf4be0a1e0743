//! Elements of array and text fields, and the location of data behind `__data_loc` and `__rel_loc` fields.

use crate::tep::format::field::{Field, FieldKind, ReadError, chunk_at, int_at};
use crate::tep::types::IntType;

impl Field {
    /// The number at `index` of an array, or of the data that the field locates; sign-extended when it is signed. A
    /// character of a text is 0 to 255, whatever the kernel's `char` is.
    ///
    /// # Errors
    /// The array ends before the element, or its elements are no numbers.
    #[inline]
    pub fn element(&self, raw: &[u8], index: u64) -> Result<u64, ReadError> {
        let (ty, bytes) = (self.element_type().ok_or(ReadError::NotInteger)?, self.bytes(raw)?);
        let at = usize::try_from(index).ok().and_then(|index| index.checked_mul(ty.size)).ok_or(ReadError::Short)?;
        Ok(ty.convert(int_at(bytes, at, ty.size)?))
    }

    /// The type of each element of an array. None for other fields, and for arrays whose elements are no numbers.
    pub fn element_type(&self) -> Option<IntType> {
        match self.kind {
            FieldKind::Int | FieldKind::Pointer => None,
            _ if self.is_text() => Some(IntType::unsigned(1)),
            _ if self.declared.contains('[') => self.int_type(),
            _ => None,
        }
    }

    /// An array of characters, which holds text. Arrays of `unsigned char` are text to the kernel's filters, too.
    pub fn is_text(&self) -> bool {
        match self.kind {
            FieldKind::Text | FieldKind::DataLoc { text: true, .. } | FieldKind::RelLoc { text: true, .. } => true,
            FieldKind::Array { element: 1, .. } => self.declared.contains("char") && self.declared.contains('['),
            _ => false,
        }
    }

    /// Offset and length of the data that the field points to. None for other fields.
    ///
    /// # Errors
    /// `raw` ends before the field does.
    pub fn location(&self, raw: &[u8]) -> Option<Result<(usize, usize), ReadError>> {
        let base = match self.kind {
            FieldKind::DataLoc { .. } => 0,
            FieldKind::RelLoc { .. } => self.offset + 4,
            _ => return None,
        };
        let word = chunk_at(raw, self.offset).map(|bytes| u32::from_ne_bytes(bytes) as usize);
        Some(word.map(|word| (base + (word & 0xffff), word >> 16)))
    }
}
