//! Sends one request to its target, and repeats it after a 401.
