use super::*;

#[test]
fn each_finding_is_a_line_with_its_remedy_below_and_the_first_error_decides() {
    let mut findings = Findings::default();
    findings.or("socket", GOOD, || "/run/x.sock".to_owned());
    findings.add("clock", WARNING, "it is not synchronised", "start a time service");
    findings.or("clock", GOOD, || "synchronised".to_owned());
    assert_eq!(findings.exit_code(), 0);
    findings.add("kubeconfig", BAD_CONFIG, "\x1b[31mbroken\n", "repair it");
    findings.add("plugins", BAD, "missing", "");
    assert_eq!(findings.exit_code(), 78);
    insta::assert_snapshot!(findings.text(), @r"
    ok       socket         /run/x.sock
    warning  clock          it is not synchronised
                            -> start a time service
    error    kubeconfig     U+001B[31mbroken
                            -> repair it
    error    plugins        missing
    ");
    let document = findings.document();
    assert_eq!(
        (&document["findings"][1]["level"], &document["findings"][3]["remedy"]),
        (&json!("warning"), &json!(null))
    );
}
