//! Variables that may select an identity, although no list names them.

use std::sync::LazyLock;

use credbroker_proto::Globs;

use credbroker_plugin::{Environment, identity_variables, may_select_identity};

/// Of terminals and desktops, which set them for every program.
const UNRELATED: [&str; 3] = ["ITERM_PROFILE", "KONSOLE_PROFILE_NAME", "XDG_ACTIVATION_TOKEN"];

/// The variables of the broker's own environment (`broker`) that a plugin receives for every caller, and that look
/// as if they selected an identity. Left out is what `pass_env` names without a `*`: that was chosen.
pub(super) fn unlisted(broker: &Environment, pass_env: &Globs, caller_env: &Globs) -> Vec<String> {
    static LISTED: LazyLock<Globs> = LazyLock::new(identity_variables);
    let is_unlisted = |name: &str| {
        may_select_identity(name)
            && !LISTED.matches(name)
            && !pass_env.lists(name)
            && !UNRELATED.contains(&name)
    };
    let inherited = broker.inherited(pass_env, caller_env);
    let names = inherited.0.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name.to_str());
    names.flatten().filter(|name| is_unlisted(name)).map(str::to_owned).collect()
}

/// `A`, `B` and `C` as the items of a YAML list: a name that YAML would read otherwise is not one of a variable.
pub(super) fn list(names: &[String]) -> String {
    format!("[{}]", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pass_env: &[&str], caller_env: &[&str]) -> Vec<String> {
        let broker = [
            "SCW_PROFILE",
            "GITHUB_TOKEN",
            "ACME_ACCOUNT_ID",
            "my_context",
            "AWS_PROFILE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "CREDBROKER_TOKEN",
            "EDITOR",
            "PATH",
        ];
        let broker: Environment =
            broker.map(|name| (name, "x")).into_iter().chain([("EMPTY_TOKEN", "")]).collect();
        unlisted(&broker, &Globs::new(pass_env), &Globs::new(caller_env))
    }

    #[test]
    fn what_may_select_an_identity_and_reaches_a_plugin_is_named() {
        let all = ["ACME_ACCOUNT_ID", "GITHUB_TOKEN", "SCW_PROFILE", "my_context"];
        assert_eq!(names(&["*"], &["AWS_*"]), all);
        assert_eq!(names(&["*"], &["SCW_PROFILE", "GITHUB_TOKEN"]), ["ACME_ACCOUNT_ID", "my_context"]);
        assert_eq!(names(&["SCW_*"], &[]), ["SCW_PROFILE"]);
        assert_eq!(names(&["SCW_PROFILE", "AWS_*"], &[]), [""; 0], "it is named, or on the list");
        assert_eq!(names(&[], &[]), [""; 0]);
    }
}
