//! The four compressions of a record batch, undone up to a ceiling.
//!
//! Invariant: what comes out is never longer than the limit, so a small batch that would expand without end costs a bounded
//! piece of memory and an error.

use std::io::Read;

/// How a batch is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Gzip.
    Gzip,
    /// Snappy: framed as the Java client does it, or one raw block.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The compression that a batch's attributes name; none for a number that no Kafka knows.
    pub fn of(attributes: i16) -> Option<Self> {
        match attributes & 0b111 {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Why compressed bytes could not be expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unexpandable {
    /// They would be longer than the limit.
    #[error("more than {0} bytes when expanded")]
    TooLarge(usize),
    /// They are damaged.
    #[error("damaged compressed bytes")]
    Damaged,
}

/// Expands `data` to at most `limit` bytes.
///
/// # Errors
/// When it is damaged, or would be longer.
pub fn expand(compression: Compression, data: &[u8], limit: usize) -> Result<Vec<u8>, Unexpandable> {
    match compression {
        Compression::None if data.len() > limit => Err(Unexpandable::TooLarge(limit)),
        Compression::None => Ok(data.to_vec()),
        Compression::Gzip => read(flate2::bufread::MultiGzDecoder::new(data), data.len(), limit),
        Compression::Snappy => snappy(data, limit),
        Compression::Lz4 => read(lz4_flex::frame::FrameDecoder::new(data), data.len(), limit),
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(data).map_err(|_| Unexpandable::Damaged)?;
            read(decoder, data.len(), limit)
        }
    }
}

fn read(decoder: impl Read, compressed: usize, limit: usize) -> Result<Vec<u8>, Unexpandable> {
    let mut out = Vec::with_capacity(compressed.saturating_mul(4).min(limit));
    // One more than the limit, so that exactly the limit can be told from more.
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(most).read_to_end(&mut out).map_err(|_| Unexpandable::Damaged)?;
    if out.len() > limit { Err(Unexpandable::TooLarge(limit)) } else { Ok(out) }
}

/// What the Java client puts before its chunks of snappy.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
/// The magic, a version and the lowest compatible version.
const XERIAL_HEAD: usize = 16;

fn snappy(data: &[u8], limit: usize) -> Result<Vec<u8>, Unexpandable> {
    let mut out = Vec::new();
    if !data.starts_with(XERIAL_MAGIC) {
        snappy_block(data, &mut out, limit)?;
        return Ok(out);
    }
    let mut rest = data.get(XERIAL_HEAD..).ok_or(Unexpandable::Damaged)?;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Unexpandable::Damaged)?;
        let (block, after) = after.split_at_checked(length).ok_or(Unexpandable::Damaged)?;
        snappy_block(block, &mut out, limit)?;
        rest = after;
    }
    if rest.is_empty() { Ok(out) } else { Err(Unexpandable::Damaged) }
}

fn snappy_block(block: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), Unexpandable> {
    let from = out.len();
    let length = snap::raw::decompress_len(block).map_err(|_| Unexpandable::Damaged)?;
    let upto = from.saturating_add(length);
    if upto > limit {
        return Err(Unexpandable::TooLarge(limit));
    }
    out.resize(upto, 0);
    let room = out.get_mut(from..).ok_or(Unexpandable::Damaged)?;
    let written = snap::raw::Decoder::new().decompress(block, room).map_err(|_| Unexpandable::Damaged)?;
    out.truncate(from + written);
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// Compresses as a producer would.
    pub(in crate::kafka) fn compress(compression: Compression, data: &[u8]) -> Vec<u8> {
        match compression {
            Compression::None => data.to_vec(),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Snappy => snap::raw::Encoder::new().compress_vec(data).unwrap(),
            Compression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(data, 3).unwrap(),
        }
    }

    fn xerial(chunks: &[&[u8]]) -> Vec<u8> {
        let mut out = XERIAL_MAGIC.to_vec();
        out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
        for chunk in chunks {
            let block = compress(Compression::Snappy, chunk);
            out.extend_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes());
            out.extend_from_slice(&block);
        }
        out
    }

    const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    // C1.6
    #[test]
    fn what_was_compressed_comes_back_up_to_the_limit_and_not_beyond() {
        let data: Vec<u8> = b"a loan was paid; ".repeat(9000);
        for compression in ALL {
            let packed = compress(compression, &data);
            assert_eq!(expand(compression, &packed, data.len()).as_deref(), Ok(&data[..]), "{compression:?}");
            let limit = data.len() - 1;
            assert_eq!(expand(compression, &packed, limit), Err(Unexpandable::TooLarge(limit)), "{compression:?}");
            assert_eq!(expand(compression, &compress(compression, b""), 9).as_deref(), Ok(&b""[..]), "{compression:?}");
        }
    }

    // C1.6
    #[test]
    fn snappy_comes_framed_too() {
        let framed = xerial(&[b"first ", b"second"]);
        assert_eq!(expand(Compression::Snappy, &framed, 12).as_deref(), Ok(&b"first second"[..]));
        assert_eq!(expand(Compression::Snappy, &framed, 11), Err(Unexpandable::TooLarge(11)));
        assert_eq!(expand(Compression::Snappy, &framed[..framed.len() - 1], 99), Err(Unexpandable::Damaged));
        assert_eq!(expand(Compression::Snappy, &framed[..10], 99), Err(Unexpandable::Damaged));
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let bomb = vec![0u8; 64 << 20];
        for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let packed = compress(compression, &bomb);
            assert_eq!(expand(compression, &packed, 1 << 20), Err(Unexpandable::TooLarge(1 << 20)), "{compression:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(noise in proptest::collection::vec(any::<u8>(), 0..200), flip in any::<(u16, u8)>()) {
            for compression in ALL {
                let _ = expand(compression, &noise, 4096);
                let mut packed = compress(compression, &noise);
                if let Some(byte) = packed.get_mut(usize::from(flip.0)) {
                    *byte ^= flip.1;
                }
                let _ = expand(compression, &packed, 4096);
            }
        }
    }
}
