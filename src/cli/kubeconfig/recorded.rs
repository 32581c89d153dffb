//! The plugins that the shim may run where no broker answers.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
};

use credbroker_config::Definitions;
use credbroker_exec::{original_line, originals};
use credbroker_plugin::{Command, Definition, Environment};
use credbroker_runner::find_in_path;

use crate::cli::files::{self, Locked, joined};

/// Where they are recorded; `None`: the user has no home.
pub(in crate::cli) fn file(environment: &Environment) -> Option<PathBuf> {
    let variable = |name| environment.set(name).map(Path::new);
    originals(variable("XDG_STATE_HOME"), variable("HOME"))
}

/// Records what the definitions run that `is_wanted` selects, and shows it. A plugin that is not installed is left out.
pub(super) fn record(
    definitions: &Definitions,
    is_wanted: impl Fn(&str, &Definition) -> bool,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(path) = file(environment) else { return Ok(()) };
    let search = environment.set("PATH").unwrap_or_default();
    let (mut lines, mut programs) = (Vec::new(), BTreeSet::new());
    for (name, definition) in &definitions.served {
        let command = definitions.commands.get(definition.digest());
        let command = command.filter(|_| !definition.is_outdated && is_wanted(name, definition));
        let program = command.and_then(|command| match command {
            Command::Path(path) => Some(path.clone()),
            Command::Name(name) => find_in_path(name, search),
        });
        let Some(program) = program else { continue };
        lines.extend(original_line(definition.digest(), &program).map(|line| (definition.digest(), line)));
        programs.insert(program);
    }
    if lines.is_empty() {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    files::check_directory(directory)?;
    files::private_directory(directory)?;
    let file = Locked::take(&path)?;
    let earlier = file.read_text()?.unwrap_or_default();
    let is_kept = |line: &&str| !lines.iter().any(|(digest, _)| line.starts_with(digest));
    let text: String = earlier.split_inclusive('\n').filter(is_kept).collect();
    file.write_private(&(text + &lines.iter().map(|(_, line)| line.as_str()).collect::<String>()))?;
    let programs: Vec<_> = programs.into_iter().collect();
    writeln!(
        out,
        "Where no broker answers, clients run the plugins themselves: {}",
        joined(&programs, ", ")
    )?;
    Ok(())
}
