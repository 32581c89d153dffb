//! `credbroker proxy`, in a separate process.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    setting::{AS_USER, PODS, PROGRAM, Setting, can_run, curl, handle, text, until},
    streams::end_with_the_credential_and_with_the_right,
};
use crate::harness::Killed;

/// A proxy whose log is in a file.
struct Apart(Killed);

impl Apart {
    fn start(setting: &Setting) -> Self {
        Self::of(setting, &setting.broker.socket())
    }

    /// A client of the broker at `socket`.
    fn of(setting: &Setting, socket: &Path) -> Self {
        let log = fs::File::create(setting.directory.path().join("log")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("proxy").arg("--config").arg(setting.config()).arg("--socket").arg(socket);
        Self(Killed(command.env_clear().stdin(Stdio::null()).stderr(log).spawn().unwrap()))
    }

    fn stop(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.0.0.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.0.0.wait().unwrap().code()
    }
}

fn log(setting: &Setting) -> String {
    fs::read_to_string(setting.directory.path().join("log")).unwrap_or_default()
}

#[test]
fn a_separate_proxy_is_a_client_of_the_broker_and_a_restart_keeps_handles_valid() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::with(&[]);
    let mut proxy = Apart::start(&setting);
    let base = Setting::url(|| log(&setting));
    let target = setting.target();
    let token = setting.token(&target);
    let url = |base: &str| format!("{base}{target}{PODS}");
    assert_eq!(setting.at_port(&AS_USER, &url(&base), &token, &[]), "200", "{}", log(&setting));
    let list = "credbroker_proxy_requests_total{verb=\"list\",code=\"200\"}";
    assert_eq!(setting.metric("proxy-metrics.sock", list).as_deref(), Some("1"));
    assert_eq!(setting.metric("metrics.sock", list), None);
    let authority = fs::read(setting.authority()).unwrap();
    assert_eq!(proxy.stop(), Some(0), "{}", log(&setting));
    assert!(log(&setting).contains("drained"), "{}", log(&setting));
    assert!(!setting.socket().exists());
    assert_eq!(
        (setting.records("proxy-audit"), setting.records("audit")),
        (vec![(200, String::new())], vec![])
    );
    let _second = Apart::start(&setting);
    let base = Setting::url(|| log(&setting));
    assert_eq!(setting.at_port(&AS_USER, &url(&base), &token, &[]), "200", "{}", log(&setting));
    assert_eq!(fs::read(setting.authority()).unwrap(), authority);
    setting.allow(&["list"]);
    until(|| (setting.at_port(&AS_USER, &url(&base), &token, &[]) == "403").then_some(()));
    assert!(!log(&setting).contains("c4n4ry"));
}

#[test]
fn streams_of_a_separate_proxy_end_with_their_credential_and_with_the_right_of_their_caller() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let (_plugin, setting) = Setting::with_plugin(&[]);
    let _proxy = Apart::start(&setting);
    end_with_the_credential_and_with_the_right(&setting);
}

#[test]
fn a_proxy_whose_broker_does_not_answer_says_so_and_when_it_answers() {
    let setting = Setting::with(&[]);
    let socket = setting.directory.path().join("later.sock");
    let _proxy = Apart::of(&setting, &socket);
    let says = |what: &str| until(|| log(&setting).contains(what).then_some(()));
    says("the proxy cannot ask the broker");
    std::os::unix::fs::symlink(setting.broker.socket(), &socket).unwrap();
    says("the broker answers the proxy again");
}

#[test]
fn a_handle_is_given_out_while_the_broker_restarts() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let mut setting = Setting::with(&[]);
    let _proxy = Apart::start(&setting);
    let (base, target, handles) = (Setting::url(|| log(&setting)), setting.target(), setting.handles());
    setting.broker.restart(|| {
        let output = handle(&handles, &AS_USER, &target);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    let token = setting.token(&target);
    assert_eq!(setting.at_port(&AS_USER, &format!("{base}{target}{PODS}"), &token, &[]), "200");
}

/// A bridge may start as soon as the socket is there.
#[test]
fn a_list_of_targets_waits_for_a_broker_that_starts() {
    if !can_run(&["setpriv", "curl"]) {
        return;
    }
    let setting = Setting::with(&[]);
    let socket = setting.directory.path().join("later.sock");
    let _proxy = Apart::of(&setting, &socket);
    until(|| setting.socket().exists().then_some(()));
    let path = setting.socket();
    let listed =
        std::thread::spawn(move || curl(&AS_USER, &["--unix-socket", text(&path), "http://localhost/"]));
    std::os::unix::fs::symlink(setting.broker.socket(), &socket).unwrap();
    let listed = String::from_utf8(listed.join().unwrap().stdout).unwrap();
    assert!(listed.contains("/contexts/prod-"), "{listed}");
}

#[test]
fn a_second_proxy_does_not_start() {
    let setting = Setting::with(&[]);
    let _first = Apart::start(&setting);
    Setting::url(|| log(&setting));
    let mut second = Command::new(PROGRAM);
    second.arg("proxy").arg("--config").arg(setting.config()).arg("--socket").arg(setting.broker.socket());
    let output = second.env_clear().output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("a proxy is already running on "), "{stderr}");
    assert!(!stderr.contains("credbroker stop"), "{stderr}");
}
