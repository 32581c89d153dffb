//! One document tree for JSON and YAML, with the position of everything in it.
//!
//! The ready-made derives are too lenient for plugin output and stop at the first problem in a config. This tree keeps
//! what they drop: whether a scalar was quoted, and on which line each value and key stands.
