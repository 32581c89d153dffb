//! The programs that are compared, built as they are shipped.

use std::{
    env::current_exe,
    fmt::Write as _,
    fs,
    io::Read,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, Result, ensure};

/// The broker as it is released. Cargo builds it once for each process, and does nothing when it is there already.
pub fn credbroker() -> Result<PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    if let Some(program) = PROGRAM.get() {
        return Ok(program.clone());
    }
    let target = target()?;
    run(cargo("build", &target).args(["--release", "-p", "credbroker", "--bin", "credbroker"]))?;
    Ok(PROGRAM.get_or_init(|| target.join("release/credbroker")).clone())
}

/// The shim as it is released: static, at a fixed address, optimized for size. Cargo does nothing when it is there
/// already. A copy in `directory`, as an installed one is: what the linker wrote lies in the page cache in smaller pieces,
/// which costs some page faults more.
pub fn static_shim(directory: &Path) -> Result<PathBuf> {
    let target = target()?;
    let mut build = cargo("rustc", &target);
    build.args(["--profile", "shim", "-p", "credbroker-exec", "--bin", "credbroker-exec"]);
    build.args(["--", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"]);
    run(&mut build)?;
    let shim = directory.join("credbroker-exec");
    fs::copy(target.join("shim/credbroker-exec"), &shim)?;
    Ok(shim)
}

/// The target directory that this program is in.
fn target() -> Result<PathBuf> {
    let this = current_exe().context("the path of this program")?;
    let target = this.ancestors().find(|above| above.join("CACHEDIR.TAG").is_file());
    Ok(target.context("the target directory is above this program")?.to_owned())
}

fn cargo(command: &str, target: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args([command, "--locked", "--target-dir"]).arg(target);
    cargo
}

/// Compiles `benches/latency/NAME.c` in `directory`, statically.
pub fn c_program(name: &str, directory: &Path, define: Option<&str>) -> Result<PathBuf> {
    let program = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/latency").join(name).with_extension("c");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-static", "-o"]).arg(&program).arg(source);
    run(compile.args(define.map(|define| format!("-D{define}"))))?;
    Ok(program)
}

/// The C program that sends to the broker what `shim` sends for `provider` and with `environment`.
pub fn recorded(
    directory: &Path,
    shim: &Path,
    provider: &str,
    environment: &[(String, String)],
) -> Result<PathBuf> {
    let mut numbers = String::new();
    for byte in request_of(shim, provider, &directory.join("record.sock"), environment)? {
        write!(numbers, "{byte},")?;
    }
    let file = directory.join("request");
    fs::write(&file, numbers)?;
    c_program("recorded", directory, Some(&format!("REQUEST=\"{}\"", file.display())))
}

/// The first thing that the shim writes, which must be the whole request.
fn request_of(
    shim: &Path,
    provider: &str,
    socket: &Path,
    environment: &[(String, String)],
) -> Result<Vec<u8>> {
    let listener = UnixListener::bind(socket)?;
    let mut command = Command::new(shim);
    command.args(["--provider", provider, "--socket"]).arg(socket);
    command.env_clear().envs(environment.iter().cloned());
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
