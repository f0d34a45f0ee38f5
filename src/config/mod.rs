//! Settings: as typed and as meant.
