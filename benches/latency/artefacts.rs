//! The two programs that are compared, built as they are shipped.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// The shim as it is released: static, optimised for size of start. Cargo does nothing when it is there already.
pub(crate) fn static_shim() -> Result<PathBuf> {
    let profiles = Path::new(env!("CARGO_BIN_EXE_credbroker")).parent().and_then(Path::parent);
    let target = profiles.context("the target directory is above the daemon")?;
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).arg("rustc").arg("--target-dir").arg(target);
    build.args(["--profile", "shim", "-p", "credbroker-exec", "--bin", "credbroker-exec"]);
    build.args(["--", "-C", "target-feature=+crt-static"]);
    run(&mut build)?;
    Ok(target.join("shim/credbroker-exec"))
}

pub(crate) fn baseline(directory: &Path) -> Result<PathBuf> {
    let program = directory.join("baseline");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/baseline.c");
    run(Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(source))?;
    Ok(program)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
