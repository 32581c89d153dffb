use std::fs;

use super::*;

const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn a_file_with_other_contents_is_refused_also_after_its_time_was_set_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("plugin");
    fs::write(&path, "abc").unwrap();
    let pin = FilePin::new(Sha256::from_hex(OF_ABC).unwrap());
    assert_eq!(pin.refusal(&path).unwrap(), None);
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "abd").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    let refusal = pin.refusal(&path).unwrap();
    assert!(matches!(refusal, Some(Refusal::Digest { actual }) if actual.starts_with("a52d159f")));
    fs::write(&path, "abc").unwrap();
    assert_eq!(pin.refusal(&path).unwrap(), None);
    assert!(pin.refusal(&home.path().join("absent")).is_err());
}
