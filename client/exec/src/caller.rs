//! An opaque identity of the process that started the shim, the same for its whole life.
//!
//! The exec API cannot report that the API server rejected a credential: a client that got a 401 runs its plugin again,
//! which looks like a first run. With this identity the broker sees that a process requests a credential that it already
//! has, which the API server has probably rejected.

use std::str::SplitAsciiWhitespace;

/// The process that started the shim. The broker keeps callers in memory, so an identity must be unique for one boot only.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Parent {
    /// Its process id, in its namespace.
    pub pid: i32,
    /// When it started, in clock ticks since boot: process ids are used again.
    pub start: String,
    /// Address of its stack, which the kernel chooses at random: in containers that share a socket, two processes with
    /// the same id can start in the same tick. 0 if the kernel hides it.
    pub stack: String,
}

impl Parent {
    /// Reads `/proc/PID/stat`. The name of the program, in parentheses, may contain any bytes.
    pub(crate) fn from_stat(pid: i32, line: &[u8]) -> Option<Self> {
        let mut fields = fields(line)?.map(str::to_owned);
        let start = fields.nth(19)?;
        Some(Self { pid, start, stack: fields.nth(5)? })
    }
}

/// The process that started the one of this line.
pub(crate) fn started_by(line: &[u8]) -> Option<i32> {
    fields(line)?.nth(1)?.parse().ok()
}

/// The fields after the name of the program.
fn fields(line: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let fields = line.rsplit(|byte| *byte == b')').next().filter(|fields| fields.len() < line.len())?;
    Some(str::from_utf8(fields).ok()?.split_ascii_whitespace())
}

/// Whether the name of the program is that of a shell.
pub(crate) fn is_shell(line: &[u8]) -> bool {
    line.rsplitn(2, |byte| *byte == b')').nth(1).is_some_and(|name| name.ends_with(b"sh"))
}

/// Whether a shell with this `/proc/PID/cmdline` runs one command: `sh -c COMMAND`.
pub(crate) fn runs_one_command(arguments: &[u8]) -> bool {
    let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
    let mut arguments = arguments.split(|byte| *byte == 0);
    arguments.nth(1) == Some(b"-c") && arguments.count() == 1
}

/// The identity of `parent` as a client of the cluster in `exec_info`, which is empty if the client does not set
/// `KUBERNETES_EXEC_INFO`.
pub(crate) fn caller(parent: &Parent, exec_info: &str) -> String {
    let Parent { pid, start, stack } = parent;
    format!("{:016x}", fnv_1a(&[&pid.to_string(), start, stack, exec_info.trim()]))
}

/// FNV-1a of 64 bits over `parts`, each followed by a NUL. The result must be the same in every release of the shim,
/// which std's hasher does not promise. It is neither a secret nor a proof, so it needs no cryptographic hash.
fn fnv_1a(parts: &[&str]) -> u64 {
    let next = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    // A chained iterator would take five times as long.
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, part| next(part.bytes().fold(hash, next), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(pid: i32, start: &str) -> Parent {
        Parent { pid, start: start.into(), stack: "140".into() }
    }

    #[test]
    fn a_process_keeps_its_identity_and_shares_it_with_no_other() {
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

    /// The published test vectors of FNV-1a, and one identity.
    #[test]
    fn identities_are_the_same_in_every_release() {
        assert_eq!(fnv_1a(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(&["foobar"]), (0x8594_4171_f739_67e8_u64).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(caller(&parent(7, "100"), "{a}"), "92f7fcce8319f0c7");
    }

    #[test]
    fn start_and_stack_are_found_after_any_program_name() {
        let stat = b"42 (a) b (\xff) S 1 42 42 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 10 18446744073709551615 \
            4194304 5238784 140722650 0 0";
        let expected = Parent { pid: 42, start: "987654".into(), stack: "140722650".into() };
        assert_eq!(Parent::from_stat(42, stat), Some(expected));
        assert_eq!(Parent::from_stat(42, b"42 (a"), None);
        assert_eq!((started_by(stat), started_by(b"42 (a")), (Some(1), None));
    }

    #[test]
    fn a_shell_runs_one_command_if_it_has_no_other_arguments() {
        assert!(is_shell(b"42 (dash) S 1") && !is_shell(b"42 (a sh) b) S 1") && !is_shell(b"42 (sh"));
        let table: [(&[u8], bool); 7] = [
            (b"sh\0-c\0credbroker-exec --provider gke\0", true),
            (b"/bin/bash\0-c\0credbroker-exec", true),
            (b"sh\0-c\0\"$1\"\0sh\0credbroker-exec\0", false),
            (b"sh\0script\0", false),
            (b"sh\0script\0-c\0", false),
            (b"-bash\0", false),
            (b"", false),
        ];
        for (arguments, expected) in table {
            assert_eq!(runs_one_command(arguments), expected, "{}", arguments.escape_ascii());
        }
    }
}
