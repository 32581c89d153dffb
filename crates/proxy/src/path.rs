//! Reads the path and the query of a request, and writes those that are forwarded. Pure.
