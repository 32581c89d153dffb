use crate::tests::{HEAD, Home, stanza};

fn config(rest: &str) -> Home {
    let (one, two, three) = (stanza("one"), stanza("two"), stanza("three"));
    Home::new(&format!(
        "{HEAD}providers:\n- {{name: one, issuer: idp, {one}}}\n- {{name: two, issuer: idp, {two}}}\n- {{name: three, {three}}}\n{rest}"
    ))
}

/// Each provider's issuer: name, runs in a second, runs at a time.
fn budgets(home: &Home) -> Vec<String> {
    let loaded = home.load().unwrap();
    let shown = loaded.config.providers.iter().map(|provider| {
        let issuer = &provider.issuer;
        format!("{}: {} {} {}", provider.name, issuer.name, issuer.runs_per_second, issuer.concurrency)
    });
    shown.collect()
}

#[test]
fn a_provider_is_its_own_issuer_unless_it_names_one() {
    assert_eq!(budgets(&config("")), ["one: idp 10 4", "three: three 10 4", "two: idp 10 4"]);
}

#[test]
fn a_section_sets_the_budget_of_an_issuer() {
    let home = config("issuers:\n- {name: idp, runsPerSecond: 50}\n- {name: three, concurrency: 1}\n");
    assert_eq!(budgets(&home), ["one: idp 50 4", "three: three 10 1", "two: idp 50 4"]);
    assert_eq!(home.warnings(), "");
}

#[test]
fn the_users_of_a_kubeconfig_and_the_hub_have_issuers_too() {
    let home = config(
        "kubeconfigs: [~/kube]\nclusterProfiles: {kubeconfig: ~/kube}\nissuers: [{name: user, runsPerSecond: 1}, {name: (hub), concurrency: 2}]\n",
    );
    let exec = "{apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}";
    home.write("kube", &format!("users: [{{name: user, user: {{exec: {exec}}}}}]\nclusters: [{{name: c, cluster: {{server: \"https://hub\"}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: user}}}}]\ncurrent-context: x\n"));
    assert_eq!(budgets(&home)[3], "user: user 1 4");
    let hub = home.load().unwrap().config.cluster_profiles.unwrap();
    let issuer = &hub.plugin().unwrap().issuer;
    assert_eq!((&*issuer.name, issuer.concurrency.get()), ("(hub)", 2));
    assert_eq!(home.warnings(), "");
}

#[test]
fn users_of_the_same_name_share_an_issuer_only_if_a_section_names_it() {
    let with = |rest: &str| {
        let home = config(&format!("kubeconfigs: [~/one, ~/two]\n{rest}"));
        for file in ["one", "two"] {
            let exec = "{apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}";
            home.write(file, &format!("users: [{{name: rel, user: {{exec: {exec}}}}}]\n"));
        }
        let issuers = budgets(&home);
        let mut issuers: Vec<_> = issuers.iter().filter_map(|line| line.strip_prefix("rel: ")).collect();
        issuers.sort_unstable();
        (home.shown(&issuers.join(", ")), home.warnings())
    };
    assert_eq!(with(""), ("rel (~/one) 10 4, rel (~/two) 10 4".into(), String::new()));
    let section = "issuers: [{name: rel, runsPerSecond: 2}]\n";
    assert_eq!(with(section), ("rel 2 4, rel 2 4".into(), String::new()));
}

#[test]
fn what_is_wrong_with_a_section_is_reported() {
    let home = config(
        "issuers:\n- {name: idp}\n- {name: idp, concurrency: 2}\n- {runsPerSecond: 0}\n- {name: \"\", rate: 5}\n- idp\n",
    );
    insta::assert_snapshot!(home.problems(), @r"
~/.config/credbroker/config.yaml:9:3: issuers[1]: issuer `idp` is defined already at ~/.config/credbroker/config.yaml:8:3; remove one of them
~/.config/credbroker/config.yaml:10:3: issuers[2]: name must be specified: the `issuer` of a provider, or the name of a provider without one
~/.config/credbroker/config.yaml:10:19: issuers[2].runsPerSecond: must be a whole number from 1 to 1000000
~/.config/credbroker/config.yaml:11:10: issuers[3].name: must be a name: not empty, without control characters
~/.config/credbroker/config.yaml:11:14: issuers[3]: unknown key `rate`
~/.config/credbroker/config.yaml:12:3: issuers[4]: expected a map, found a string
");
    let home = Home::new(&format!(
        "{HEAD}providers:\n- {{name: p, issuer: \"\", {}}}\n- {{name: q, issuer: [x], {}}}\n",
        stanza("one"),
        stanza("two")
    ));
    insta::assert_snapshot!(home.problems(), @r"
~/.config/credbroker/config.yaml:4:21: providers[0].issuer: must be a name: not empty, without control characters
~/.config/credbroker/config.yaml:5:21: providers[1].issuer: expected a string, found a list
");
}

#[test]
fn a_section_that_no_provider_uses_is_suspicious() {
    let home = config("issuers: [{name: ipd}, {name: one}]\n");
    insta::assert_snapshot!(home.warnings(), @r"
~/.config/credbroker/config.yaml:7:11: issuers[0]: no provider has the issuer `ipd`, so this has no effect; did you mean `idp`?
~/.config/credbroker/config.yaml:7:24: issuers[1]: no provider has the issuer `one`, so this has no effect
");
}
