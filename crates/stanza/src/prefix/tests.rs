use proptest::{collection::vec, option, prelude::*};

use super::*;

fn parsed(args: &[&str]) -> Result<Option<(Prefix, Vec<String>)>, PrefixError> {
    let found = Prefix::parse(args)?;
    Ok(found.map(|(prefix, original)| (prefix, original.iter().map(|arg| (*arg).to_owned()).collect())))
}

#[test]
fn a_prefix_ends_at_the_first_separator() {
    let args =
        ["--provider", "prod", "--api-version=v1", "--cluster-info", "--", "aws", "--", "--provider", "x"];
    let (prefix, original) = parsed(&args).unwrap().unwrap();
    let expected =
        Prefix { provider: "prod".into(), api_version: "v1".into(), cluster_info: true, ..Prefix::default() };
    assert_eq!(prefix, expected);
    assert_eq!(original, ["aws", "--", "--provider", "x"]);
}

#[test]
fn the_shim_of_a_pod_has_no_original() {
    assert_eq!(parsed(&["--cluster-profile", "fleet/paris"]), Ok(None));
    assert_eq!(parsed(&["--provider", "prod", "--unknown"]), Ok(None));
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let refused = |args: &[&str]| parsed(args).unwrap_err().to_string();
    for (args, error) in [
        (&["--provider", "p", "--api-version", "v1", "--"] as &[_], "no command follows `--`"),
        (&["--provider", "p", "--", "aws"], "--api-version must be given once"),
        (&["--api-version", "v1", "--", "aws"], "--provider must be given once"),
        (&["--provider", "p", "--provider", "q", "--", "aws"], "--provider must be given once"),
        (&["--provider", "--", "aws"], "--provider has no value"),
        (&["--definition", "x", "--", "aws"], "`--definition` is not a flag that comes before a command"),
        (&["--was", "key", "--", "aws"], "--was key has no value"),
    ] {
        assert_eq!(refused(args), error, "{args:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        (provider, api_version, dir) in (".*", "v1(beta1)?", option::of("/[a-z -]*")),
        env in vec("[A-Z_]+", 0..4),
        (is_subcommand, cluster_info) in any::<(bool, bool)>(),
        changed in vec(("[a-zA-Z]+", "[a-z=]*"), 0..3),
        others in vec((prop::sample::select(&OTHERS[..]), ".*"), 0..3),
        original in vec(".*", 1..4),
    ) {
        prop_assume!([&provider].into_iter().chain(others.iter().map(|(_, value)| value)).all(|text| text != SEPARATOR));
        let others = others.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let prefix = Prefix { is_subcommand, provider, api_version, dir, env, cluster_info, changed, others };
        let args = [prefix.to_args(), original.clone()].concat();
        prop_assert_eq!(Prefix::parse(&args), Ok(Some((prefix, original.as_slice()))));
    }
}
