//! What `credbroker setup` would do here. Changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    manifest::Manifest,
    pages::{PagePlaces, completions, man_pages},
    start::Start,
    units::units,
};
use crate::cli::{files, kubeconfig};
use credbroker_plugin::Environment;

/// Everything that is done, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    /// The directory of credbroker in the home of the user.
    pub(super) own: PathBuf,
    /// The configuration, and the kubeconfigs that it must name; none: there is nothing to serve.
    pub(super) config: PathBuf,
    pub(super) kubeconfigs: Vec<PathBuf>,
    pub(super) start: Start,
    /// Units, and completions and man pages, with their contents.
    pub(super) unit_files: Vec<(PathBuf, String)>,
    pub(super) pages: Vec<(PathBuf, String)>,
    /// Files among them that another program wrote; they stay.
    pub(super) foreign: Vec<PathBuf>,
    /// The copy of the kubeconfig.
    pub(super) copy: PathBuf,
}

impl Plan {
    pub(super) fn of(
        environment: &Environment,
        program: &Path,
        with_systemd: bool,
        manifest: &Manifest,
    ) -> anyhow::Result<Self> {
        let home = environment.set("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.context("HOME is not set, so there is no place for the files; set it")?;
        let base = |variable: &str, default: &str| {
            environment.base_directory(variable, default).unwrap_or_else(|| home.join(default))
        };
        let (config_home, data) = (base("XDG_CONFIG_HOME", ".config"), base("XDG_DATA_HOME", ".local/share"));
        let own = config_home.join("credbroker");
        let config = own.join("config.yaml");
        let kubeconfigs = kubeconfig::originals_with_plugins(environment)?;
        let has_config = !kubeconfigs.is_empty() || config.exists();
        let state = base("XDG_STATE_HOME", ".local/state");
        let mut start = Start::of(environment, program, &state, with_systemd)?;
        let mut unit_files = Vec::new();
        if matches!(start, Start::Units) {
            let name = program.to_str().context("the path of this program is not UTF-8")?;
            let dir = home.join(".config/systemd/user");
            let units = units(name, has_config.then_some(config.as_path()));
            unit_files.extend(units.map(|(name, text)| (dir.join(name), text)));
        }
        let places = PagePlaces { data: &data, config: &config_home };
        let mut pages = [completions(places), man_pages(places)].concat();
        let is_foreign = |(path, _): &mut (PathBuf, String)| !manifest.may_write(path);
        let foreign = unit_files.extract_if(.., is_foreign).chain(pages.extract_if(.., is_foreign));
        let mut foreign: Vec<_> = foreign.map(|(path, _)| path).collect();
        if let Start::OnDemand(mark, _) = &start
            && !manifest.may_write(mark)
        {
            foreign.push(mark.clone());
            start = Start::ByHand("setup did not write the file that says what credbroker-exec starts");
        }
        let copy = home.join(".kube/broker");
        anyhow::ensure!(
            kubeconfigs.is_empty() || kubeconfig::is_place_for_copy(&copy),
            "{} was not written by credbroker, and is the place for its copy of your kubeconfig; move it away, then run setup again",
            copy.display()
        );
        let plan = Self { own, config, kubeconfigs, start, unit_files, pages, foreign, copy };
        plan.directories().into_iter().try_for_each(files::check_directory)?;
        Ok(plan)
    }

    /// Where files will be written.
    fn directories(&self) -> BTreeSet<&Path> {
        let started = match &self.start {
            Start::OnDemand(mark, recorded) => [Some(mark), Some(&recorded.log)],
            Start::Units | Start::ByHand(_) => [None, None],
        };
        let files = self.unit_files.iter().chain(&self.pages).map(|(path, _)| path);
        let copy = (!self.kubeconfigs.is_empty()).then_some(&self.copy);
        let above = files.chain(copy).chain(started.into_iter().flatten()).filter_map(|path| path.parent());
        above.chain([self.own.as_path()]).collect()
    }

    /// For a person, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let list = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        if !self.kubeconfigs.is_empty() {
            let config = self.config.display();
            lines.push(format!("{config}: the broker serves the exec users of {}", list(&self.kubeconfigs)));
        }
        match &self.start {
            Start::Units => {
                let files: Vec<_> = self.unit_files.iter().map(|(path, _)| path.clone()).collect();
                lines.extend((!files.is_empty()).then(|| format!("{}: user units of systemd", list(&files))));
                lines.push(
                    "systemctl --user enable --now credbroker.socket: the first client starts the broker"
                        .to_owned(),
                );
            }
            Start::OnDemand(path, mark) => lines.push(format!(
                "{}: without systemd, credbroker-exec starts {} if no broker runs; it logs to {}",
                path.display(),
                mark.program.display(),
                mark.log.display()
            )),
            Start::ByHand(why) => {
                lines.push(format!("(start the broker yourself with `credbroker serve`: {why})"));
            }
        }
        if !self.kubeconfigs.is_empty() {
            lines.push(format!("{}: a copy of your kubeconfig that uses the broker", self.copy.display()));
        }
        let mut directories: BTreeMap<&Path, usize> = BTreeMap::new();
        for directory in self.pages.iter().filter_map(|(path, _)| path.parent()) {
            *directories.entry(directory).or_default() += 1;
        }
        for (directory, count) in directories {
            let files = if count == 1 { "file" } else { "files" };
            lines.push(format!("{}: {count} {files} for completion and man", directory.display()));
        }
        lines.extend(
            self.foreign
                .iter()
                .map(|path| format!("({} was not written by setup, and stays as it is)", path.display())),
        );
        lines
    }
}
