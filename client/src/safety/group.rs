//! Groups that have one member: many systems make one for each user, and a umask that lets it write.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::{fs::getxattr, io::Errno};

const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// The attribute of a file whose group bits are the limit of an access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Whether the group of what was `found` at `path` can write to it, all users cannot, and no user but its owner is in that
/// group.
pub fn has_private_group(path: &Path, found: &Metadata) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    found.mode() & (GROUP_WRITES | ALL_WRITE) == GROUP_WRITES
        && !has_access_list(path)
        && is_private(found.gid(), found.uid(), &read("/etc/passwd"), &read("/etc/group"))
}

/// Whether other users may have rights at `path` that the mode does not show.
fn has_access_list(path: &Path) -> bool {
    !matches!(getxattr(path, ACCESS_LIST, &mut [0_u8; 0]), Err(Errno::NODATA | Errno::NOTSUP))
}

/// Whether `gid` is the own group of the user `owner`, and of no other user. A group or an owner that is not in the files
/// may have members that are not there either.
fn is_private(gid: u32, owner: u32, users: &str, groups: &str) -> bool {
    let mut names = Vec::new();
    let mut is_own = false;
    for line in users.lines() {
        let mut fields = line.split(':');
        let (name, uid, primary) = (fields.next(), number(fields.nth(1)), number(fields.next()));
        if uid == Some(owner) {
            names.extend(name);
            is_own |= primary == Some(gid);
        } else if primary == Some(gid) {
            return false;
        }
    }
    let mut of_group = groups.lines().filter(|line| number(line.split(':').nth(2)) == Some(gid)).peekable();
    let is_known = of_group.peek().is_some();
    let mut members = of_group.filter_map(|line| line.split(':').nth(3)).flat_map(|list| list.split(','));
    is_own && is_known && members.all(|member| member.trim().is_empty() || names.contains(&member.trim()))
}

fn number(field: Option<&str>) -> Option<u32> {
    field?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:\nann2:x:1000:1000::/:\nbob:x:1001:1001::/:\n";

    #[test]
    fn a_group_is_private_if_its_owner_is_its_only_member() {
        let groups = "root:x:0:\nann:x:1000:ann,ann2\nbob:x:1001:\nstaff:x:50:ann\n";
        for (gid, owner, is_it) in [
            (1000, 1000, true),
            (1001, 1001, true),
            (0, 0, true),
            (50, 1000, false),   // not the own group of that user
            (1001, 1000, false), // the group of another one
            (1002, 1002, false), // neither is known
        ] {
            assert_eq!(is_private(gid, owner, USERS, groups), is_it, "{gid} {owner}");
        }
    }

    #[test]
    fn a_group_with_another_member_or_one_that_is_not_listed_is_not_private() {
        assert!(!is_private(1000, 1000, USERS, "ann:x:1000:ann,bob"), "a member");
        assert!(!is_private(1000, 1000, USERS, "ann:x:1000:\nalso:x:1000:bob"), "under a second name");
        assert!(
            !is_private(1000, 1000, &format!("{USERS}eve:x:1002:1000::/:"), "ann:x:1000:"),
            "a primary group"
        );
        assert!(!is_private(1000, 1000, USERS, "bob:x:1001:"), "a group that is not in the file");
        assert!(!is_private(1000, 1000, "", ""), "no files");
    }

    #[test]
    fn an_access_list_gives_rights_to_others() {
        let directory = credbroker_test_support::private_directory();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        assert!(!has_access_list(&path));
        // One entry more than the mode has: uid 1 may read and write.
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, u32::MAX), (2, 6, 1), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        if let Err(error) = rustix::fs::setxattr(&path, ACCESS_LIST, &list, rustix::fs::XattrFlags::empty()) {
            println!("SKIPPED: this file system has no access control lists: {error}");
            return;
        }
        assert!(has_access_list(&path));
        assert!(!has_private_group(&path, &path.metadata().unwrap()));
    }
}
