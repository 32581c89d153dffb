//! RFC 3339 timestamps as metav1.Time reads them.
