//! Homes of people, who can be other users than the one who runs the tests.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::{private_directory, program_file};

/// A home. It is removed when this is dropped.
#[derive(Debug)]
pub struct Home {
    directory: TempDir,
    owner: u32,
}

impl Home {
    /// Of the user who runs the tests, for that user only.
    pub fn own() -> Self {
        Self { directory: private_directory(), owner: geteuid().as_raw() }
    }

    /// Of the user `owner`, with these directories. All users can read it. `None`, and a word about it, where this process
    /// cannot act as that user.
    pub fn of(owner: u32, directories: &[&str]) -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can act as other users");
            return None;
        }
        let home = Self { directory: private_directory(), owner };
        for name in [""].iter().chain(directories) {
            fs::create_dir_all(home.path(name)).expect("a directory");
            home.give(name, 0o755);
        }
        Some(home)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file of the owner.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>, mode: u32) {
        fs::write(self.path(name), contents).expect("a file");
        self.give(name, mode);
    }

    /// Writes a program of the owner.
    pub fn install(&self, name: &str, contents: impl AsRef<[u8]>) {
        program_file(&self.path(name), contents);
        self.give(name, 0o755);
    }

    /// Writes a program: a shell script.
    pub fn script(&self, name: &str, script: &str) {
        self.install(name, format!("#!/bin/sh\n{script}\n"));
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Makes a file or a directory the owner's.
    pub fn give(&self, name: &str, mode: u32) {
        let path = self.path(name);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
        if self.owner != geteuid().as_raw() {
            chown(path, Some(self.owner), Some(self.owner)).expect("an owner");
        }
    }

    /// `program` as the owner runs it, with no variable but `HOME`, and `XDG_RUNTIME_DIR` if the home has a directory `run`.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("HOME", self.directory.path()).current_dir("/").stdin(Stdio::null());
        if self.path("run").is_dir() {
            command.env("XDG_RUNTIME_DIR", self.path("run"));
        }
        if self.owner != geteuid().as_raw() {
            command.uid(self.owner).gid(self.owner);
        }
        command
    }

    /// What the plugin of the user `name` of `kubeconfig` prints, as a client runs it.
    pub fn shim(
        &self,
        kubeconfig: &Value,
        name: &str,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Output {
        let is_it = |user: &&Value| user.get("name").is_some_and(|found| found == name);
        let users = kubeconfig.get("users").and_then(Value::as_array).expect("users");
        let user = users.iter().find(is_it).expect("a user of that name");
        let exec = user.pointer("/user/exec").expect("an exec user");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let program = exec.get("command").map(text).expect("a command");
        assert!(program.contains("credbroker"), "{exec}");
        let args = exec.get("args").and_then(Value::as_array).expect("arguments");
        let env = exec.get("env").and_then(Value::as_array).into_iter().flatten();
        let env = env.map(|variable| [&variable["name"], &variable["value"]].map(text).into());
        let mut command = self.command(program);
        prepare(command.args(args.iter().map(text)).envs(env.collect::<Vec<(String, String)>>()));
        command.output().expect("a program")
    }

    /// The token that it prints.
    #[track_caller]
    pub fn token(
        &self,
        kubeconfig: &Value,
        name: &str,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> String {
        let output = self.shim(kubeconfig, name, prepare);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("a credential");
        document.pointer("/status/token").and_then(Value::as_str).expect("a token").to_owned()
    }
}
