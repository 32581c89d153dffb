//! The clusters and contexts that the broker knows, and how to reach them.
