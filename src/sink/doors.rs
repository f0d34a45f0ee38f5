//! A door for the fuzz targets: what is said about an event over HTTP.
//!
//! Built with the feature `fuzz-doors` only.

use crate::sink::{Delivery, TenantVisibility, headers};
use http::HeaderMap;

/// The header lines of a delivery, signatures apart.
pub fn lines(delivery: &Delivery, visibility: TenantVisibility) -> HeaderMap {
    let mut lines = HeaderMap::new();
    headers::write_event(&mut lines, delivery, visibility);
    lines
}
