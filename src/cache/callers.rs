//! Who was given which generation: the exec API has no way to say "rejected", but a process that asks again for what it
//! already has says it too.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Callers remembered per key. When they are more, all are forgotten, which costs a hint and nothing else.
const REMEMBERED: usize = 1024;

/// The last generation that each caller was given.
#[derive(Debug, Default)]
pub(crate) struct Callers(Mutex<HashMap<Box<str>, u64>>);

impl Callers {
    /// Takes note that `caller` is given `generation`: true if it has that one already. An empty name is nobody's.
    pub(crate) fn repeats(&self, caller: &str, generation: u64) -> bool {
        if caller.is_empty() {
            return false;
        }
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(given) = callers.get_mut(caller) {
            return std::mem::replace(given, generation) == generation;
        }
        if callers.len() >= REMEMBERED {
            callers.clear();
        }
        callers.insert(caller.into(), generation);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_caller_with_the_same_generation_repeats_itself() {
        let callers = Callers::default();
        let table = [
            ("a", 1, false),
            ("b", 1, false),
            ("a", 1, true),
            ("a", 2, false),
            ("a", 2, true),
            ("b", 2, false),
        ];
        for (caller, generation, repeats) in table {
            assert_eq!(callers.repeats(caller, generation), repeats, "{caller} {generation}");
        }
        assert!(!callers.repeats("", 1) && !callers.repeats("", 1));
    }

    #[test]
    fn there_are_never_more_than_the_limit() {
        let callers = Callers::default();
        for caller in 0..10 * REMEMBERED {
            callers.repeats(&caller.to_string(), 1);
            assert!(callers.0.lock().unwrap().len() <= REMEMBERED);
        }
    }
}
