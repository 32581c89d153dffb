//! Whether a peer is a process of a plugin run: such a process must not request credentials, its own or others.

use super::process::Family;
use crate::exec::LiveRuns;

/// The longest chain of ancestors that is followed. A longer one counts as one of a plugin: only a program that hides
/// its descent makes it.
const GENERATIONS: usize = 128;
/// How often a chain is read again after one of its processes has ended meanwhile.
const TRIES: usize = 3;

/// Whether the process `pid` of the broker's own user, which has just connected to the broker `own`, belongs to a run in
/// `runs`. A process that has ended counts as one of a run while there are runs, because its descent is not known.
pub(super) fn is_of_a_run(
    pid: i32,
    own: i32,
    runs: &LiveRuns,
    family: impl Fn(i32) -> Option<Family>,
) -> bool {
    if runs.is_idle() || pid == own {
        return false;
    }
    (0..TRIES).find_map(|_| descends(pid, own, runs, &family)).unwrap_or(true)
}

/// `None`: a process of the chain has ended meanwhile.
fn descends(pid: i32, own: i32, runs: &LiveRuns, family: impl Fn(i32) -> Option<Family>) -> Option<bool> {
    let mut pid = pid;
    for _ in 0..GENERATIONS {
        let Family { parent, group, session } = family(pid)?;
        // The broker starts only plugins as leaders of process groups. One that was started just now is not listed yet.
        let is_new = parent == own && group == pid;
        if is_new || [pid, group, session].iter().any(|id| runs.contains(*id)) {
            return Some(true);
        }
        if parent <= 1 || parent == own {
            return Some(false);
        }
        pid = parent;
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: i32 = 100;

    /// The peer 10 under this table of process, parent, group and session, with a run of process 200.
    fn is_refused(table: &[(i32, i32, i32, i32)]) -> bool {
        let runs = LiveRuns::default();
        let mut run = runs.begin();
        run.started(Some(200));
        let family = |pid| {
            let row = table.iter().find(|(process, ..)| *process == pid);
            row.map(|(_, parent, group, session)| Family {
                parent: *parent,
                group: *group,
                session: *session,
            })
        };
        is_of_a_run(10, OWN, &runs, family)
    }

    #[test]
    fn a_process_belongs_to_a_run_by_its_ancestors_group_or_session() {
        let refused: [&[(i32, i32, i32, i32)]; 6] = [
            &[(10, 200, 10, 10), (200, OWN, 200, 1)],
            &[(10, 11, 10, 10), (11, 12, 11, 11), (12, 200, 12, 12), (200, OWN, 200, 200)],
            &[(10, 1, 200, 9)],
            &[(10, 1, 10, 200)],
            &[(10, 300, 10, 10), (300, OWN, 300, 9)],
            &[],
        ];
        for table in refused {
            assert!(is_refused(table), "{table:?}");
        }
        let served: [&[(i32, i32, i32, i32)]; 4] = [
            &[(10, 1, 10, 10)],
            &[(10, 0, 10, 10)],
            &[(10, 50, 10, 10), (50, 1, 50, 50)],
            // A child of the broker's process that is no plugin, such as a shim of the demo.
            &[(10, OWN, OWN, OWN), (OWN, 1, OWN, OWN)],
        ];
        for table in served {
            assert!(!is_refused(table), "{table:?}");
        }
    }

    #[test]
    fn a_chain_without_an_end_is_refused() {
        let runs = LiveRuns::default();
        let _run = runs.begin();
        let endless = |pid| Some(Family { parent: pid + 1, group: pid, session: pid });
        assert!(is_of_a_run(1000, OWN, &runs, endless));
    }

    #[test]
    fn without_runs_nothing_is_read() {
        let unread = |_| panic!("read");
        assert!(!is_of_a_run(10, OWN, &LiveRuns::default(), unread));
        let runs = LiveRuns::default();
        let _run = runs.begin();
        assert!(!is_of_a_run(OWN, OWN, &runs, unread), "the broker itself is no plugin");
    }

    #[test]
    fn a_chain_that_changes_is_read_again() {
        let runs = LiveRuns::default();
        let _run = runs.begin();
        let reads = std::cell::Cell::new(0);
        let changing = |_| {
            reads.set(reads.get() + 1);
            (reads.get() > 1).then_some(Family { parent: 1, group: 10, session: 10 })
        };
        assert!(!is_of_a_run(10, OWN, &runs, changing));
        assert_eq!(reads.get(), 2);
    }
}
