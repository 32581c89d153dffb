//! Leases: runs in the terminal of a caller. The broker says what to run, and checks what the plugin printed.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use credbroker_proto::LEASED_OUTPUT;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::error::RunErrorKind;

/// A caller that can run a plugin in its own terminal, once.
#[derive(Debug)]
pub struct Lender {
    /// The process whose terminal it is.
    pub(crate) process: u32,
    offer: Mutex<Option<oneshot::Sender<Offer>>>,
}

/// What a caller is asked to run. The lease ends when `deposit` is dropped.
#[derive(Debug)]
pub struct Offer {
    /// What to run.
    pub command: PluginCommand,
    /// Takes what the plugin printed.
    pub deposit: oneshot::Sender<Deposit>,
}

/// A plugin to start. `Debug` shows no argument and no variable: they may be secrets.
#[derive(derive_more::Debug)]
#[debug("PluginCommand({program:?})")]
pub struct PluginCommand {
    /// Its path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// All of its environment.
    pub environment: BTreeMap<OsString, OsString>,
}

/// What a plugin printed in the terminal of a caller.
#[derive(derive_more::Debug)]
#[debug("Deposit({exit_code})")]
pub struct Deposit {
    /// Everything that it wrote to stdout.
    pub stdout: Zeroizing<Vec<u8>>,
    /// Its exit code, or 128 and the number of the signal that ended it.
    pub exit_code: i32,
}

impl Lender {
    /// The process `process`. It gets at most one offer.
    pub fn new(process: u32) -> (Arc<Self>, oneshot::Receiver<Offer>) {
        let (offer, offered) = oneshot::channel();
        (Arc::new(Self { process, offer: Mutex::new(Some(offer)) }), offered)
    }

    /// Whether it can still take an offer.
    pub fn is_free(&self) -> bool {
        self.lock().as_ref().is_some_and(|offer| !offer.is_closed())
    }

    /// Asks it to run `command`, and returns what takes the output. `None`: it has left.
    pub(crate) fn offer(&self, command: PluginCommand) -> Option<oneshot::Receiver<Deposit>> {
        let (deposit, deposited) = oneshot::channel();
        let sender = self.lock().take()?;
        sender.send(Offer { command, deposit }).is_ok().then_some(deposited)
    }

    fn lock(&self) -> MutexGuard<'_, Option<oneshot::Sender<Offer>>> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deposit {
    /// The output of the plugin. As for any run, it counts only after a success.
    pub(crate) fn stdout(self) -> Result<Zeroizing<Vec<u8>>, RunErrorKind> {
        match self.exit_code {
            _ if self.stdout.len() > LEASED_OUTPUT => Err(RunErrorKind::OutputTooLarge(LEASED_OUTPUT)),
            0 => Ok(self.stdout),
            code => Err(RunErrorKind::Exit(code)),
        }
    }
}

impl PluginCommand {
    /// The bytes of arguments and environment that the kernel copies.
    pub(crate) fn size(&self) -> usize {
        let args = self.args.iter().map(|arg| arg.len() + 1);
        let variables = self.environment.iter().map(|(name, value)| name.len() + value.len() + 2);
        args.chain(variables).sum()
    }
}

#[cfg(test)]
mod tests;
