//! Batches written by hand and by a real producer, good and bad.

#[path = "../../tests/broker/batch.rs"]
mod batch;

use super::*;
use batch::{Batch, CONTROL, GZIP, LZ4, Record as Written, SNAPPY, TRANSACTIONAL, ZSTD};
use proptest::prelude::*;

fn fetched(asked: i64, batches: &[Vec<u8>]) -> Fetched {
    let bytes = batches.concat().into();
    Fetched { bytes, asked, between_batches: false, high_watermark: 1_000_000, aborted: vec![] }
}

/// Everything that can be read, as `offset=value` and `>next` at each batch's end, and what stopped it.
fn read(fetched: Fetched) -> (String, Option<Unreadable>) {
    let asked = fetched.asked;
    read_from(fetched, asked)
}

fn read_from(fetched: Fetched, position: i64) -> (String, Option<Unreadable>) {
    let mut batches = Batches::new(fetched, position);
    let mut told = Vec::new();
    loop {
        match batches.step() {
            Ok(Next::Record(record)) => match record.content {
                Content::Record(raw) => {
                    told.push(format!("{}={}", record.offset, String::from_utf8_lossy(&raw.body)));
                }
                Content::TooManyHeaders(raw) => told.push(format!("{}!{}", record.offset, raw.len())),
            },
            Ok(Next::BatchEnd { next }) => told.push(format!(">{next}")),
            Ok(Next::End { half }) => {
                if half > 0 {
                    told.push(format!("half {half}"));
                }
                return (told.join(" "), None);
            }
            Err(unreadable) => return (told.join(" "), Some(unreadable)),
        }
    }
}

fn headers_of(record: Written) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let batch = Batch { records: vec![record], ..Batch::of(0, &[]) };
    let mut batches = Batches::new(fetched(0, &[batch.bytes()]), 0);
    let Ok(Next::Record(Record { content: Content::Record(raw), .. })) = batches.step() else { panic!("no record") };
    raw.headers.iter().map(|(name, value)| (name.to_vec(), value.as_ref().map(|value| value.to_vec()))).collect()
}

// C1.6
#[test]
fn batches_of_every_compression_are_read() {
    for compression in [0, GZIP, SNAPPY, LZ4, ZSTD] {
        let batches = [Batch::of(7, &["a", "b"]).with(compression).bytes(), Batch::of(9, &["c"]).bytes()];
        assert_eq!(read(fetched(7, &batches)), ("7=a 8=b >9 9=c >10".to_owned(), None), "{compression}");
        assert_eq!(read(fetched(8, &batches)).0, "8=b >9 9=c >10", "inside of a batch {compression}");
        assert_eq!(read_from(fetched(7, &batches), 9).0, "9=c >10", "read again from the middle {compression}");
    }
}

/// What real producers wrote, through a real broker.
fn real(name: &str) -> Vec<u8> {
    let rows = include_str!("../../tests/cases/kafka-batches.tsv").lines();
    let row = rows.filter_map(|row| row.split_once('\t')).find(|(of, _)| *of == name).map(|(_, hex)| hex);
    let hex = row.unwrap_or_else(|| panic!("no {name}"));
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

// C1.6
#[test]
fn what_real_clients_write_is_read() {
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let told = read(fetched(0, &[real(&format!("librdkafka-{compression}"))]));
        let second = "second second second second second second";
        assert_eq!(told, (format!("0={{\"amount\":10.50}} 1= 2={second} >3"), None), "{compression}");
        let told = read(fetched(0, &[real(&format!("java-{compression}"))]));
        assert_eq!(told, ("0=one one one one one one one one 1=two >2".to_owned(), None), "{compression}");
    }
    let transaction = real("transaction");
    let producer_id = i64::from_be_bytes(transaction[43..51].try_into().unwrap());
    let aborted = vec![Aborted { producer_id, first_offset: 0 }];
    let told = read(Fetched { aborted, ..fetched(0, &[transaction]) });
    assert_eq!(told, (">1 >2 2=committed >3 >4".to_owned(), None));
}

// C1.6
#[test]
fn holes_and_empty_batches_move_the_position() {
    let hole = Batch { records: vec![Written::of(2, "x"), Written::of(5, "y")], ..Batch::of(10, &[]) };
    let cut_tail = Batch { last_delta: Some(9), ..hole.clone() };
    let empty = Batch { last_delta: Some(4), ..Batch::of(20, &[]) };
    let batches = [cut_tail.bytes(), empty.bytes(), Batch::of(40, &["z"]).bytes()];
    assert_eq!(read(fetched(10, &batches)), ("12=x 15=y >20 >25 40=z >41".to_owned(), None));
    assert_eq!(read(fetched(17, &batches)).0, ">20 >25 40=z >41", "a position in a hole");
    assert_eq!(next_fetch(&batches.concat().into(), 10), 41);
    assert_eq!(next_fetch(&Bytes::new(), 10), 10);
}

// C2.6
#[test]
fn headers_come_as_they_are() {
    let given: &[(&[u8], Option<&[u8]>)] =
        &[(b"ce-id", Some(b"1")), (b"x", None), (b"\xff\xfe", Some(b"")), (b"ce-id", Some(b"2")), (b"", Some(b"v"))];
    let want: Vec<_> = given.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect();
    assert_eq!(headers_of(Written::with_headers(0, given)), want);
    let null_value = Batch { records: vec![Written::default()], ..Batch::of(3, &[]) };
    assert_eq!(read(fetched(3, &[null_value.bytes()])).0, "3= >4");
}

// C1.6
#[test]
fn aborted_transactions_and_markers_are_not_given() {
    let batches = [
        Batch::of(0, &["aborted"]).by(1).bytes(),
        Batch::of(1, &["other"]).by(2).bytes(),
        Batch::of(2, &["plain"]).bytes(),
        Batch::of(3, &["aborted too"]).by(1).with(TRANSACTIONAL | GZIP).bytes(),
        Batch::marker(4, 1, false).bytes(),
        Batch::of(5, &["same producer again"]).by(1).bytes(),
        Batch::marker(6, 1, true).bytes(),
        Batch::marker(7, 2, true).bytes(),
        Batch::of(8, &["second abort"]).by(2).bytes(),
        Batch::marker(9, 2, false).bytes(),
    ];
    let aborted = vec![Aborted { producer_id: 2, first_offset: 8 }, Aborted { producer_id: 1, first_offset: 0 }];
    let all = Fetched { aborted: aborted.clone(), ..fetched(0, &batches) };
    let told = ">1 1=other >2 2=plain >3 >4 >5 5=same producer again >6 >7 >8 >9 >10";
    assert_eq!(read(all.clone()), (told.to_owned(), None));
    let later = Fetched { aborted, ..fetched(3, &batches[3..]) };
    let told = ">4 >5 5=same producer again >6 >7 >8 >9 >10";
    assert_eq!(read(later).0, told, "begun before what was asked for");
    assert_eq!(read_from(all, 4).0, told.trim_start_matches(">4 "), "read again from the middle");
    let other_control = Batch::of(0, &["leader change"]).with(CONTROL).bytes();
    assert_eq!(read(fetched(0, &[other_control])).0, ">1");
}

#[test]
fn a_cut_off_batch_is_left_for_the_next_fetch() {
    let (first, second) = (Batch::of(0, &["a"]).bytes(), Batch::of(1, &["b"]).bytes());
    let size = second.len();
    for cut in 1..size {
        let told = read(fetched(0, &[first.clone(), second[..cut].to_vec()]));
        let half = if cut < 12 { String::new() } else { format!(" half {size}") };
        assert_eq!(told, (format!("0=a >1{half}"), None), "{cut}");
    }
}

fn changed(batch: &Batch, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = batch.bytes();
    change(&mut bytes);
    bytes
}

// C2.7
#[test]
fn a_batch_that_cannot_be_read_is_named_and_passed() {
    let good = Batch::of(5, &["a", "b"]);
    let broken_record = Batch::of(5, &["a", "b"]);
    let mut swapped = good.clone();
    swapped.records.reverse();
    let bomb = Batch { records: vec![Written::of(0, &"0".repeat(BATCH_EXPANDED_BYTES))], ..good.clone() };
    let short = changed(&good, |bytes| bytes[8..12].copy_from_slice(&30i32.to_be_bytes()));
    let next = Batch::of(9, &["next"]).bytes();
    let rows: Vec<(&str, Vec<u8>, Fault, i64)> = vec![
        ("one bit", changed(&good, |bytes| bytes[70] ^= 1), Fault::Checksum, 9),
        ("format 1", changed(&good, |bytes| bytes[16] = 1), Fault::Format(1), 9),
        ("compression 5", good.clone().with(5).bytes(), Fault::UnknownCompression(5), 9),
        (
            "not gzip",
            changed(&good.clone().with(GZIP), |bytes| {
                bytes[61] = 0;
                let sum = crc32c::crc32c(&bytes[21..]);
                bytes[17..21].copy_from_slice(&sum.to_be_bytes());
            }),
            Fault::Unexpandable(Unexpandable::Damaged),
            9,
        ),
        ("bomb", bomb.with(ZSTD).bytes(), Fault::Unexpandable(Unexpandable::TooLarge(BATCH_EXPANDED_BYTES)), 9),
        ("no records in it", broken_record.bytes_around(b""), Malformed::Short { wanted: 1, left: 0 }.into(), 9),
        (
            "bytes after the records",
            {
                let mut records = vec![];
                good.records.iter().for_each(|record| record.write(&mut records));
                good.bytes_around(&[records, vec![0]].concat())
            },
            Malformed::Trailing(1).into(),
            9,
        ),
        ("deltas go back", swapped.bytes(), Malformed::Length(0).into(), 9),
        (
            "delta beyond the last",
            Batch { last_delta: Some(0), ..good.clone() }.bytes(),
            Malformed::Length(1).into(),
            9,
        ),
        (
            "last delta negative",
            Batch { last_delta: Some(-2), ..good.clone() }.bytes(),
            Malformed::Length(-2).into(),
            9,
        ),
        ("before what was read", Batch::of(2, &["a", "b"]).bytes(), Fault::Backwards, 9),
        ("negative", Batch::of(-8, &["a"]).bytes(), Fault::Backwards, 9),
        ("beyond the end", Batch::of(999_999, &["a", "b"]).bytes(), Fault::BeyondEnd, 9),
        ("beyond every end", Batch::of(i64::MAX, &["a"]).bytes(), Fault::BeyondEnd, 9),
        ("length too short", short, Malformed::Short { wanted: 6, left: 0 }.into(), 6),
        ("length negative", changed(&good, |bytes| bytes[8] = 0xff), Malformed::Length(0).into(), 6),
    ];
    for (name, bytes, fault, skip_to) in rows {
        let (told, unreadable) = read(fetched(5, &[bytes.clone(), next.clone()]));
        let unreadable = unreadable.unwrap_or_else(|| panic!("{name} was read: {told}"));
        assert_eq!(told, "", "{name}: nothing of it is given");
        assert_eq!(unreadable.skip_to, skip_to, "{name}");
        match (unreadable.why, fault) {
            (Fault::Malformed(Malformed::Length(_)), Fault::Malformed(Malformed::Length(_)))
            | (Fault::Malformed(Malformed::Short { .. }), Fault::Malformed(Malformed::Short { .. })) => {}
            (is, want) => assert_eq!(is, want, "{name}"),
        }
        let (told, later) = read(fetched(4, &[Batch::of(4, &["before"]).bytes(), bytes, next.clone()]));
        assert_eq!(told, "4=before >5", "{name}: what comes before it is given");
        assert_eq!(later.map(|later| later.skip_to), Some(skip_to), "{name}");
    }
}

#[test]
fn without_a_next_batch_its_own_offsets_say_where_to_go_on() {
    let damaged = changed(&Batch::of(5, &["a", "b", "c"]), |bytes| bytes[70] ^= 1);
    let skip_to = |fetched| read(fetched).1.map(|unreadable| unreadable.skip_to);
    assert_eq!(skip_to(fetched(5, std::slice::from_ref(&damaged))), Some(8));
    assert_eq!(
        skip_to(Fetched { high_watermark: 7, ..fetched(5, std::slice::from_ref(&damaged)) }),
        Some(6),
        "beyond the end"
    );
    assert_eq!(skip_to(fetched(3, &[damaged])), Some(4), "it may not be the batch that lies there");
}

#[test]
fn a_base_offset_that_went_back_is_seen_between_batches() {
    let back = Batch::of(95, &["a"; 10]).bytes();
    let inside = fetched(100, std::slice::from_ref(&back));
    assert!(read(inside.clone()).1.is_none(), "asked from inside of a batch");
    let between = Fetched { between_batches: true, ..inside };
    assert_eq!(read(between).1.map(|unreadable| unreadable.why), Some(Fault::Backwards));
    let second = fetched(99, &[Batch::of(99, &["before"]).bytes(), back]);
    assert_eq!(read(second).1.map(|unreadable| unreadable.why), Some(Fault::Backwards));
}

#[test]
fn too_many_headers_are_one_records_trouble() {
    let header = (b"h".to_vec(), None);
    let many = Written { headers: vec![header; RECORD_HEADERS + 1], ..Written::of(1, "many") };
    let batch = Batch { records: vec![Written::of(0, "a"), many, Written::of(2, "c")], ..Batch::of(0, &[]) };
    let (told, unreadable) = read(fetched(0, &[batch.bytes()]));
    assert_eq!(unreadable, None);
    assert!(told.starts_with("0=a 1!") && told.ends_with(" 2=c >3"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is damaged: no panic, no step back, an end.
    #[test]
    fn damage_never_leads_backwards(
        compression in 0i16..5,
        values in proptest::collection::vec("[a-z]{0,40}", 1..6),
        flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4),
        resum in any::<bool>(),
        asked in 90i64..110,
    ) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let mut bytes = Batch::of(100, &values).with(compression).bytes();
        for (at, mask) in flips {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= mask;
        }
        if resum {
            let sum = crc32c::crc32c(&bytes[21..]);
            bytes[17..21].copy_from_slice(&sum.to_be_bytes());
        }
        let all = fetched(asked, &[bytes, Batch::of(120, &["next"]).bytes()]);
        prop_assert!(next_fetch(&all.bytes, asked) >= asked);
        let mut batches = Batches::new(all, asked);
        let mut position = asked;
        for _ in 0..64 {
            match batches.step() {
                Ok(Next::Record(record)) => {
                    prop_assert!(record.offset >= position);
                    position = record.offset + 1;
                }
                Ok(Next::BatchEnd { next }) => {
                    prop_assert!(next >= position);
                    position = next;
                }
                Ok(Next::End { .. }) => return Ok(()),
                Err(unreadable) => {
                    prop_assert!(unreadable.skip_to > position || unreadable.skip_to > asked);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "no end");
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..300), asked in any::<i64>()) {
        let _ = next_fetch(&noise.clone().into(), asked);
        let _ = read(Fetched { high_watermark: i64::MAX, ..fetched(asked, &[noise]) });
    }
}
