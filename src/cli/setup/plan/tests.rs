use clap::CommandFactory as _;

use super::*;
use crate::cli::{Cli, pages};

#[test]
fn the_service_runs_this_program_with_the_configuration() {
    let [(_, service), (_, socket)] = units("/home/jane/my bin/credbroker", Some(Path::new("/c/50%.yaml")));
    let start = "\nExecStart=\"/home/jane/my bin/credbroker\" serve --config \"/c/50%%.yaml\"\n";
    assert!(service.contains(start) && !service.contains(START), "{service}");
    assert!(socket.contains("ListenStream=%t/credbroker/credbroker.sock"));
    assert!(units("/b", None)[0].1.contains("\nExecStart=\"/b\" serve\n"));
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
