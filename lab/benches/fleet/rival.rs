//! The bare limit: the reflector as a separate process.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::{hub::Hub, memory};

use crate::{
    ledger::Note,
    processor,
    reflector::{COMMAND, READY},
};

/// The reflector as a child.
#[derive(Debug)]
pub(crate) struct Rival {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Rival {
    pub(crate) fn start(hub: &Hub, namespace: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).arg(&hub.kubeconfig).arg(namespace);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self { child, input, output })
    }

    /// Waits until it has read all that there is, once more.
    pub(crate) fn until_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == READY, "the bare reflector said {line:?}");
        Ok(())
    }

    pub(crate) fn resident(&self) -> Result<u64> {
        memory::resident(self.child.id())
    }

    pub(crate) fn processor_time(&self) -> Result<Duration> {
        processor::used(self.child.id())
    }

    /// Ends it, and returns which changes it saw.
    pub(crate) fn end(mut self) -> Result<Vec<Note>> {
        drop(self.input.take());
        let mut seen = Vec::new();
        for line in (&mut self.output).lines() {
            let line = line?;
            let fields: Vec<_> = line.split(' ').collect();
            let [profile, number, at] = fields.as_slice() else { continue };
            let at = UNIX_EPOCH + Duration::from_nanos(at.parse()?);
            seen.push(Note { profile: (*profile).to_owned(), number: number.parse()?, at });
        }
        Ok(seen)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
