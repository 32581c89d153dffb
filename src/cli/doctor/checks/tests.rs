use super::*;

#[test]
fn each_finding_is_a_line_with_its_remedy_below_and_the_first_error_decides() {
    let mut findings = vec![
        Finding::ok("socket", "/run/x.sock"),
        Finding::warning("clock", "it is not synchronised", "start a time service"),
    ];
    assert_eq!(exit_code(&findings), 0);
    findings.push(Finding::error("kubeconfig", 78, "\x1b[31mbroken\n").remedy("repair it"));
    findings.push(Finding::error("plugins", 1, "missing"));
    assert_eq!(exit_code(&findings), 78);
    let mut out = Vec::new();
    print(&findings, &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
    ok       socket         /run/x.sock
    warning  clock          it is not synchronised
                            -> start a time service
    error    kubeconfig     U+001B[31mbroken
                            -> repair it
    error    plugins        missing
    ");
    assert_eq!(findings_json(&findings)["findings"][1]["level"], "warning");
}
