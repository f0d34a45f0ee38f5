//! The verdict on a record.
