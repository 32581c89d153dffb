//! PEM blocks of a certificate chain and its key.
