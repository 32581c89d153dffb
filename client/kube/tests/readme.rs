//! The README's Rust program, with the README's dependencies and nothing else, as a crate outside of this workspace.
//!
//! The doctest of the README has the workspace's features, and cannot see that a dependency or a feature is missing. The build
//! takes minutes, so it is not a part of `cargo test`: `cargo test -p credbroker-kube --test readme`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests end by panics, and start programs")]

use std::{fs, path::Path, process::Command};

const README: &str = include_str!("../../../README.md");
const REPOSITORY: &str = "git = \"https://github.com/credbroker/credbroker\"";

/// The only block of the README that begins so.
fn block(language: &str, first_line: &str) -> &'static str {
    let fence = format!("```{language}\n{first_line}");
    let mut found = README.match_indices(&fence);
    let (at, _) = found.next().unwrap();
    assert!(found.next().is_none(), "the README has two blocks that begin with {first_line}");
    let (_, block) = README[at..].split_once('\n').unwrap();
    block.split_once("```").unwrap().0
}

#[test]
fn a_program_with_the_dependencies_of_the_readme_compiles() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let root = client.parent().unwrap();
    let mut dependencies = String::new();
    for line in block("toml", "[dependencies]").lines() {
        let checkout = match line.split_once(" = ").map_or("", |(name, _)| name) {
            "credbroker-client" => Some(client.to_owned()),
            "credbroker-kube" => Some(client.join("kube")),
            _ => None,
        };
        let here = checkout.map(|path| line.replace(REPOSITORY, &format!("path = {path:?}")));
        dependencies += here.as_deref().unwrap_or(line);
        dependencies.push('\n');
    }
    assert!(!dependencies.contains("git = "), "{dependencies}");

    let package = tempfile::tempdir().unwrap();
    let manifest =
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n";
    fs::write(package.path().join("Cargo.toml"), format!("{manifest}{dependencies}")).unwrap();
    fs::create_dir(package.path().join("src")).unwrap();
    fs::write(package.path().join("src/main.rs"), block("rust,no_run", "use credbroker_client::")).unwrap();
    // Of the same versions as this workspace, which are on this machine.
    fs::copy(root.join("Cargo.lock"), package.path().join("Cargo.lock")).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--target-dir"])
        .arg(root.join("target/readme"))
        .current_dir(package.path())
        .status()
        .unwrap();
    assert!(status.success(), "{dependencies}");
}
