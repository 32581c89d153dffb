//! Headers of requests and answers: what is removed, and what is added. Pure.
