//! `credbroker validate`.

use std::{io::Write, path::PathBuf};

use super::{
    console::{Console, EX_CONFIG},
    screen::counted,
};
use credbroker_config as config;

/// Check a configuration and print every problem with its file, line and column
///
/// Reads the files that `credbroker serve` would read, and runs no plugin. Exits with 78 if there is a problem. Warnings do
/// not change the exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker validate
  credbroker validate --config config.yaml")]
pub(super) struct ValidateArgs {
    /// Configuration file [default: the file that `credbroker serve` uses; without one, the exec users of KUBECONFIG or
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &ValidateArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let out = &mut *console.out;
    match config::load(args.config.as_deref(), console.environment) {
        Ok(loaded) => {
            warn(&loaded.warnings, out)?;
            let names = loaded.config.providers.names();
            let count = counted(names.len() as u64, "provider");
            writeln!(out, "{}: ok, {count}: {}", loaded.source, names.join(", "))?;
            Ok(0)
        }
        Err(error) => {
            warn(&error.warnings, out)?;
            writeln!(out, "{error}")?;
            Ok(EX_CONFIG)
        }
    }
}

fn warn(warnings: &[config::Problem], out: &mut dyn Write) -> std::io::Result<()> {
    warnings.iter().try_for_each(|warning| writeln!(out, "{}: warning: {}", warning.place(), warning.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::console::tests::console;
    use credbroker_plugin::Environment;

    fn validate(config: &str) -> (u8, String) {
        let dir = credbroker_test_support::private_directory();
        let path = dir.path().join("config.yaml");
        credbroker_test_support::private_file(&path, config);
        let mut out = Vec::new();
        let code = run(
            &ValidateArgs { config: Some(path) },
            &mut console(&Environment::default(), &mut out, &mut Vec::new()),
        )
        .unwrap();
        let shown = String::from_utf8(out).unwrap().replace(dir.path().to_str().unwrap(), "/etc/credbroker");
        (code, shown)
    }

    const CONFIG: &str = "apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
providers:
- name: eks
  execConfig: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [eks, get-token]}
";

    #[test]
    fn a_good_config_is_summarised_after_its_warnings() {
        let (code, shown) = validate(CONFIG);
        assert_eq!(code, 0);
        insta::assert_snapshot!(shown, @r#"
/etc/credbroker/config.yaml:4:3: warning: providers[0]: `aws` gets no variable like `AWS_*`, so it may not find its identity; add `passEnv: ["AWS_*"]`, or `callerEnv` if each caller has its own
/etc/credbroker/config.yaml: ok, 1 provider: eks
"#);
    }

    #[test]
    fn a_bad_config_is_exit_code_78_and_all_its_problems() {
        let (code, shown) = validate(&CONFIG.replace("command", "comand").replace("kind", "knid"));
        assert_eq!(code, 78);
        insta::assert_snapshot!(shown, @r"
/etc/credbroker/config.yaml:1:1: kind must be specified: `kind: BrokerConfig`
/etc/credbroker/config.yaml:2:1: unknown key `knid`, did you mean `kind`?
/etc/credbroker/config.yaml:5:15: providers[0].execConfig: command must be specified: the name or the path of the plugin
/etc/credbroker/config.yaml:5:66: providers[0].execConfig: unknown key `comand`, did you mean `command`?
");
    }
}
