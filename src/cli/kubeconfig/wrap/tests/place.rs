//! Kubeconfigs and a shim in a directory.

use std::{fs, os::unix::fs::PermissionsExt as _};

use credbroker_test_support::private_directory;
use tempfile::TempDir;

use super::super::*;

/// A directory with kubeconfigs and a shim.
pub(super) struct Place(pub(super) TempDir);

impl Place {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(private_directory());
        for (name, text) in files {
            place.write(name, text);
        }
        place.write("bin/credbroker-exec", "");
        place.write("bin/credbroker", "");
        place
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub(super) fn args(&self, file: &str) -> WrapArgs {
        WrapArgs { kubeconfig: Some(self.path(file)), ..WrapArgs::default() }
    }

    /// From `config` to `out`.
    pub(super) fn to_out(&self) -> WrapArgs {
        WrapArgs { output: Some(self.path("out")), ..self.args("config") }
    }

    /// Exit code, standard output and standard error, in which `~` is the directory.
    pub(super) fn run(&self, args: &WrapArgs) -> (u8, String, String) {
        self.try_run(args, &[], "bin/credbroker-exec").unwrap()
    }

    pub(super) fn try_run(
        &self,
        args: &WrapArgs,
        variables: &[(&str, &str)],
        shim: &str,
    ) -> anyhow::Result<(u8, String, String)> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let socket = self.path("no-broker.sock");
        let socket = ("CREDBROKER_SOCKET", socket.to_str().unwrap());
        let environment = variables.iter().copied().chain([socket]).collect();
        let shim = self.path(shim);
        let mut console = Console { environment: &environment, shim: &shim, out: &mut out, err: &mut err };
        let code = run(args, &mut console)?;
        let text =
            |bytes| masked(&String::from_utf8(bytes).unwrap()).replace(self.0.path().to_str().unwrap(), "~");
        Ok((code, text(out), text(err)))
    }

    pub(super) fn refusal(&self, args: &WrapArgs) -> String {
        self.try_run(args, &[], "bin/credbroker-exec").unwrap_err().to_string()
    }

    pub(super) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(super) fn wrapped(&self, args: &WrapArgs) -> String {
        let (code, text, _) = self.run(args);
        assert_eq!(code, 0);
        text
    }
}

/// Digests depend on the directory.
pub(super) fn masked(text: &str) -> String {
    let is_digest =
        |item: &str| matches!(item.len(), 16 | 40) && item.bytes().all(|byte| byte.is_ascii_hexdigit());
    let masked = |line: &str| match line.rsplit_once(' ') {
        Some((before, item)) if is_digest(item.trim_matches('"')) => format!("{before} DIGEST\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(masked).collect()
}

pub(super) const MINIMAL: &str =
    "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}}]";

/// Something of everything.
pub(super) const FULL: &str = r#"apiVersion: v1
kind: Config
current-context: eks
preferences: {}
future: {a: [1, "y"]}
clusters:
- name: eks
  cluster: {server: "https://eks:443", certificate-authority: pki/ca.pem, future: true}
- name: "on"
  cluster: {server: https://other, certificate-authority-data: Y2E=}
contexts:
- {name: eks, context: {cluster: eks, user: eks, namespace: default}}
users:
- name: eks
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: ./bin/plugin
      args: [eks, get-token]
      env: [{name: AWS_PROFILE, value: prod}]
      installHint: "Install: \"aws\""
      provideClusterInfo: false
      interactiveMode: IfAvailable
      future: kept
- {name: "arn:aws:eks:eu:1:cluster/x y", user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}
- {name: cert, user: {client-certificate: c.pem, client-key: ../k.pem}}
- {name: token, user: {tokenFile: t, future: 1.5}}
- {name: shim, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./credbroker-exec, args: [--provider, other], interactiveMode: IfAvailable}}}
- {name: broken, user: {exec: {command: aws}}}
- {name: nothing}
"#;
