//! The authority and the certificate of the loopback port.
