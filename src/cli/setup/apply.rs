//! Does what is planned.

use std::{io::Write, path::Path};

use anyhow::Context as _;
use credbroker_client::safety::shell_word;

use super::{manifest::Manifest, plan::Plan, start::Start};
use crate::cli::{
    files,
    kubeconfig::{self, BrokerConfig},
    programs,
};
use credbroker_plugin::Environment;

/// Does what is planned.
pub(super) fn apply(
    plan: &Plan,
    manifest: &mut Manifest,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    configure(plan, manifest, environment)?;
    let mut files: Vec<_> = plan.unit_files.iter().chain(&plan.pages).cloned().collect();
    if let Start::OnDemand(path, mark) = &plan.start {
        files.push((path.clone(), serde_json::to_string_pretty(mark)?));
        manifest.on_demand = Some(mark.program.clone());
        mark.log.parent().map(files::private_directory).transpose()?;
    }
    // Before the files are there, so that an interrupted setup can be undone or continued.
    for (path, text) in &files {
        manifest.will_write(path, text);
    }
    manifest.units |= matches!(plan.start, Start::Units);
    manifest.write(&plan.own)?;
    for (path, text) in &files {
        files::shared_directory(path.parent().unwrap_or(Path::new("/")))?;
        files::write_private(path, text)?;
        manifest.has_written(path, text);
    }
    manifest.write(&plan.own)?;
    if matches!(plan.start, Start::Units) {
        systemctl(&["daemon-reload"], environment)?;
        systemctl(&["enable", "--now", "credbroker.socket"], environment)?;
    }
    if plan.kubeconfigs.is_empty() {
        writeln!(
            out,
            "No user of your kubeconfig runs an exec plugin. When one does, run `credbroker setup` again."
        )?;
        return Ok(());
    }
    manifest.copy = Some(plan.copy.clone());
    manifest.write(&plan.own)?;
    if let Some(dir) = plan.copy.parent() {
        files::private_directory(dir)?;
    }
    let code = kubeconfig::wrap_to(&plan.copy, environment, shim, out)?;
    anyhow::ensure!(code == 0, "the copy of your kubeconfig was not written; see the message above");
    writeln!(
        out,
        "\nAdd this line to the profile of your shell:\n\n  export KUBECONFIG={}",
        shell_word(&plan.copy)
    )?;
    Ok(())
}

/// Names the kubeconfigs in the configuration of the broker.
fn configure(plan: &Plan, manifest: &mut Manifest, environment: &Environment) -> anyhow::Result<()> {
    if plan.kubeconfigs.is_empty() {
        return Ok(());
    }
    let exists = plan.config.try_exists().unwrap_or(true);
    let config = BrokerConfig { path: plan.config.clone(), exists };
    let missing = config.missing(&plan.kubeconfigs, environment)?;
    let is_ours = manifest.may_write(&plan.config);
    config.add(&plan.kubeconfigs, environment, |text| {
        if is_ours {
            manifest.will_write(&plan.config, text);
        } else {
            let (_, added) = manifest.added.get_or_insert_with(|| (plan.config.clone(), Vec::new()));
            added.extend(missing);
        }
        manifest.write(&plan.own)
    })?;
    Ok(())
}

/// Runs `systemctl --user`.
pub(super) fn systemctl(args: &[&str], environment: &Environment) -> anyhow::Result<()> {
    let shown = args.join(" ");
    let ran = programs::systemctl(args, environment);
    let ran = ran
        .with_context(|| format!("`systemctl --user {shown}` did not run or did not end; run it yourself"))?;
    anyhow::ensure!(ran.succeeded, "`systemctl --user {shown}` failed: {}", ran.stderr.trim());
    Ok(())
}
