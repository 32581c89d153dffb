//! Who the credential is for: an opaque name of the process that runs the shim, which it keeps for its whole life.
//!
//! The exec API has no word for "the API server refused it": a client that got a 401 runs its plugin again, and that looks
//! like a first run. So the shim sends an identity of its parent process: a process that
//! requests a credential that it already has was probably refused by the API server.

/// The process that started the shim. The broker remembers callers in memory, so a name need not outlive the boot.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Parent {
    /// Its id, in its namespace.
    pub pid: i32,
    /// When it was started, in clock ticks since boot, so that a process id is not mistaken for an earlier one's.
    pub start: String,
    /// Where its stack begins, which the kernel chooses at random: containers may share a socket, and then two processes
    /// with the same id may have been started in the same tick. 0 where the kernel keeps it to itself.
    pub stack: String,
}

impl Parent {
    /// From `/proc/PID/stat`. The name of the program, in parentheses, may hold anything.
    pub(crate) fn from_stat(pid: i32, line: &[u8]) -> Option<Self> {
        let fields = line.rsplit(|byte| *byte == b')').next().filter(|fields| fields.len() < line.len())?;
        let mut fields = str::from_utf8(fields).ok()?.split_ascii_whitespace().map(str::to_owned);
        let start = fields.nth(19)?;
        Some(Self { pid, start, stack: fields.nth(5)? })
    }
}

/// The name of `parent` as a client of the cluster in `exec_info`; that is empty where the client says
/// nothing of itself.
pub(crate) fn caller(parent: &Parent, exec_info: &str) -> String {
    let Parent { pid, start, stack } = parent;
    format!("{:016x}", fnv_1a(&[&pid.to_string(), start, stack, exec_info.trim()]))
}

/// FNV-1a of 64 bits over `parts`, each with a NUL after it. A name must be the same in every release of the shim, since
/// several may ask for the same process, which std's hasher does not promise; and it is not a secret and proves nothing (a
/// peer may send any), so a cryptographic hash would be wasted on it.
fn fnv_1a(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(pid: i32, start: &str) -> Parent {
        Parent { pid, start: start.into(), stack: "140".into() }
    }

    #[test]
    fn a_process_keeps_its_name_and_shares_it_with_no_other() {
        let name = caller(&parent(7, "100"), "{a}");
        assert_eq!(name, caller(&parent(7, "100"), "{a}\n"));
        for other in [
            caller(&parent(8, "100"), "{a}"),
            caller(&parent(7, "101"), "{a}"),
            caller(&parent(7, "100"), "{b}"),
            caller(&parent(7, "100"), ""),
            caller(&parent(71, "00"), "{a}"),
        ] {
            assert_ne!(name, other);
        }
    }

    /// By the published test vectors of FNV-1a: the name of a caller is the same in every release.
    #[test]
    fn names_are_the_same_in_every_release() {
        assert_eq!(fnv_1a(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(&["foobar"]), (0x8594_4171_f739_67e8_u64).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(caller(&parent(7, "100"), "{a}"), "92f7fcce8319f0c7");
    }

    #[test]
    fn start_and_stack_are_found_behind_any_program_name() {
        let stat = b"42 (a) b (\xff) S 1 42 42 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 10 18446744073709551615 \
            4194304 5238784 140722650 0 0";
        let expected = Parent { pid: 42, start: "987654".into(), stack: "140722650".into() };
        assert_eq!(Parent::from_stat(42, stat), Some(expected));
        assert_eq!(Parent::from_stat(42, b"42 (a"), None);
    }
}
