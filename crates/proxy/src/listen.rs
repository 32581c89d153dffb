//! The listeners: a Unix socket, and TLS on a loopback port.
