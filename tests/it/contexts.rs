//! Credentials of the contexts of followed kubeconfigs.

use std::{path::Path, sync::Arc, time::Duration};

use credbroker_client::{Client, ContextState, Credential, CredentialRef, Error, Reason, Socket};
use credbroker_plugin::Environment;
use credbroker_proto::v1::{self as pb, credential_broker_client::CredentialBrokerClient};
use credbroker_test_support::{Accepts, ApiServer, Broker, FakePlugin, private_directory, private_file};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::harness::{Ahead, InProcess, token};

/// Longer than any step takes, also on a slow machine.
const AGES: Duration = Duration::from_secs(60);

/// A context `name` with the server `https://name` for each user.
fn kubeconfig(users: &[(&str, Value)]) -> Value {
    let each = |make: &dyn Fn(&str, &Value) -> Value| {
        users.iter().map(|(name, user)| make(name, user)).collect::<Value>()
    };
    json!({
        "clusters": each(&|name, _| json!({"name": name, "cluster": {"server": format!("https://{name}")}})),
        "users": each(&|name, user| json!({"name": format!("user-{name}"), "user": user})),
        "contexts": each(&|name, _| json!({"name": name, "context": {"cluster": name, "user": format!("user-{name}")}})),
    })
}

fn exec(plugin: &FakePlugin, provide_cluster_info: bool) -> Value {
    let mut stanza = plugin.exec_stanza();
    stanza["provideClusterInfo"] = json!(provide_cluster_info);
    json!({ "exec": stanza })
}

/// A broker that follows one kubeconfig.
struct Contexts {
    directory: TempDir,
    broker: InProcess,
    clock: Arc<Ahead>,
}

impl Contexts {
    fn start(users: &[(&str, Value)]) -> Self {
        Self::with(users, json!({}))
    }

    fn with(users: &[(&str, Value)], mut sections: Value) -> Self {
        let (directory, clock) = (private_directory(), Arc::new(Ahead::default()));
        let file = directory.path().join("kubeconfig");
        private_file(&file, &kubeconfig(users).to_string());
        sections["kubeconfigs"] = json!([file]);
        let broker = InProcess::with_clock(sections, &[], Arc::<Ahead>::clone(&clock));
        Self { directory, broker, clock }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Returns when the broker has read the kubeconfig with this text.
    async fn write(&self, kubeconfig: &Value) {
        let mut states = self.broker.configuration.clone();
        let before = states.borrow_and_update().reloads;
        std::fs::write(self.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        self.broker.reload();
        timeout(AGES, states.wait_for(|state| state.reloads > before)).await.expect("a reload").unwrap();
    }

    /// The context of this name as the kubeconfig has it now.
    fn named(&self, name: &str) -> CredentialRef {
        CredentialRef::context(name, digest(&self.path("kubeconfig"), name))
    }

    async fn get(&self, context: &CredentialRef) -> Result<Credential, Option<Reason>> {
        match self.broker.client().await.credential(context).await {
            Ok(credential) => Ok(credential),
            Err(Error::Failed(failure)) => Err(failure.reason),
            Err(error) => panic!("{error}"),
        }
    }

    /// The token and the server.
    async fn answer(&self, name: &str) -> (String, String) {
        let credential = self.get(&self.named(name)).await.unwrap();
        (token(&credential).to_owned(), credential.cluster().unwrap().server.clone())
    }
}

/// The digest of a context, as the broker computes it.
fn digest(kubeconfig: &Path, name: &str) -> String {
    let directory = private_directory();
    let file = directory.path().join("config.yaml");
    let config =
        json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "kubeconfigs": [kubeconfig]});
    private_file(&file, &config.to_string());
    let environment = Environment([("PATH".into(), std::env::var_os("PATH").unwrap())].into());
    let loaded = credbroker_config::load(Some(&file), &environment).unwrap();
    let context = loaded
        .config
        .providers
        .contexts()
        .find(|context| &*context.id.name == name)
        .map(|found| found.id.digest.to_string());
    context.unwrap()
}

fn answer(token: &str, context: &str) -> (String, String) {
    (token.to_owned(), format!("https://{context}"))
}

#[tokio::test]
async fn a_context_has_the_credential_of_its_user_and_its_own_cluster() {
    let counted = FakePlugin::builder().token_per_run().expires_in(3600).build();
    let informed = FakePlugin::builder().token("with-info").expires_in(3600).build();
    let mut kubeconfig = kubeconfig(&[
        ("paris", exec(&counted, false)),
        ("rome", exec(&informed, true)),
        ("oslo", json!({"token": "static"})),
    ]);
    kubeconfig["clusters"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "lyon", "cluster": {"server": "https://lyon"}}));
    for (name, user) in [("lyon", "user-paris"), ("bergen", "user-oslo")] {
        let context = json!({"name": name, "context": {"cluster": "lyon", "user": user}});
        kubeconfig["contexts"].as_array_mut().unwrap().push(context);
    }
    let contexts = Contexts::start(&[("oslo", json!({"token": "static"}))]);
    contexts.write(&kubeconfig).await;
    // Twice: from a run, and from memory.
    for _ in 0..2 {
        let (first, server) = contexts.answer("paris").await;
        assert_eq!(server, "https://paris");
        assert_eq!(contexts.answer("lyon").await, answer(&first, "lyon"), "one run for both clusters");
        let by_provider = contexts.broker.get("user-paris").await.unwrap();
        assert_eq!((token(&by_provider), by_provider.cluster()), (&*first, None));
        assert_eq!(contexts.answer("rome").await, answer("with-info", "rome"));
        assert_eq!(contexts.answer("oslo").await, answer("static", "oslo"));
        assert_eq!(contexts.answer("bergen").await, answer("static", "lyon"));
    }
    assert_eq!((counted.runs(), informed.runs()), (1, 1));
}

#[tokio::test]
async fn the_file_of_a_token_is_read_again_and_a_certificate_comes_with_its_key() {
    let server = ApiServer::start(Accepts::Either);
    let (chain, key) = server.issue_client_certificate("jane", Duration::from_secs(3600));
    let users = [
        ("file", json!({"tokenFile": "token", "token": "not this"})),
        ("pair", json!({"client-certificate": "chain.pem", "client-key": "key.pem"})),
    ];
    let contexts = Contexts::start(&users);
    assert_eq!(
        contexts.get(&contexts.named("file")).await.unwrap_err(),
        Some(Reason::NoCredential),
        "no file yet"
    );
    for (name, text) in [("token", "one\n"), ("chain.pem", &*chain), ("key.pem", &*key)] {
        private_file(&contexts.path(name), text);
    }
    contexts.clock.put(31);
    assert_eq!(contexts.answer("file").await, answer("one", "file"));
    private_file(&contexts.path("token"), "two\n");
    contexts.clock.put(121);
    assert_eq!(contexts.answer("file").await, answer("two", "file"));
    let pair = contexts.get(&contexts.named("pair")).await.unwrap();
    assert!(pair.token().is_none());
    assert_eq!(pair.cluster().unwrap().server, "https://pair");
    // The key of another certificate.
    let (_, other) = server.issue_client_certificate("joe", Duration::from_secs(3600));
    private_file(&contexts.path("key.pem"), &other);
    contexts.clock.put(121);
    assert_eq!(contexts.get(&contexts.named("pair")).await.unwrap_err(), Some(Reason::KeyMismatch));
}

#[tokio::test]
async fn a_context_that_means_something_else_is_unknown_by_its_old_digest() {
    let paris = |server: &str, token: &str| {
        let mut kubeconfig = kubeconfig(&[("paris", json!({ "token": token }))]);
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        kubeconfig
    };
    let contexts = Contexts::start(&[("paris", json!({"token": "one"}))]);
    let old = contexts.named("paris");
    assert_eq!(contexts.answer("paris").await, answer("one", "paris"));
    contexts.write(&paris("https://paris", "two")).await;
    assert_eq!(token(&contexts.get(&old).await.unwrap()), "two", "a new token does not change the context");
    contexts.write(&paris("https://elsewhere", "three")).await;
    assert_eq!(contexts.get(&old).await.unwrap_err(), Some(Reason::UnknownContext));
    assert_eq!(contexts.answer("paris").await, answer("three", "elsewhere"));
    contexts.write(&kubeconfig(&[("rome", json!({"token": "four"}))])).await;
    assert_eq!(contexts.get(&old).await.unwrap_err(), Some(Reason::UnknownContext));
}

#[tokio::test]
async fn a_watch_of_a_context_ends_when_that_means_something_else() {
    let contexts = Contexts::start(&[("paris", json!({"token": "one"})), ("rome", json!({"token": "rome"}))]);
    let mut client = CredentialBrokerClient::new(contexts.broker.channel().await);
    let reference = |name: &str| {
        let digest = digest(&contexts.path("kubeconfig"), name);
        let source = pb::credential_ref::Source::Context(pb::ContextRef { digest, name: name.to_owned() });
        pb::WatchCredentialRequest {
            r#ref: Some(pb::CredentialRef { source: Some(source), ..pb::CredentialRef::default() }),
        }
    };
    let mut paris = client.watch_credential(reference("paris")).await.unwrap().into_inner();
    let mut rome = client.watch_credential(reference("rome")).await.unwrap().into_inner();
    for (watch, token, server) in [(&mut paris, "one", "https://paris"), (&mut rome, "rome", "https://rome")]
    {
        let first = timeout(AGES, watch.message()).await.expect("an answer").unwrap().unwrap();
        let credential = first.credential.unwrap();
        assert_eq!(
            (credential.token.as_deref(), first.cluster.unwrap().server.as_str()),
            (Some(token), server)
        );
    }
    let mut newer = kubeconfig(&[("paris", json!({"token": "two"})), ("rome", json!({"token": "rome"}))]);
    newer["clusters"][1]["cluster"]["server"] = json!("https://elsewhere");
    contexts.write(&newer).await;
    for watch in [&mut paris, &mut rome] {
        let error = timeout(AGES, watch.message()).await.expect("an end").unwrap_err();
        assert!(error.message().contains("PROVIDER_CHANGED"), "{}", error.message());
    }
}

#[tokio::test]
async fn access_rules_apply_to_the_user_of_a_context() {
    let uid = rustix::process::geteuid().as_raw();
    let rule = json!([{"name": "r", "peers": {"uids": [uid]}, "allow": {"providers": ["user-paris"], "verbs": ["get"]}}]);
    let users = [("paris", json!({"token": "one"})), ("rome", json!({"token": "two"}))];
    let contexts = Contexts::with(&users, json!({ "access": rule }));
    assert_eq!(contexts.answer("paris").await, answer("one", "paris"));
    let unknown = CredentialRef::context("rome", "0123");
    for reference in [contexts.named("rome"), unknown] {
        assert_eq!(contexts.get(&reference).await.unwrap_err(), Some(Reason::PeerDenied));
    }
    // A user without a plugin is not a provider.
    let error = contexts.broker.get("user-paris").await.unwrap_err();
    assert!(matches!(error, Error::Failed(failure) if failure.reason == Some(Reason::PeerDenied)));
}

#[tokio::test]
async fn a_stored_credential_takes_no_slot_of_a_plugin() {
    let blocked = FakePlugin::script("sleep 1000");
    let users = [("slow", exec(&blocked, false)), ("oslo", json!({"token": "static"}))];
    let contexts = Contexts::with(&users, json!({"limits": {"pluginRuns": 1}}));
    let (slow, client) = (contexts.named("slow"), contexts.broker.client().await);
    let waiting = tokio::spawn(async move { client.credential(&slow).await });
    while blocked.runs() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(timeout(AGES, contexts.answer("oslo")).await.expect("no wait"), answer("static", "oslo"));
    waiting.abort();
}

#[tokio::test]
async fn no_log_shows_a_stored_credential() {
    let server = ApiServer::start(Accepts::Either);
    let (chain, key) = server.issue_client_certificate("jane", Duration::from_secs(3600));
    let encoded = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let users = [
        ("inline", json!({"token": "c4n4ry-token"})),
        ("file", json!({"tokenFile": "token"})),
        ("bad", json!({"token": "c4n4ry token\n"})),
        ("pair", json!({"client-certificate-data": encoded(&chain), "client-key-data": encoded(&key)})),
    ];
    let directory = private_directory();
    let file = directory.path().join("kubeconfig");
    private_file(&file, &kubeconfig(&users).to_string());
    private_file(&directory.path().join("token"), "c4n4ry-file");
    let broker =
        Broker::builder(env!("CARGO_BIN_EXE_credbroker")).kubeconfig(&file).env("RUST_LOG", "trace").start();
    let client = Client::connect(&Socket::at(broker.socket())).await.unwrap();
    for (name, _) in users {
        let answer = client.credential(&CredentialRef::context(name, digest(&file, name))).await;
        assert_eq!(answer.is_ok(), name != "bad", "{name}: {answer:?}");
    }
    let (_, log) = broker.stop();
    assert!(log.contains("TRACE"), "everything was logged");
    let body = key.lines().nth(1).unwrap();
    let shown: Vec<_> = log.lines().filter(|line| line.contains("c4n4ry") || line.contains(body)).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

#[tokio::test]
async fn a_stored_credential_that_has_expired_is_not_served() {
    let part = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text);
    let jwt = format!("{}.{}.{}", part("{}"), part(r#"{"exp":1000000000}"#), part("signature"));
    let contexts = Contexts::start(&[("paris", json!({ "token": jwt }))]);
    let context = contexts.named("paris");
    let error = contexts.broker.client().await.credential(&context).await.unwrap_err();
    let Error::Failed(failure) = error else { panic!("{error}") };
    assert_eq!(failure.reason, Some(Reason::ExpiredOutput));
    assert!(failure.message.contains("the token expired"), "{}", failure.message);
}

/// What is shown of each context: its name, provider, server, readiness and the reason of a failure.
fn shown(states: &[ContextState]) -> Vec<String> {
    let shown = |state: &ContextState| {
        let provider = state.provider.as_deref().unwrap_or("-");
        let server = state.cluster.as_ref().map_or("-", |cluster| cluster.server.as_str());
        let reason =
            state.failure.as_ref().and_then(|failure| failure.reason).map_or("-", |reason| reason.name());
        format!("{} {provider} {server} {:?} {reason}", state.name, state.readiness)
    };
    states.iter().map(shown).collect()
}

#[tokio::test]
async fn a_list_has_the_contexts_and_whether_there_are_credentials_for_them() {
    let plugin = FakePlugin::builder().token("t").expires_in(3600).build();
    let failing = FakePlugin::script("exit 1");
    let users = [
        ("exec", exec(&plugin, true)),
        ("failing", exec(&failing, false)),
        ("impersonating", json!({"token": "t", "as": "root"})),
        ("static", json!({"token": "t"})),
    ];
    let contexts = Contexts::start(&users);
    let client = contexts.broker.client().await;
    let before = [
        "exec user-exec https://exec Idle -",
        "failing user-failing https://failing Idle -",
        "impersonating - - Unusable UNKNOWN_CONTEXT",
        "static - https://static Idle -",
    ];
    let listed = client.contexts().await.unwrap();
    assert_eq!(shown(&listed), before);
    assert_eq!(listed[0].digest, digest(&contexts.path("kubeconfig"), "exec"));
    for context in &listed {
        let reference = CredentialRef::context(&context.name, &context.digest);
        let is_usable = ["exec", "static"].contains(&context.name.as_str());
        assert_eq!(client.credential(&reference).await.is_ok(), is_usable, "{}", context.name);
    }
    let after = [
        "exec user-exec https://exec Ready -",
        "failing user-failing https://failing Failed PLUGIN_EXIT",
        before[2],
        "static - https://static Ready -",
    ];
    assert_eq!(shown(&client.contexts().await.unwrap()), after);
    // In pages of one.
    let mut rpc = CredentialBrokerClient::new(contexts.broker.channel().await);
    let (mut names, mut page_token) = (Vec::new(), None);
    loop {
        let request = pb::ListClustersRequest {
            page_size: 1,
            page_token,
            include_contexts: true,
            ..Default::default()
        };
        let page = rpc.list_clusters(request).await.unwrap().into_inner();
        names.extend(page.clusters.into_iter().map(|cluster| cluster.context.unwrap().name));
        page_token = page.next_page_token;
        if page_token.is_none() {
            break;
        }
    }
    assert_eq!(names, ["exec", "failing", "impersonating", "static"]);
    let none = pb::ListClustersRequest {
        namespace: Some("fleet".into()),
        include_contexts: true,
        ..Default::default()
    };
    assert!(rpc.list_clusters(none).await.unwrap().into_inner().clusters.is_empty());
    let without = rpc.list_clusters(pb::ListClustersRequest::default()).await.unwrap_err();
    assert!(without.message().contains("HUB_NOT_CONFIGURED"), "{}", without.message());
}

#[tokio::test]
async fn a_watch_of_clusters_follows_the_contexts() {
    let contexts = Contexts::start(&[("paris", json!({"token": "t"})), ("rome", json!({"token": "t"}))]);
    let mut rpc = CredentialBrokerClient::new(contexts.broker.channel().await);
    let request = pb::WatchClustersRequest { include_contexts: true, ..Default::default() };
    let mut watch = rpc.watch_clusters(request).await.unwrap().into_inner();
    let first = timeout(AGES, watch.message()).await.expect("a list").unwrap().unwrap();
    let names = |states: Vec<pb::ClusterState>| -> Vec<_> {
        states
            .into_iter()
            .map(|state| state.context.unwrap())
            .map(|context| (context.name, context.digest))
            .collect()
    };
    assert!(first.complete);
    let old = names(first.changed);
    assert_eq!(old.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["paris", "rome"]);
    let mut newer = kubeconfig(&[("paris", json!({"token": "t"})), ("oslo", json!({"token": "t"}))]);
    newer["clusters"][0]["cluster"]["server"] = json!("https://elsewhere");
    contexts.write(&newer).await;
    let second = timeout(AGES, watch.message()).await.expect("changes").unwrap().unwrap();
    let removed: Vec<_> =
        second.removed_contexts.into_iter().map(|context| (context.name, context.digest)).collect();
    assert_eq!(removed, old, "the changed context is removed and added");
    let added = names(second.changed);
    assert_eq!(added.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["oslo", "paris"]);
    assert!(!added.contains(&old[0]));
}

#[tokio::test]
async fn a_list_has_only_the_contexts_that_the_caller_may_see() {
    let uid = rustix::process::geteuid().as_raw();
    let rule = json!([{"name": "r", "peers": {"uids": [uid]}, "allow": {"providers": ["user-paris"], "verbs": ["list"]}}]);
    let users = [("paris", json!({"token": "one"})), ("rome", json!({"token": "two"}))];
    let contexts = Contexts::with(&users, json!({ "access": rule }));
    let listed = contexts.broker.client().await.contexts().await.unwrap();
    assert_eq!(shown(&listed), ["paris - https://paris Idle -"]);
}
