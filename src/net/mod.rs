//! The one place that resolves and connects.
