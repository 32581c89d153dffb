//! Ends connections and streams without a loss for their clients.
