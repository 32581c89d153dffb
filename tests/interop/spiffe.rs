//! `examples/plugins/spiffe-jwt` as its README configures it, and a `spire-agent` that prints what the real one does.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use credbroker_test_support::{
    Accepts, ApiServer, Broker, FakePlugin, Kubeconfig, private_directory, sample_config,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_credbroker");

/// 2100-01-01T00:00:00Z.
const END: u64 = 4_102_444_800;

#[test]
fn the_spiffe_plugin_asks_for_the_audience_of_the_cluster() {
    let agent = Agent::with(&Agent::says(&svid(&json!(END))));
    let answer = agent.ask(&json!({"server": "https://eu-1:6443", "config": {"audience": "fleet/eu-1"}}));
    let status = &credential(&answer)["status"];
    assert_eq!(status["token"], svid(&json!(END)));
    // The broker sends clients an expiry that is a little earlier.
    let end = status["expirationTimestamp"].as_str().unwrap();
    assert!(end.starts_with("2099-12-31T23:5"), "{end}");
    let socket = "-socketPath=/run/spire/agent.sock";
    assert_eq!(agent.asked(), [format!("api fetch jwt -audience=fleet/eu-1 {socket} -timeout 10s")]);
}

/// A caller names the profile alone: audience and address come from the hub.
#[test]
fn a_cluster_profile_chooses_the_audience() {
    let agent = Agent::with(&Agent::says(&svid(&json!(END))));
    let hub = ApiServer::start(Accepts::Tokens);
    hub.accept_token("hub");
    let kubeconfig = agent.directory.path().join("hub");
    Kubeconfig::new()
        .cluster_of(&hub, "hub")
        .user("hub", &json!({"token": "hub"}))
        .context("hub", "hub", "hub")
        .write(&kubeconfig);
    let extension =
        json!({"name": "client.authentication.k8s.io/exec", "extension": {"audience": "fleet/eu-1"}});
    for (name, extensions) in [("eu-1", json!([extension])), ("eu-2", json!([]))] {
        let cluster = json!({"server": format!("https://{name}:6443"), "extensions": extensions});
        let profile = json!({
            "spec": {"clusterManager": {"name": "manager"}},
            "status": {"accessProviders": [{"name": "spiffe", "cluster": cluster}]},
        });
        hub.apply_cluster_profile("fleet", name, profile);
    }
    let fleet = format!("clusterProfiles: {{kubeconfig: {}}}\n", kubeconfig.display());
    let broker = agent.broker(&(sample_config("spiffe") + &fleet));
    for _ in 0..2 {
        for name in ["fleet/eu-1", "fleet/eu-2"] {
            let answer = shim(&broker, &["--cluster-profile", name]).output().unwrap();
            assert_eq!(credential(&answer)["status"]["token"], svid(&json!(END)));
        }
    }
    let asked = |audience| {
        format!("api fetch jwt -audience={audience} -socketPath=/run/spire/agent.sock -timeout 10s")
    };
    assert_eq!(agent.asked(), ["fleet/eu-1", "https://eu-2:6443"].map(asked), "one run for each");
}

#[test]
fn without_an_audience_the_clusters_address_is_it() {
    // The same name elsewhere is not the audience, and neither is a value that is not a string.
    let configs = [
        json!(null),
        json!({}),
        json!({"audience": null}),
        json!({"audience": 1}),
        json!({"other": {"audience": "no"}, "list": ["audience", {"audience": "no"}]}),
        json!({"x\",\"audience": "no"}),
        json!({"\"audience": "no", "y": "\"audience\":\"no\""}),
        json!(["config", {"audience": "no"}]),
    ];
    for config in configs {
        let agent = Agent::with(&Agent::says(&svid(&json!(END))));
        credential(&agent.ask(&json!({"server": "https://eu-1:6443", "config": config})));
        let asked = agent.asked();
        assert!(asked[0].starts_with("api fetch jwt -audience=https://eu-1:6443 -"), "{config}: {asked:?}");
    }
}

#[test]
fn an_audience_that_is_none_is_refused_before_the_agent_is_asked() {
    for audience in ["a,b", "a b", "a\nb", "a\\b", "a\"b", "$(id)"] {
        let agent = Agent::with(&Agent::says(&svid(&json!(END))));
        let complaint =
            failure(&agent.ask(&json!({"server": "https://eu-1", "config": {"audience": audience}})));
        assert!(complaint.contains("PLUGIN_EXIT"), "{audience:?}: {complaint}");
        assert!(complaint.contains("the audience is not one word"), "{audience:?}: {complaint}");
        assert_eq!(agent.asked(), [""; 0], "{audience:?}");
    }
}

#[test]
fn what_the_agent_says_is_in_the_answer() {
    let agent = Agent::with(
        "echo 'rpc error: code = PermissionDenied desc = no identity issued' >&2\nprintf 'secret-'\nexit 1\n",
    );
    let complaint = failure(&agent.ask(&json!({"server": "https://eu-1"})));
    assert!(complaint.contains("PLUGIN_EXIT") && complaint.contains("no identity issued"), "{complaint}");
    assert!(complaint.contains("spire-agent returned no JWT-SVID"), "{complaint}");
    assert!(!complaint.contains("secret-"), "{complaint}");

    for said in ["", "token(spiffe://x/y):\n", "token(spiffe://x/y):\n\tsecret-", "token(x):\n\tse.cr.et\"-"]
    {
        let agent = Agent::with(&format!("cat <<'EOF'\n{said}\nEOF\n"));
        let complaint = failure(&agent.ask(&json!({"server": "https://eu-1"})));
        assert!(complaint.contains("PLUGIN_EXIT") && complaint.contains("printed"), "{said:?}: {complaint}");
        assert!(!complaint.contains("secret-"), "{complaint}");
    }
}

/// For a client without a broker, which looks for the end nowhere else.
#[test]
fn the_end_is_the_tokens_own_or_left_out() {
    let ends = [
        (json!(END), json!("2100-01-01T00:00:00Z")),
        (json!(1), json!("1970-01-01T00:00:01Z")),
        (json!("4102444800"), Value::Null),
        (json!(4_102_444_800.5), Value::Null),
        (json!(999_999_999_999_u64), Value::Null),
        (json!(-1), Value::Null),
        (json!({"exp": 1}), Value::Null),
    ];
    for (exp, expected) in ends {
        let agent = Agent::with(&Agent::says(&svid(&exp)));
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/plugins/spiffe-jwt");
        let output = Command::new(plugin)
            .env_clear()
            .env("PATH", agent.path())
            .env("KUBERNETES_EXEC_INFO", exec_info(&json!({"server": "https://eu-1"})))
            .output()
            .unwrap();
        let status = &credential(&output)["status"];
        assert_eq!((&status["token"], &status["expirationTimestamp"]), (&json!(svid(&exp)), &expected));
        assert_eq!(agent.asked(), ["api fetch jwt -audience=https://eu-1"]);
    }
}

/// A directory with a `spire-agent` that notes its arguments.
struct Agent {
    directory: TempDir,
    program: FakePlugin,
}

impl Agent {
    fn with(script: &str) -> Self {
        let program = FakePlugin::script(&format!("echo \"$*\" >> \"$dir/asked\"\n{script}"));
        let directory = private_directory();
        symlink(program.path(), directory.path().join("spire-agent")).unwrap();
        Self { directory, program }
    }

    /// What the real one prints of a workload with two identities, of which the first has a hint.
    fn says(svid: &str) -> String {
        let lines = [
            "token(spiffe://example.org/fleet):",
            &format!("\t{svid}"),
            "hint(spiffe://example.org/fleet):",
            "\tinternal",
            "token(spiffe://example.org/other):",
            "\teyJhbGciOiJFUzI1NiJ9.e30.b3RoZXI",
            "bundle(spiffe://example.org):",
            "\t{",
            "    \"keys\": [",
            "        {",
            "            \"kty\": \"EC\",",
            "            \"kid\": \"C6vs25welZOx6WksNYfbMfiw9l96pMnD\",",
            "            \"crv\": \"P-256\",",
            "            \"x\": \"ngLYQnlfF6GsojUwqtcEE3WgTNG2RUlsGhK73RNEl5k\",",
            "            \"y\": \"tKbiDSUSsQ3F1P7wteeHNXIcU-cx6CgSbroeQrQHTLM\"",
            "        }",
            "    ]",
            "}",
        ];
        format!("cat <<'EOF'\n{}\nEOF\n", lines.join("\n"))
    }

    fn path(&self) -> String {
        format!("{}:{}", self.directory.path().display(), std::env::var("PATH").unwrap())
    }

    fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.program.dir().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    /// The shim's answer for this cluster, from a broker of the README's provider.
    fn ask(&self, cluster: &Value) -> Output {
        let broker = self.broker(&sample_config("spiffe"));
        let mut shim = shim(&broker, &["--provider", "spiffe"]);
        shim.env("KUBERNETES_EXEC_INFO", exec_info(cluster)).output().unwrap()
    }

    fn broker(&self, config: &str) -> Broker {
        Broker::builder(PROGRAM)
            .config(config)
            .env("PATH", self.path())
            .env("SPIFFE_ENDPOINT_SOCKET", "unix:///run/spire/agent.sock")
            .start()
    }
}

fn shim(broker: &Broker, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("shim").args(args).arg("--socket").arg(broker.socket()).env_clear();
    command
}

fn exec_info(cluster: &Value) -> String {
    let spec = json!({"interactive": false, "cluster": cluster});
    json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": spec})
        .to_string()
}

/// A token in the form of a JWT-SVID, all of whose parts have the letters that base64 has in URLs alone.
fn svid(exp: &Value) -> String {
    let sub = "spiffe://example.org/fleet";
    let claims = json!({"a": "???>>>", "aud": ["fleet"], "exp": exp, "sub": sub, "x": {"exp": 7}});
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("eyJhbGciOiJFUzI1NiJ9.{claims}.-_{}", URL_SAFE_NO_PAD.encode([0xff; 62]))
}

#[track_caller]
fn credential(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn failure(output: &Output) -> String {
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &[][..]));
    String::from_utf8(output.stderr.clone()).unwrap()
}
