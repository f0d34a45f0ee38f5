//! Kafka's primitive types, read from shared bytes without copying.
//!
//! Invariant: nothing here panics, whatever the bytes are, and nothing is allocated on the word of a length that the bytes do
//! not cover.

use bytes::{BufMut, Bytes};
use std::ops::Range;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end before the value does.
    #[error("{wanted} more bytes wanted, {left} left")]
    Short {
        /// Bytes that the value needs.
        wanted: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// A length or a count that cannot be.
    #[error("impossible length {0}")]
    Length(i64),
    /// A variable-length number with too many bytes.
    #[error("variable-length number too long")]
    Varint,
    /// A name that is no UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// Bytes are left where none should be.
    #[error("{0} bytes left over")]
    Trailing(usize),
}

/// A place in shared bytes, from which values are read.
#[derive(Debug, Clone)]
pub struct Reader {
    bytes: Bytes,
    at: usize,
}

impl Reader {
    /// Reads from the first byte on.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// How many bytes were read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `length` bytes, shared.
    ///
    /// # Errors
    /// When so many are not left.
    pub fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        let range = self.advance(length)?;
        Ok(self.bytes.slice(range))
    }

    /// Passes over `length` bytes.
    ///
    /// # Errors
    /// When so many are not left.
    pub fn skip(&mut self, length: usize) -> Result<(), Malformed> {
        self.advance(length).map(|_| ())
    }

    /// One byte.
    ///
    /// # Errors
    /// When none is left.
    pub fn i8(&mut self) -> Result<i8, Malformed> {
        self.array::<1>().map(i8::from_be_bytes)
    }

    /// Two bytes, big endian.
    ///
    /// # Errors
    /// When they are not left.
    pub fn i16(&mut self) -> Result<i16, Malformed> {
        self.array::<2>().map(i16::from_be_bytes)
    }

    /// Four bytes, big endian.
    ///
    /// # Errors
    /// When they are not left.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array::<4>().map(i32::from_be_bytes)
    }

    /// Eight bytes, big endian.
    ///
    /// # Errors
    /// When they are not left.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array::<8>().map(i64::from_be_bytes)
    }

    /// An unsigned number of variable length.
    ///
    /// # Errors
    /// When it ends too early, or has more than ten bytes.
    pub fn unsigned_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array::<1>()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Varint)
    }

    /// A zigzag number of variable length, up to 64 bits.
    ///
    /// # Errors
    /// When it ends too early, or has more than ten bytes.
    pub fn varlong(&mut self) -> Result<i64, Malformed> {
        let zigzag = self.unsigned_varint()?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// A zigzag number of variable length, up to 32 bits.
    ///
    /// # Errors
    /// When it ends too early, or does not fit.
    pub fn varint(&mut self) -> Result<i32, Malformed> {
        i32::try_from(self.varlong()?).map_err(|_| Malformed::Varint)
    }

    /// Bytes behind a zigzag length; `None` for -1.
    ///
    /// # Errors
    /// When the length is impossible or not covered.
    pub fn varint_bytes(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.varint_length()?;
        length.map(|length| self.take(length)).transpose()
    }

    /// Passes over bytes behind a zigzag length.
    ///
    /// # Errors
    /// When the length is impossible or not covered.
    pub fn skip_varint_bytes(&mut self) -> Result<(), Malformed> {
        let length = self.varint_length()?;
        self.skip(length.unwrap_or(0))
    }

    /// Bytes behind a four-byte length; `None` for -1.
    ///
    /// # Errors
    /// When the length is impossible or not covered.
    pub fn nullable_bytes(&mut self) -> Result<Option<Bytes>, Malformed> {
        let length = self.i32()?;
        nullable(i64::from(length))?.map(|length| self.take(length)).transpose()
    }

    /// Text behind a two-byte length; `None` for -1.
    ///
    /// # Errors
    /// When the length is impossible or not covered, or the text is no UTF-8.
    pub fn nullable_string(&mut self) -> Result<Option<String>, Malformed> {
        let length = self.i16()?;
        nullable(i64::from(length))?.map(|length| self.text(length)).transpose()
    }

    /// Text behind a two-byte length.
    ///
    /// # Errors
    /// As [`Reader::nullable_string`], and when it is null.
    pub fn string(&mut self) -> Result<String, Malformed> {
        self.nullable_string()?.ok_or(Malformed::Length(-1))
    }

    /// Text behind a compact length; `None` for null.
    ///
    /// # Errors
    /// When the length is impossible or not covered, or the text is no UTF-8.
    pub fn compact_nullable_string(&mut self) -> Result<Option<String>, Malformed> {
        self.compact_length()?.map(|length| self.text(length)).transpose()
    }

    /// A list behind a four-byte count; empty for null.
    ///
    /// # Errors
    /// The first one of an element.
    pub fn list<T>(&mut self, element: impl Fn(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let count = self.i32()?;
        self.elements(nullable(i64::from(count))?, element)
    }

    /// A list behind a compact count; empty for null.
    ///
    /// # Errors
    /// The first one of an element.
    pub fn compact_list<T>(
        &mut self,
        element: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.compact_length()?;
        self.elements(count, element)
    }

    /// Passes over the tagged fields of a flexible version: none of them is of use to us.
    ///
    /// # Errors
    /// When they are cut short.
    pub fn skip_tags(&mut self) -> Result<(), Malformed> {
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let size = self.unsigned_varint()?;
            self.skip(length(size)?)?;
        }
        Ok(())
    }

    /// That nothing is left.
    ///
    /// # Errors
    /// When something is.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.left() {
            0 => Ok(()),
            left => Err(Malformed::Trailing(left)),
        }
    }

    fn elements<T>(
        &mut self,
        count: Option<usize>,
        element: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = count.unwrap_or(0);
        // Each element has one byte at least, so the room made here is covered by bytes that came.
        let mut list = Vec::with_capacity(count.min(self.left()));
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    fn text(&mut self, length: usize) -> Result<String, Malformed> {
        let bytes = self.take(length)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| Malformed::NotUtf8)
    }

    fn varint_length(&mut self) -> Result<Option<usize>, Malformed> {
        let length = self.varint()?;
        nullable(i64::from(length))
    }

    fn compact_length(&mut self) -> Result<Option<usize>, Malformed> {
        let raw = self.unsigned_varint()?;
        raw.checked_sub(1).map(length).transpose()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let left = self.left();
        let array = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        let array = array.ok_or(Malformed::Short { wanted: N, left })?;
        self.at += N;
        Ok(array)
    }

    fn advance(&mut self, length: usize) -> Result<Range<usize>, Malformed> {
        let left = self.left();
        if length > left {
            return Err(Malformed::Short { wanted: length, left });
        }
        let from = self.at;
        self.at += length;
        Ok(from..self.at)
    }
}

fn nullable(raw: i64) -> Result<Option<usize>, Malformed> {
    match raw {
        -1 => Ok(None),
        raw => usize::try_from(raw).map(Some).map_err(|_| Malformed::Length(raw)),
    }
}

fn length(raw: u64) -> Result<usize, Malformed> {
    usize::try_from(raw).map_err(|_| Malformed::Length(i64::MAX))
}

/// Writes text behind a two-byte length. Topic and group names are far below the limit; a longer text is cut to nothing, which
/// the broker refuses.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    let (length, text) = i16::try_from(text.len()).map_or((0, ""), |length| (length, text));
    out.put_i16(length);
    out.put_slice(text.as_bytes());
}

/// Writes text behind a compact length.
pub fn put_compact_string(out: &mut Vec<u8>, text: &str) {
    put_compact_count(out, text.len());
    out.put_slice(text.as_bytes());
}

/// Writes the count of a compact list, or the length of what follows.
pub fn put_compact_count(out: &mut Vec<u8>, count: usize) {
    let mut rest = count.saturating_add(1);
    while rest > 0x7f {
        // The low seven bits fit.
        out.put_u8(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    out.put_u8(u8::try_from(rest).unwrap_or(0));
}

/// Writes bytes behind a four-byte length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // invariant: the bytes are a step of an exchange, some hundreds of them
    out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.put_slice(bytes);
}

/// Writes a list behind a four-byte count.
pub fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut element: impl FnMut(&mut Vec<u8>, &T)) {
    // invariant: lists are partitions and topics of one request, never 2^31 of them
    out.put_i32(i32::try_from(list.len()).unwrap_or(i32::MAX));
    for each in list {
        element(out, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reader(bytes: &'static [u8]) -> Reader {
        Reader::new(Bytes::from_static(bytes))
    }

    #[test]
    fn variable_length_numbers() {
        for (bytes, want) in [
            (&b"\x00"[..], Ok(0)),
            (b"\x01", Ok(-1)),
            (b"\x02", Ok(1)),
            (b"\xff\xff\xff\xff\x0f", Ok(i32::MIN)),
            (b"\xfe\xff\xff\xff\x0f", Ok(i32::MAX)),
            (b"\xff\xff\xff\xff\xff\x0f", Err(Malformed::Varint)),
            (b"\x80", Err(Malformed::Short { wanted: 1, left: 0 })),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Err(Malformed::Varint)),
        ] {
            assert_eq!(reader(bytes).varint(), want, "{bytes:x?}");
        }
    }

    #[test]
    fn lengths_are_checked_before_anything_is_made_of_them() {
        assert_eq!(reader(b"\x7f\xff\xff\xff").list(Reader::i8), Err(Malformed::Short { wanted: 1, left: 0 }));
        assert_eq!(reader(b"\xff\xff\xff\xfe").list(Reader::i8), Err(Malformed::Length(-2)));
        assert_eq!(reader(b"\xff\xff\xff\xff").list(Reader::i8), Ok(vec![]));
        assert_eq!(reader(b"\x00\x02\xff\xfe").string(), Err(Malformed::NotUtf8));
        assert_eq!(reader(b"\xff\xff").nullable_string(), Ok(None));
        assert_eq!(reader(b"\x03ab").compact_nullable_string(), Ok(Some("ab".to_owned())));
        assert_eq!(reader(b"\x01\x05\x02xy").skip_tags(), Ok(()));
    }

    #[test]
    fn compact_texts_read_back() {
        for length in [0, 1, 126, 127, 249, 20_000] {
            let mut out = Vec::new();
            put_compact_string(&mut out, &"x".repeat(length));
            let mut reader = Reader::new(out.into());
            assert_eq!(reader.compact_nullable_string(), Ok(Some("x".repeat(length))));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = Reader::new(bytes.into());
            let _ = reader.clone().varint_bytes();
            let _ = reader.clone().compact_list(Reader::varlong);
            let _ = reader.clone().nullable_bytes();
            let _ = reader.clone().skip_tags();
            let _ = reader.compact_nullable_string();
            prop_assert!(reader.at() + reader.left() <= 64);
        }
    }
}
