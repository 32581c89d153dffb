//! The issuer as a process, and the user who enters codes there.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _, stderr},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// An issuer; killed when dropped.
pub(super) struct Issuer {
    child: Child,
    url: String,
}

/// A program that `setup.sh` built.
pub(super) fn prepared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/kubelogin").join(name)
}

/// Whether this machine cannot build kubelogin.
pub(super) fn is_skipped() -> bool {
    if let Ok(why) = std::fs::read_to_string(prepared("skipped")) {
        // The harness captures what is printed, and shows nothing of tests that pass.
        stderr().write_all(format!("\n{why}").as_bytes()).unwrap();
        return true;
    }
    let built = ["issuer", "kubectl-oidc_login"].iter().all(|name| prepared(name).is_file());
    assert!(built, "kubelogin is not built; run tests/interop/kubelogin/setup.sh");
    false
}

impl Issuer {
    /// One whose ID tokens live this long.
    pub(super) fn start(lifetime: &str) -> Self {
        let mut command = Command::new(prepared("issuer"));
        let mut child = command.args(["-lifetime", lifetime]).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim_end().to_owned() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The code of the first login after the first `before` ones, as soon as there is one.
    pub(super) fn code_after(&self, before: u64) -> String {
        let deadline = Instant::now() + super::PATIENCE;
        while self.counts()[0] <= before {
            assert!(Instant::now() < deadline, "a code in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Codes are numbered. Those of earlier logins may still wait.
        self.get("/test/codes").lines().max().expect("it waits").to_owned()
    }

    /// The token that the login with this code will get.
    pub(super) fn prepare(&self, code: &str) -> String {
        self.get(&format!("/test/prepare?code={code}"))
    }

    /// Enters the code.
    pub(super) fn approve(&self, code: &str) {
        self.get(&format!("/test/approve?code={code}"));
    }

    /// Ends all sessions.
    pub(super) fn revoke(&self) {
        self.get("/test/revoke");
    }

    /// Codes, logins and refreshes so far.
    pub(super) fn counts(&self) -> [u64; 3] {
        let counts: Value = serde_json::from_str(&self.get("/test/counts")).unwrap();
        ["codes", "logins", "refreshes"].map(|name| counts[name].as_u64().unwrap())
    }

    fn get(&self, path: &str) -> String {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 OK"), "{path}: {head}");
        body.to_owned()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
