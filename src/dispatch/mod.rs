//! From claim to outcome.
