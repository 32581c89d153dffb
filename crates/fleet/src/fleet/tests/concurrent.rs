//! Many requests in parallel: each gets its own profile.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use super::*;
use crate::resolver::{CredentialRequest, Resolver, Source};
use credbroker_credential::Cluster;
use credbroker_plugin::{ClusterInfo, PluginSpec, ProviderProblem, ResolveError};

const PROFILES: usize = 1000;

/// A profile all of whose parts carry its number and that of its version.
fn numbered(number: usize, version: usize) -> ClusterProfile {
    let id = format!("{number}.{version}");
    let prefix = "clusterprofiles.multicluster.x-k8s.io/exec";
    let extensions = json!([
        {"name": format!("{prefix}/additional-args"), "extension": ["--id", id]},
        {"name": format!("{prefix}/additional-envs"), "extension": {"ID": id, "TENANT": id}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"id": id}},
    ]);
    let cluster = json!({"server": format!("https://{id}"), "extensions": extensions});
    profile(&number.to_string(), &json!({"accessProviders": [{"name": "p", "cluster": cluster}]}))
}

/// The id that all parts of `spec` carry; panics if they differ.
fn id(spec: &PluginSpec) -> String {
    let target = spec.target.as_ref().unwrap();
    let id = target.endpoint.server.strip_prefix("https://").unwrap().to_owned();
    assert_eq!(spec.provider.args, ["--own", "--id", &id]);
    let env = [("OWN", "own"), ("ID", id.as_str()), ("TENANT", id.as_str())];
    assert_eq!(spec.provider.env, env.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(spec.cluster.as_deref(), Some(&*target.endpoint));
    assert_eq!(target.endpoint.config, format!(r#"{{"id":"{id}"}}"#));
    assert_eq!(id.split_once('.').unwrap().0, &*target.profile.name);
    id
}

fn by_name(number: usize) -> CredentialRequest {
    CredentialRequest {
        source: Source::ClusterProfile(named(&number.to_string())),
        ..CredentialRequest::default()
    }
}

/// Asks for a profile by its name and then by its server; `None`: it is not there.
fn ask_twice(resolver: &Resolver, number: usize) -> Option<()> {
    let spec = match resolver.resolve(by_name(number)) {
        Ok(spec) => spec,
        Err(ResolveError::UnknownProfile(_)) => return None,
        Err(error) => panic!("{number}: {error}"),
    };
    let id = id(&spec);
    assert!(id.starts_with(&format!("{number}.")), "asked for {number}, got {id}");
    let sent = Cluster { server: format!("https://{id}"), ..Cluster::default() };
    let source = Source::Provider("p".into());
    match resolver.resolve(CredentialRequest {
        source,
        cluster: Some(Box::new(sent)),
        ..CredentialRequest::default()
    }) {
        Ok(found) => assert_eq!((self::id(&found), found.key), (id, spec.key)),
        Err(ResolveError::Provider(_, ProviderProblem::ClusterMismatch(..))) => {} // it has moved meanwhile
        Err(error) => panic!("{number}: {error}"),
    }
    Some(())
}

#[test]
fn a_thousand_profiles_resolve_at_once_while_others_change_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("plugin");
    fs::write(&plugin, "").unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700)).unwrap();
    let own = Provider {
        args: vec!["--own".to_owned()],
        env: vec![("OWN".to_owned(), "own".to_owned()), ("TENANT".to_owned(), "own".to_owned())],
        provide_cluster_info: true,
        cluster_info: ClusterInfo::Match,
        profile_sourced: Some(ProfileSourced { args: true, env: EnvPolicy::Replace }),
        ..provider("p", Command::Path(plugin))
    };
    let providers = Arc::new(Providers::new([own]));
    let fleet = Arc::new(Fleet::new(Arc::clone(&providers), EndpointRules::default()));
    fleet.set_hub(true, None);
    for number in 0..PROFILES {
        fleet.apply(numbered(number, 0));
    }
    let resolver = Resolver::new(providers, Some(Arc::clone(&fleet)));
    let (writing, answers, start) = (AtomicBool::new(true), AtomicUsize::new(0), Barrier::new(6));

    // Of three, the first comes and goes, the second stays as it is, the third changes.
    thread::scope(|scope| {
        for reader in 0..4 {
            let (resolver, writing, answers, start) = (&resolver, &writing, &answers, &start);
            scope.spawn(move || {
                start.wait();
                let mut last = false;
                while !last {
                    last = !writing.load(Ordering::Acquire);
                    for number in (0..PROFILES).map(|number| (number + reader * 250) % PROFILES) {
                        let found = ask_twice(resolver, number);
                        assert!(found.is_some() || number % 3 == 0, "{number} is always there");
                        answers.fetch_add(usize::from(found.is_some()), Ordering::Relaxed);
                    }
                }
            });
        }
        let writers = [0, 1].map(|writer| {
            let (fleet, start) = (&fleet, &start);
            scope.spawn(move || {
                start.wait();
                for version in 1..=11 {
                    for number in (0..PROFILES).filter(|number| number % 3 != 1 && number % 2 == writer) {
                        if number % 3 == 0 && version % 2 == 1 {
                            assert!(fleet.remove(&named(&number.to_string())));
                        } else {
                            fleet.apply(numbered(number, version));
                        }
                    }
                }
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
        writing.store(false, Ordering::Release);
    });

    assert!(answers.into_inner() > PROFILES);
    for number in 0..PROFILES {
        let found = resolver.resolve(by_name(number)).map(|spec| id(&spec)).ok();
        let expected = [None, Some(0), Some(11)][number % 3];
        assert_eq!(found, expected.map(|version| format!("{number}.{version}")));
    }
    let state = fleet.read();
    assert_eq!(state.by_server.len(), state.by_name.len(), "nothing is left behind");
}

#[test]
fn writers_of_one_profile_leave_nothing_behind() {
    let fleet = fleet();
    thread::scope(|scope| {
        for writer in 0..4 {
            let fleet = &fleet;
            scope.spawn(move || {
                for round in 0..3000 {
                    if writer == 3 {
                        fleet.remove(&named("paris"));
                    } else {
                        fleet.apply(at("paris", &format!("https://{writer}.{round}")));
                    }
                }
            });
        }
    });
    fleet.apply(at("paris", "https://last"));
    let state = fleet.read();
    assert_eq!(state.by_server.keys().collect::<Vec<_>>(), ["https://last"]);
}
