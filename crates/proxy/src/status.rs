//! Errors of the proxy, as `Status` objects that kubectl prints well.
