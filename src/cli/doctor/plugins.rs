//! Whether the plugins can run, what selects their accounts, and whether the broker finds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use credbroker_client::safety::shell_word;
use credbroker_config::Loaded;
use credbroker_credential::text::{listed, shown, shown_path};
use credbroker_plugin::{Command, Environment, IdentityFiles};
use credbroker_runner::{find_in_path, read_selector};

use super::{
    Checks,
    findings::{BAD, GOOD, NOTE, WARNING},
    users::few,
};
use crate::cli::{programs, recorded};

impl Checks<'_> {
    pub(super) fn plugins(&mut self) {
        const CHECK: &str = "plugins";
        let providers = self.running.as_ref().map(|running| running.providers.as_slice());
        for failure in providers.into_iter().flatten().filter_map(|provider| provider.failure.as_ref()) {
            self.findings.add(CHECK, BAD, &failure.message, "");
        }
        let problems = self.loaded.as_ref().map(|loaded| plugin_problems(loaded, self.environment));
        for (text, remedy, is_missing) in problems.into_iter().flatten() {
            // A broker that runs has said so, and may find what this shell does not.
            if !is_missing || providers.is_none() {
                self.findings.add(CHECK, BAD, text, remedy);
            }
        }
        if let Some(providers) = providers {
            let text = || format!("the plugins of all {} providers can run", providers.len());
            self.findings.or(CHECK, GOOD, text);
        }
    }

    /// Which files select the accounts of the plugins, as far as this shell's variables do.
    pub(super) fn account_files(&mut self) {
        const CHECK: &str = "account files";
        let (Ok(loaded), own) = (&self.loaded, &self.environment.0) else { return };
        let own =
            own.iter().filter_map(|(name, value)| Some((name.to_str()?.into(), value.to_str()?.into())));
        let (own, mut files) = (own.collect(), BTreeSet::new());
        for known in loaded.config.providers.iter().filter_map(|provider| IdentityFiles::of(provider, &own)) {
            known.judge(|file| read_selector(file).unwrap_or_default(), Duration::default);
            files.extend(known.files().iter().map(|file| shown_path(file)));
        }
        if !files.is_empty() {
            let list = listed(&files.into_iter().collect::<Vec<_>>());
            let text = format!("after you change these files, the plugins that use them run again: {list}");
            self.findings.add(CHECK, GOOD, text, "");
        }
    }

    /// Whether the broker that the shim or systemd starts finds what a shell finds.
    pub(super) fn path(&mut self) {
        const CHECK: &str = "PATH";
        let of_systemd = || {
            let shown =
                programs::systemctl(&["show-environment"], self.environment).filter(|ran| ran.succeeded)?;
            shown.stdout.lines().find_map(|line| line.strip_prefix("PATH=").map(str::to_owned))
        };
        let Some(path) = recorded::path(self.environment).or_else(of_systemd) else {
            let text = "neither `credbroker setup` nor systemd specifies which PATH the broker gets";
            return self.findings.add(CHECK, NOTE, text, "");
        };
        let own = self.environment.get("PATH").unwrap_or_default();
        let providers = self.loaded.iter().flat_map(|loaded| loaded.config.providers.iter());
        let commands = providers.filter_map(|provider| match &provider.command {
            Command::Name(name) => Some(name.clone()),
            Command::Path(_) => None,
        });
        let elsewhere = |name: &String| {
            let found = find_in_path(name, own);
            found.is_some() && found != find_in_path(name, path.as_ref())
        };
        let names: BTreeSet<String> = commands.filter(elsewhere).collect();
        if !names.is_empty() {
            let text = format!("the broker does not find {} where your shell does", few(names));
            self.findings.add(CHECK, WARNING, text, "run `credbroker setup` in this shell");
        }
        self.findings.or(CHECK, GOOD, || "the broker finds the plugins where your shell does".to_owned());
    }
}

/// The plugins that cannot run with this environment: what is wrong, what to do, and whether the plugin is not there.
pub(in crate::cli) fn plugin_problems(
    loaded: &Loaded,
    environment: &Environment,
) -> Vec<(String, String, bool)> {
    let mut users = BTreeMap::<_, (_, BTreeSet<_>)>::new();
    for provider in loaded.config.providers.iter() {
        let of_command = users.entry(provider.command.to_string());
        of_command.or_insert((&provider.command, BTreeSet::new())).1.insert(shown(&provider.name));
    }
    let problem = |(shown, (command, names)): (String, (&Command, BTreeSet<String>))| {
        let names = few(names);
        let Some(path) = programs::of_plugin(command, environment) else {
            let text = format!("{shown} is not installed; providers that need it: {names}");
            return Some((text, "install it, or correct the command".to_owned(), true));
        };
        let why = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).err()?;
        let text = format!("{} cannot be executed: {why}; providers that need it: {names}", path.display());
        Some((text, format!("run `chmod +x {}`", shell_word(&path)), false))
    };
    users.into_iter().filter_map(problem).collect()
}
