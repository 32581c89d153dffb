//! Handles: what a client shows instead of a credential. Worth nothing outside of this machine.
