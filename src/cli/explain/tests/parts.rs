use super::{super::*, held};

fn shown(group: &[CredentialState]) -> Vec<String> {
    differing(group).iter().map(|(kind, name)| format!("{kind} {name}")).collect()
}

#[test]
fn a_part_differs_by_its_value_by_its_origin_and_by_its_absence() {
    use credbroker_proto::v1alpha1::id_part::{
        Kind::{Argument, Variable},
        Origin::{CallerEnv, PassEnv, Stanza},
    };
    let base = [(Argument, "2", Stanza, 1), (Variable, "A", PassEnv, 1), (Variable, "B", CallerEnv, 1)];
    let other = |at: usize, change| {
        let mut parts = base;
        parts[at] = change;
        [held("p", &base), held("p", &parts)]
    };
    assert_eq!(shown(&[held("p", &base), held("p", &base)]), [""; 0]);
    assert_eq!(shown(&other(0, (Argument, "2", Stanza, 2))), ["argument 2"]);
    assert_eq!(shown(&other(1, (Variable, "A", CallerEnv, 1))), ["variable A"]);
    assert_eq!(shown(&other(2, (Variable, "C", CallerEnv, 1))), ["variable B", "variable C"]);
    assert_eq!(shown(&[held("p", &base)]), [""; 0], "one differs from no other");
    assert_eq!(shown(&[held("p", &base[..2]), held("p", &base)]), ["variable B"]);
}
