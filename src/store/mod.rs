//! The one redb file: tables, keys, codecs, one write transaction at a time and short read snapshots.

pub mod view;
