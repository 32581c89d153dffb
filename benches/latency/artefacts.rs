//! The programs that are compared, built as they are shipped.

use std::{
    fmt::Write as _,
    fs,
    io::Read,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::broker::PROVIDER;

/// The shim as it is released: static, at a fixed address, optimised for size. Cargo does nothing when it is there
/// already. A copy in `directory`, as an installed one is: what the linker wrote lies in the page cache in smaller pieces,
/// which costs some page faults more.
pub(crate) fn static_shim(directory: &Path) -> Result<PathBuf> {
    let profiles = Path::new(env!("CARGO_BIN_EXE_credbroker")).parent().and_then(Path::parent);
    let target = profiles.context("the target directory is above the daemon")?;
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).arg("rustc").arg("--target-dir").arg(target);
    build.args(["--profile", "shim", "-p", "credbroker-exec", "--bin", "credbroker-exec"]);
    build.args(["--", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"]);
    run(&mut build)?;
    let shim = directory.join("credbroker-exec");
    fs::copy(target.join("shim/credbroker-exec"), &shim)?;
    Ok(shim)
}

/// Compiles `benches/NAME.c` in `directory`, statically.
pub(crate) fn c_program(name: &str, directory: &Path, define: Option<&str>) -> Result<PathBuf> {
    let program = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches").join(name).with_extension("c");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-static", "-o"]).arg(&program).arg(source);
    run(compile.args(define.map(|define| format!("-D{define}"))))?;
    Ok(program)
}

/// The C program that sends to the broker what `shim` sends.
pub(crate) fn recorded(directory: &Path, shim: &Path) -> Result<PathBuf> {
    let mut numbers = String::new();
    for byte in request_of(shim, &directory.join("record.sock"))? {
        write!(numbers, "{byte},")?;
    }
    let file = directory.join("request");
    fs::write(&file, numbers)?;
    c_program("recorded", directory, Some(&format!("REQUEST=\"{}\"", file.display())))
}

/// The first thing that the shim writes, which must be the whole request.
fn request_of(shim: &Path, socket: &Path) -> Result<Vec<u8>> {
    let listener = UnixListener::bind(socket)?;
    let mut command = Command::new(shim);
    command.args(["--provider", PROVIDER, "--socket"]).arg(socket).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut shim = command.spawn()?;
    let (mut stream, _) = listener.accept()?;
    let mut bytes = vec![0; 64 * 1024];
    let count = stream.read(&mut bytes)?;
    shim.kill()?;
    shim.wait()?;
    bytes.truncate(count);
    ensure!(is_whole(&bytes), "the shim's first write is not a whole request");
    Ok(bytes)
}

/// Whether the last frame is there to its end, and ends its stream.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(mut left) = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") else { return false };
    let mut ends = false;
    while let [high, middle, low, kind, flags, _, _, _, _, rest @ ..] = left {
        let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        ends = *kind <= 1 && flags & 1 == 1;
        let Some(next) = rest.get(length..) else { return false };
        left = next;
    }
    ends && left.is_empty()
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
