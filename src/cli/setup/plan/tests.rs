use clap::CommandFactory as _;

use super::*;
use crate::cli::{Cli, pages};

#[test]
fn the_service_runs_this_program_with_the_configuration() {
    let shell = [("PATH", "/a b/50%:/$x\"y"), ("https_proxy", "http://proxy:1"), ("SECRET", "c4n4ry")];
    let shell: Environment = shell.into_iter().collect();
    let [(_, service), (_, socket)] =
        units("/home/jane/my bin/credbroker", Some(Path::new("/c/50%.yaml")), &shell);
    let start = "\nExecStart=\"/home/jane/my bin/credbroker\" serve --config \"/c/50%%.yaml\"\n";
    assert!(service.contains(start) && !service.contains(START), "{service}");
    assert!(socket.contains("ListenStream=%t/credbroker/credbroker.sock"));
    let variables = "\nEnvironment=\"PATH=/a b/50%%:/$x\\\"y\"\nEnvironment=\"https_proxy=http://proxy:1\"\n";
    assert!(service.contains(variables) && !service.contains("c4n4ry"), "{service}");
    let [(_, service), _] = units("/b", None, &Environment::default());
    assert!(service.contains("\nExecStart=\"/b\" serve\n") && !service.contains("\nEnvironment="));
}

#[test]
fn each_command_has_a_page_and_each_shell_completes_it() {
    let written = pages::pages(Cli::command());
    let text =
        |name: &str| &written.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("{name}")).1;
    assert!(text("credbroker.1").contains(".TH credbroker 1"));
    assert!(text("credbroker-kubeconfig-wrap.1").contains("\\-\\-bare"));
    assert!(!written.iter().any(|(name, _)| name == "credbroker-shim.1"));
    for (path, text) in completions(Path::new("/d"), Path::new("/c")) {
        assert!(text.contains("CREDBROKER_COMPLETE"), "{}", path.display());
    }
}
