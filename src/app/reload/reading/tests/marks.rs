use std::os::unix::fs::{PermissionsExt as _, symlink};

use credbroker_test_support::private_directory;

use super::super::*;

#[test]
fn every_change_of_a_file_is_seen_and_no_other() {
    let dir = private_directory();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let [file, other, link] = ["inner/file", "other", "link"].map(|name| dir.path().join(name));
    fs::write(&other, "other").unwrap();
    symlink("inner/file", &link).unwrap();
    let files = [file.clone(), other.clone(), link.clone()];
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let changes: [(&str, &dyn Fn()); 9] = [
        ("created", &|| fs::write(&file, "1").unwrap()),
        ("written", &|| fs::write(&file, "22").unwrap()),
        ("not writable", &|| mode(&file, 0o400)),
        ("renamed over", &|| {
            fs::write(dir.path().join("new"), "22").unwrap();
            fs::rename(dir.path().join("new"), &file).unwrap();
        }),
        ("removed", &|| fs::remove_file(&file).unwrap()),
        ("created again", &|| fs::write(&file, "22").unwrap()),
        ("can be replaced by all users", &|| mode(&inner, 0o777)),
        ("can no longer be replaced", &|| mode(&inner, 0o755)),
        ("linked to another place", &|| {
            fs::remove_file(&file).unwrap();
            symlink("../other", &file).unwrap();
        }),
    ];
    for (what, change) in changes {
        let before = marks(&files);
        assert_eq!(changed(&before, &marks(&files)), [""; 0].map(PathBuf::from), "{what}");
        change();
        assert_eq!(changed(&before, &marks(&files)), [file.clone(), link.clone()], "{what}");
    }
}

#[test]
fn other_permissions_of_a_directory_on_the_way_are_a_change() {
    let dir = private_directory();
    let root = fs::canonicalize(dir.path()).unwrap();
    for directory in ["names", "places/real/deep"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("places/real/deep/file"), "1").unwrap();
    symlink(root.join("places/real"), root.join("names/link")).unwrap();
    let files = [root.join("names/link/deep/file")];
    // `names` is above the name alone, and `places` above the place alone.
    for directory in ["", "names", "places", "places/real", "places/real/deep"] {
        let before = marks(&files);
        fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(changed(&before, &marks(&files)), files, "{directory:?}");
    }
}
