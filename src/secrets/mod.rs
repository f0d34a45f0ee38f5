//! The key-encryption key, and sealing under it.
