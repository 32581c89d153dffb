//! Upgraded connections: WebSocket and SPDY.
