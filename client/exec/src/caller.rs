//! Who the credential is for: an opaque name of the process that runs the shim, which it keeps for its whole life.
//!
//! The exec API has no word for "the API server refused it": a client that got a 401 runs its plugin again, and that looks
//! like a first run. So the broker is told who asks; who asks again for what it has was refused.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The process that started the shim.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Parent {
    /// Of the kernel, so that a process id is not mistaken for one of the last boot.
    pub boot: String,
    /// The namespace that the process id belongs to.
    pub namespace: String,
    /// Its id.
    pub pid: i32,
    /// In clock ticks since boot, so that a process id is not mistaken for an earlier one's.
    pub start: String,
}

/// The name of `parent` as a client of the cluster that `exec_info` tells of. Nothing of either can be read from it.
pub(crate) fn caller(parent: &Parent, exec_info: &str) -> String {
    let mut hash = DefaultHasher::new();
    (parent, exec_info.trim()).hash(&mut hash);
    format!("{:016x}", hash.finish())
}

/// The start time in `/proc/PID/stat`. The name of the program, in parentheses, may hold anything.
pub(crate) fn start_time(stat: &str) -> Option<String> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(pid: i32, start: &str) -> Parent {
        Parent { boot: "b".into(), namespace: "n".into(), pid, start: start.into() }
    }

    #[test]
    fn a_process_keeps_its_name_and_shares_it_with_nobody() {
        let name = caller(&parent(7, "100"), "{a}");
        assert_eq!(name, caller(&parent(7, "100"), "{a}\n"));
        for other in [
            caller(&parent(8, "100"), "{a}"),
            caller(&parent(7, "101"), "{a}"),
            caller(&parent(7, "100"), "{b}"),
        ] {
            assert_ne!(name, other);
        }
    }

    #[test]
    fn the_start_time_is_found_behind_any_program_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 10 18446744073709551615";
        assert_eq!(start_time(stat).as_deref(), Some("987654"));
        assert_eq!(start_time("42 (a"), None);
    }
}
