//! The environment of a plugin run.

use super::*;
use credbroker_credential::{ApiVersion, exec_info};

#[tokio::test]
async fn a_plugin_leads_its_own_process_group_and_has_no_input() {
    let script = "read -r _ _ _ _ group _ < /proc/self/stat; [ \"$group\" = $$ ] && echo leader
        readlink /proc/$$/fd/0; wc -c";
    let (stdout, _) = Plugin::script(script).run().await;
    assert_eq!(stdout.unwrap(), "leader\n/dev/null\n0\n");
}

#[tokio::test]
async fn the_working_directory_is_private_and_empty_and_is_removed_after_the_run() {
    let script = "ls -A; stat -c %a . ..; pwd; mkdir -p left/behind; echo x > left/behind/file";
    let (stdout, started) = Plugin::script(script).run().await;
    let stdout = stdout.unwrap();
    let path = stdout.strip_prefix("700\n700\n").unwrap();
    assert!(path.starts_with(started.file("runs").to_str().unwrap()), "{path}");
}

#[tokio::test]
async fn arguments_are_passed_verbatim() {
    let args = ["--a=b c", "$HOME", "*", "", "'\"", "~/x", "äöü"];
    let mut plugin = Plugin::script("printf '%s\\n' \"$@\"");
    plugin.provider.args = args.map(str::to_owned).to_vec();
    let (stdout, _) = plugin.run().await;
    assert_eq!(stdout.unwrap().lines().collect::<Vec<_>>(), args);
}

#[tokio::test]
async fn the_environment_is_the_computed_one_and_one_variable_of_the_runner() {
    let mut plugin = Plugin::program(private_directory(), "/usr/bin/env".into());
    plugin.provider.args = vec!["--null".into()];
    plugin.provider.env =
        [("FROM_STANZA", "a b\nc=d"), ("CREDBROKER_SOCKET", "/nowhere"), ("KUBERNETES_EXEC_INFO", "forged")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
    let more = [("EMPTY".into(), "".into()), ("LANG".into(), "C".into())];
    Arc::make_mut(&mut plugin.provider.inherited).0.extend(more);
    let (stdout, _) = plugin.run().await;
    let stdout = stdout.unwrap();
    let variables: Vec<_> = stdout.split_terminator('\0').collect();
    let [empty, stanza, info, lang, path] = variables[..] else { panic!("{variables:?}") };
    assert_eq!(format!("KUBERNETES_EXEC_INFO={}", exec_info(ApiVersion::V1, None, false).unwrap()), info);
    let rest = [empty, stanza, lang, path];
    assert_eq!(rest, ["EMPTY=", "FROM_STANZA=a b\nc=d", "LANG=C", "PATH=/usr/local/bin:/usr/bin:/bin"]);
}
