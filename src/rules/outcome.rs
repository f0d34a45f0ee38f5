//! What an answer means.
