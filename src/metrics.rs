//! Names and types of the metrics.
