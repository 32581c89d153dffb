//! Hours of many credentials.
