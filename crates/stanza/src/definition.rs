//! What a stanza runs, and its digest.

use std::{
    borrow::Cow,
    ffi::OsStr,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Names the layout of the digest's input. A change of the layout needs another one.
const VERSION: &[u8] = b"credbroker definition 2";
/// Of 32 bytes, those that the digest has. A collision takes about 2^80 attempts, a match with a given definition 2^160.
const BYTES: usize = 20;

/// What a stanza runs: all that it says and that reaches the plugin.
#[derive(Clone, Debug, Default)]
pub struct Definition<'a> {
    /// Last part of the `apiVersion`, such as `v1beta1`.
    pub api_version: &'a str,
    /// The directory that a relative command is relative to.
    pub dir: Option<&'a Path>,
    /// The command as the stanza has it.
    pub command: &'a [u8],
    /// The arguments of the command.
    pub args: Vec<&'a [u8]>,
    /// The variables that the stanza sets; of several with one name, the last counts. `None`: the environment has no such
    /// variable.
    pub env: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// Whether the plugin receives the cluster.
    pub cluster_info: bool,
}

impl Definition<'_> {
    /// 40 hexadecimal digits. Two definitions have the same digest only if all that they say is equal.
    pub fn digest(&self) -> String {
        // A new field does not compile here until it is added to the input.
        let Self { api_version, dir, command, args, env, cluster_info } = self;
        let mut input = Input(Sha256::new());
        input.text(VERSION);
        input.text(api_version.as_bytes());
        input.text(&absolute(command, *dir));
        input.count(args.len());
        for arg in args {
            input.text(arg);
        }
        input.flag(*cluster_info);
        // In the order of the names. A few are searched with less code than they are sorted.
        let (mut before, mut count): (Option<&[u8]>, _) = (None, 0);
        loop {
            let rest = env.iter().filter(|(name, _)| before.is_none_or(|before| *name > before));
            // Of several with one name, the last.
            let next = rest.reduce(|one, other| if other.0 <= one.0 { other } else { one });
            let Some((name, value)) = next else { break };
            input.text(name);
            input.flag(value.is_some());
            input.text(value.unwrap_or_default());
            (before, count) = (Some(*name), count + 1);
        }
        // Unambiguous, because this list is the last field.
        input.count(count);
        let hash = input.0.finalize();
        let nibbles = hash.iter().take(BYTES).flat_map(|byte| [byte >> 4, byte & 15]);
        nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
    }
}

/// Every text starts with its length and every list has its count, so that no two inputs are equal by concatenation.
struct Input(Sha256);

impl Input {
    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_le_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.0.update([u8::from(flag)]);
    }

    fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.0.update(text);
    }
}

/// A command with a separator is a path, which is relative to `dir`; one without is a name, which `PATH` resolves. Of a path,
/// `.` and repeated separators say nothing.
fn absolute<'a>(command: &'a [u8], dir: Option<&Path>) -> Cow<'a, [u8]> {
    if !command.contains(&b'/') {
        return command.into();
    }
    let path = dir.unwrap_or(Path::new("")).join(OsStr::from_bytes(command));
    path.components().collect::<PathBuf>().into_os_string().into_vec().into()
}

#[cfg(test)]
mod tests;
