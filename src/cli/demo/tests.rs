use super::*;

#[test]
fn the_table_fits_80_columns() {
    let step = |what, calls, millis, remark: &str| DemoStep {
        what,
        calls,
        took: Duration::from_millis(millis),
        runs: 1,
        remark: remark.to_owned(),
    };
    let steps = [
        step("cold call", 1, 512, "the plugin ran"),
        step("50 shims in parallel", 50, 87, "from memory, all the same token"),
        step("refresh ahead of expiry", 0, 13_400, "5 s early; no caller waited"),
    ];
    let mut out = Vec::new();
    print(&steps, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text, @r"
    WHAT RAN                 CALLS  TOOK      RUNS
    cold call                1      512.0 ms  1     the plugin ran
    50 shims in parallel     50     87.0 ms   1     from memory, all the same token
    refresh ahead of expiry         13.4 s    1     5 s early; no caller waited

    51 calls, 3 plugin runs. Without a broker, each call runs the plugin, for
    half a second.
    Next: `credbroker serve &`, `credbroker kubeconfig wrap -o FILE`, and
    `KUBECONFIG=FILE kubectl get pods`.
    ");
}
