mod update;

use super::*;
use crate::{Command, Environment, testing::provider};

#[test]
fn nothing_is_known_against_a_file_that_was_not_looked_up() {
    let providers = Providers::new([provider("one", Command::Name("one".into()))]);
    assert!(providers.configured("one").unwrap().runnable().is_ok());
    assert_eq!(providers.entry(&ProviderRef::from("one")).unwrap().file.version(), 0);
}

#[test]
fn users_of_one_plugin_share_its_file_and_those_of_another_path_do_not() {
    let in_path = |name: &str, path: &str| Provider {
        inherited: Environment::from_iter([("PATH", path)]).into(),
        ..provider(name, Command::Name("plugin".into()))
    };
    let at = provider("d", Command::Path("/bin/plugin".into()));
    let all = [in_path("a", "/bin"), in_path("b", "/bin"), in_path("c", "/usr/bin"), at];
    let providers = Providers::new(all);
    let [a, b, c, d] =
        ["a", "b", "c", "d"].map(|name| &providers.entry(&ProviderRef::from(name)).unwrap().file);
    assert!(Arc::ptr_eq(a, b) && !Arc::ptr_eq(a, c) && !Arc::ptr_eq(a, d));
    assert_eq!(providers.files.len(), 3);
}
