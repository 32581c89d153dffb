//! The commit of a release build, for `GetBrokerInfo`: `CREDBROKER_COMMIT`, or that of the git repository around the
//! package, or what cargo recorded in a published package. Other builds have none, so that a commit does not cause one. And how the program is linked.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

#[expect(clippy::disallowed_methods, reason = "how cargo and build scripts communicate")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CREDBROKER_COMMIT");
    // The loader reads 20 KiB of packed relocations instead of 550 KiB, all of which would stay resident.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    if env::var_os("CREDBROKER_COMMIT").is_some() || env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let root = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    if let Some((commit, files)) = root.and_then(|root| commit(&root).or_else(|| packaged(&root))) {
        for file in files {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        println!("cargo::rustc-env=CREDBROKER_COMMIT={commit}");
    }
}

/// The commit that is checked out, and the files that say so. `None`: there is no repository, as in a package.
pub(crate) fn commit(root: &Path) -> Option<(String, Vec<PathBuf>)> {
    let git = root.join(".git");
    // In a work tree beside the repository `.git` is a file.
    let git = match fs::read_to_string(&git) {
        Ok(text) => root.join(text.strip_prefix("gitdir: ")?.trim()),
        Err(_) => git,
    };
    let head = git.join("HEAD");
    let text = fs::read_to_string(&head).ok()?;
    let Some(branch) = text.trim().strip_prefix("ref: ") else {
        return hash(&text).map(|hash| (hash, vec![head]));
    };
    let common = fs::read_to_string(git.join("commondir"));
    let common = common.map_or_else(|_| git.clone(), |common| git.join(common.trim()));
    let (loose, packed) = (common.join(branch), common.join("packed-refs"));
    let found = match fs::read_to_string(&loose) {
        Ok(text) => hash(&text),
        Err(_) => fs::read_to_string(&packed).ok()?.lines().find_map(|line| hash(line.strip_suffix(branch)?)),
    };
    let files = [head, loose, packed].into_iter().filter(|file| file.is_file());
    found.map(|hash| (hash, files.collect()))
}

/// The commit that cargo recorded when it made the package.
pub(crate) fn packaged(root: &Path) -> Option<(String, Vec<PathBuf>)> {
    let file = root.join(".cargo_vcs_info.json");
    let text = fs::read_to_string(&file).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    hash(rest.split('"').nth(1)?).map(|hash| (hash, vec![file]))
}

fn hash(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
