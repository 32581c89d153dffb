use credbroker_test_support::private_directory;

use super::*;
use crate::cli::console::tests::console;

/// Otherwise a file that setup wrote would be a foreign one for good.
#[test]
fn after_a_setup_that_failed_its_files_are_still_its_own() {
    let directory = private_directory();
    let path = |name: &str| directory.path().join(name);
    let page = |name: &str, text: &str| (path(name), text.to_owned());
    let plan = |files| Plan {
        own: path("own"),
        config: path("own/config.yaml"),
        kubeconfigs: Vec::new(),
        start: Start::ByHand(""),
        files,
        foreign: Vec::new(),
    };
    let run = |plan: &Plan| {
        let mut manifest = Manifest::read(&plan.own).unwrap().unwrap_or_default();
        let (environment, mut out, mut err) = (Environment::default(), Vec::new(), Vec::new());
        apply(plan, &mut manifest, &mut console(&environment, &mut out, &mut err))
    };
    let may_write = |name: &str| Manifest::read(&path("own")).unwrap().unwrap().may_write(&path(name));
    fs::write(path("blocked"), "").unwrap();
    run(&plan(vec![page("a", "old"), page("b", "old")])).unwrap();
    run(&plan(vec![page("a", "new"), page("blocked/x", "new"), page("b", "new")])).unwrap_err();
    assert_eq!([fs::read(path("a")).unwrap(), fs::read(path("b")).unwrap()], [b"new", b"old"]);
    assert!(may_write("a") && may_write("b"));
    run(&plan(vec![page("a", "new"), page("b", "new")])).unwrap();
    fs::write(path("b"), "old").unwrap();
    assert!(may_write("a") && !may_write("b"), "an earlier version is not what setup wrote");
}
