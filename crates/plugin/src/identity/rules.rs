//! Which files select the account of a plugin.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::aws;
use crate::{
    environment::Origin,
    provider::Provider,
    route::{Sent, reaches, run_value},
};

/// What in which files selects an account.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Rule {
    /// The whole file.
    File(PathBuf),
    /// A name in `file`, and the files of that name and of `names`: the name is between `around`.
    Named { file: PathBuf, default: &'static str, around: (PathBuf, &'static str), names: Vec<String> },
    /// AWS's `config` and `credentials`: the sections that the profiles use. `None`: the whole files.
    Aws([PathBuf; 2], Option<Vec<String>>),
}

impl Rule {
    /// Passes what selects the account to `put`.
    pub(super) fn select<C: AsRef<[u8]>>(
        &self,
        mut read: impl FnMut(&Path) -> C,
        mut put: impl FnMut(&[u8]),
    ) {
        match self {
            Self::File(file) => put(read(file).as_ref()),
            Self::Named { file, default, around: (before, after), names } => {
                let content = read(file);
                let name = str::from_utf8(content.as_ref()).unwrap_or_default().trim();
                let name = if name.is_empty() { default } else { name };
                put(name.as_bytes());
                for name in names.iter().map(String::as_str).chain([name]) {
                    if !name.is_empty() && name.len() <= 200 && !name.contains(['/', '\0']) {
                        let mut path = before.clone().into_os_string();
                        path.push(name);
                        path.push(after);
                        put(read(path.as_ref()).as_ref());
                    }
                }
            }
            Self::Aws(files, profiles) => {
                let contents = files.each_ref().map(|file| read(file));
                let texts = contents.each_ref().map(AsRef::as_ref);
                match profiles.as_ref().and_then(|profiles| aws::used(texts, profiles)) {
                    Some(lines) => lines.into_iter().for_each(|line| put(line.as_bytes())),
                    None => texts.into_iter().for_each(put),
                }
            }
        }
    }
}

/// The rules for a run of `provider` with these variables of a caller.
pub(super) fn rules(provider: &Provider, caller_env: &BTreeMap<String, String>) -> Vec<Rule> {
    let caller = Sent { env: caller_env, by_name: &[], origin: Origin::default() };
    let value = |name: &str| {
        let sent = caller_env.get(name).filter(|_| reaches(name, caller, provider)).map(OsStr::new);
        sent.or_else(|| run_value(name, provider)).filter(|value| !value.is_empty())
    };
    let home = value("HOME").map(Path::new);
    let place = |variable: &str, default: &str| {
        let set = value(variable).map(Path::new).map(|path| match (path.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        });
        // A relative path begins in the working directory of the run, where no such file is.
        set.or_else(|| Some(home?.join(default))).filter(|path| path.is_absolute())
    };
    // The values of an option and of variables.
    let chosen = |option: &str, variables: &[&str]| -> Vec<String> {
        let args =
            provider.args.iter().enumerate().filter_map(|(index, arg)| match arg.strip_prefix(option)? {
                "" => provider.args.get(index + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            });
        let variables = variables.iter().filter_map(|name| value(name)?.to_str());
        args.chain(variables).map(str::to_owned).collect()
    };
    let rule = match provider.command.program().unwrap_or_default() {
        "gcloud" | "gke-gcloud-auth-plugin" => place("CLOUDSDK_CONFIG", ".config/gcloud").map(|directory| {
            let around = (directory.join("configurations/config_"), "");
            let names = chosen("--configuration", &["CLOUDSDK_ACTIVE_CONFIG_NAME"]);
            Rule::Named { file: directory.join("active_config"), default: "default", around, names }
        }),
        // The file of a profile says who is logged in. Each login makes its profile the current one.
        "tsh" => place("TELEPORT_HOME", ".tsh").map(|directory| {
            let (file, around) = (directory.join("current-profile"), (directory.join(""), ".yaml"));
            Rule::Named { file, default: "", around, names: Vec::new() }
        }),
        "az" | "kubelogin" => place("AZURE_CONFIG_DIR", ".azure")
            .map(|directory| Rule::File(directory.join("azureProfile.json"))),
        "aws" | "aws-iam-authenticator" => {
            let config = place("AWS_CONFIG_FILE", ".aws/config");
            let files = config.zip(place("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"));
            let mut profiles = chosen("--profile", &["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
            if profiles.is_empty() {
                profiles.push("default".to_owned());
            }
            // The program accepts the beginning of an option.
            let is_short = |arg: &String| arg.starts_with("--p") && !arg.starts_with("--profile");
            let profiles = (!provider.args.iter().any(is_short)).then_some(profiles);
            files.map(|(config, credentials)| Rule::Aws([config, credentials], profiles))
        }
        _ => None,
    };
    provider.identity_files.iter().cloned().map(Rule::File).chain(rule).collect()
}
