//! The command line, with one file per subcommand.

#![expect(clippy::doc_markdown, reason = "doc comments on arguments are help texts for a terminal")]

mod arguments;
mod broker;
mod clusters;
mod complete;
mod console;
mod credentials;
mod demo;
mod doctor;
mod evict;
mod explain;
mod files;
mod get;
mod healthcheck;
mod kubeconfig;
mod login;
mod logout;
mod man;
mod programs;
mod refresh;
mod screen;
mod selection;
mod serve;
mod setup;
mod status;
mod validate;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::CommandFactory as _;

use self::{
    arguments::{CliCommand, OnceCommand},
    console::{Console, fail},
};
use credbroker_plugin::Environment;

pub use self::arguments::Cli;

/// Answers the completion script of a shell; returns the exit code. `None`: this process was not started by one.
pub fn complete(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match complete::answer(Cli::command, arguments) {
        Ok(is_answered) => is_answered.then_some(ExitCode::SUCCESS),
        Err(error) => Some(fail(&error, &mut io::stderr()).into()),
    }
}

/// Runs the command `cli`, which prints its output to `out`; returns the exit code.
pub fn run(cli: Cli, environment: &Environment, out: &mut dyn Write) -> ExitCode {
    let result = match cli.command {
        CliCommand::Serve(args) => serve::run(&args, environment),
        CliCommand::Once(command) => run_once(*command, environment, out),
    };
    match result {
        Ok(code) => code.into(),
        // The reader of the output, such as `head`, has closed the pipe.
        Err(error) if is_closed_pipe(&error) => ExitCode::FAILURE,
        Err(error) => fail(&error, &mut io::stderr()).into(),
    }
}

/// Not inlined, because the stack that all these commands need would stay resident below the daemon.
#[inline(never)]
fn run_once(command: OnceCommand, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    let console = &mut Console { environment, shim: &shim(), out, err: &mut io::stderr() };
    match command {
        OnceCommand::Validate(args) => validate::run(&args, console),
        OnceCommand::Kubeconfig(command) => kubeconfig::run(&command, console),
        OnceCommand::Setup(args) => setup::run(&args, &man::pages(Cli::command()), console),
        OnceCommand::Doctor(args) => doctor::run(&args, console),
        OnceCommand::Get(args) => get::run(&args, console),
        OnceCommand::Login(args) => login::run(&args, console),
        OnceCommand::Logout(args) => logout::run(&args, console),
        OnceCommand::Status(args) => status::run(&args, console),
        OnceCommand::Explain(args) => explain::run(&args, console),
        OnceCommand::Healthcheck(args) => healthcheck::run(&args, console),
        OnceCommand::Refresh(args) => refresh::run(&args, console),
        OnceCommand::Evict(args) => evict::run(&args, console),
        OnceCommand::Clusters(args) => clusters::run(&args, console),
        OnceCommand::Completions(args) => complete::run(&args, console.out),
        OnceCommand::Man(args) => man::run(&args, Cli::command(), console.out),
        OnceCommand::Demo(args) => demo::run(&args, console),
        OnceCommand::SamplePlugin(args) => demo::run_sample(&args, console.out),
        OnceCommand::Shim { arguments } => {
            let mut edges = credbroker_exec::Edges::of_this_process();
            Ok(credbroker_exec::run(arguments.into_iter(), &mut edges))
        }
    }
}

/// The shim beside this program; without one this program, which has it as a subcommand.
fn shim() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_else(|_| "credbroker".into());
    let beside = this.with_file_name("credbroker-exec");
    if beside.is_file() { beside } else { this }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
