//! Whether the running broker has the definitions that were wrapped.

use std::{collections::HashSet, fs, path::Path, time::SystemTime};

use credbroker_client::Error;
use credbroker_exec::Failure;

use crate::{
    cli::broker::{SocketArg, TimeoutArg, ask},
    plugin::{Definition, Environment},
    text::listed,
};

/// Asks the broker, and returns what to do until it serves all of `definitions`.
pub(super) fn advice(
    socket: &SocketArg,
    environment: &Environment,
    definitions: &[(String, Definition)],
) -> anyhow::Result<String> {
    let limit = TimeoutArg::default().limit;
    let answer = ask(socket, limit, environment, async |client| {
        Ok((client.admin().providers().await?, client.admin().broker_info().await?))
    })?;
    let answer = answer.map(|(providers, broker)| {
        let digests = providers.into_iter().filter_map(|known| known.definition).collect();
        (digests, changed_since(definitions, broker.started_at))
    });
    Ok(text(definitions, answer.as_ref().map(|(known, changed)| (known, changed.as_slice()))))
}

/// The files that were modified after the broker started, and so after it read them.
fn changed_since(definitions: &[(String, Definition)], start: Option<SystemTime>) -> Vec<String> {
    let modified = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    let is_later = |file: &Path| start.is_some_and(|start| modified(file).is_some_and(|at| at > start));
    files(definitions).into_iter().filter(|file| is_later(file)).map(shown).collect()
}

/// `answer`: the digests of the broker's definitions, which cover the names, and the files that changed since the broker
/// read them.
fn text(
    definitions: &[(String, Definition)],
    answer: Result<(&HashSet<String>, &[String]), &Failure>,
) -> String {
    let (known, changed) = match answer {
        Ok(answer) => answer,
        Err(Failure::Broker(Error::Unreachable { .. })) => {
            return format!("No broker is running. {}", remedy(definitions, "start it"));
        }
        Err(failure) => {
            return format!("The broker did not say which providers it has: {}.", failure.line(None));
        }
    };
    let unknown: Vec<_> =
        definitions.iter().filter(|(_, definition)| !known.contains(definition.digest())).cloned().collect();
    if unknown.is_empty() && !changed.is_empty() {
        return format!(
            "The running broker has all of these providers as they were when it started. Since then {} changed: restart \
             the broker.",
            listed(changed)
        );
    }
    if unknown.is_empty() {
        return "The running broker has all of these providers.".to_owned();
    }
    let names: Vec<_> = unknown.iter().map(|(name, _)| name.clone()).collect();
    format!(
        "The running broker does not have these definitions: {}. Until it does, requests for them fail. {}",
        listed(&names),
        remedy(&unknown, "restart it")
    )
}

/// How to make a broker read the files of these definitions.
fn remedy(definitions: &[(String, Definition)], then: &str) -> String {
    let files: Vec<_> = files(definitions).into_iter().map(shown).collect();
    let list = |separator| files.join(separator);
    format!(
        "Add `kubeconfigs: [{}]` to its configuration, or if it has none set KUBECONFIG={} for it, and {then}.",
        list(", "),
        list(":")
    )
}

fn files(definitions: &[(String, Definition)]) -> Vec<&Path> {
    let mut files: Vec<_> = definitions.iter().map(|(_, definition)| definition.file()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use credbroker_client::Socket;

    use super::*;

    fn definitions() -> Vec<(String, Definition)> {
        [("rel", "/home/jane/.kube/config"), ("dev", "/home/jane/.kube/config"), ("prod", "/etc/prod")]
            .map(|(name, file)| (name.to_owned(), Definition::new(file.into(), name)))
            .into()
    }

    fn known(definitions: &[(String, Definition)]) -> HashSet<String> {
        definitions.iter().map(|(_, definition)| definition.digest().to_owned()).collect()
    }

    #[test]
    fn a_broker_with_all_definitions_is_ready() {
        let definitions = definitions();
        insta::assert_snapshot!(text(&definitions, Ok((&known(&definitions), &[]))), @"The running broker has all of these providers.");
    }

    #[test]
    fn a_file_that_changed_after_the_start_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, "").unwrap();
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        let definitions = [("rel".to_owned(), Definition::new(file.clone(), "rel"))];
        let second = std::time::Duration::from_secs(1);
        assert_eq!(changed_since(&definitions, Some(modified + second)), [""; 0]);
        let changed = changed_since(&definitions, Some(modified - second));
        assert_eq!(changed, [file.display().to_string()]);
        let said = text(&definitions, Ok((&known(&definitions), &["/home/jane/.kube/config".to_owned()])));
        insta::assert_snapshot!(said, @"The running broker has all of these providers as they were when it started. Since then /home/jane/.kube/config changed: restart the broker.");
    }

    /// A definition of the same name in another file is another provider.
    #[test]
    fn definitions_that_the_broker_does_not_have_are_named_with_the_remedy() {
        let other = ("rel".to_owned(), Definition::new("/other".into(), "rel"));
        let mut providers = known(&definitions()[1..]);
        providers.extend(known(&[other]));
        insta::assert_snapshot!(text(&definitions(), Ok((&providers, &[]))), @"The running broker does not have these definitions: rel. Until it does, requests for them fail. Add `kubeconfigs: [/home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/home/jane/.kube/config for it, and restart it.");
        insta::assert_snapshot!(text(&definitions(), Ok((&HashSet::new(), &[]))), @"The running broker does not have these definitions: rel, dev, prod. Until it does, requests for them fail. Add `kubeconfigs: [/etc/prod, /home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/etc/prod:/home/jane/.kube/config for it, and restart it.");
    }

    #[test]
    fn without_an_answer_of_the_broker_the_text_has_the_remedy() {
        let unreachable = Failure::from(Error::Unreachable {
            socket: Socket::at("/run/x.sock"),
            source: Arc::new(io::Error::from_raw_os_error(2)),
        });
        insta::assert_snapshot!(text(&definitions()[..1], Err(&unreachable)), @"No broker is running. Add `kubeconfigs: [/home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/home/jane/.kube/config for it, and start it.");
        let timeout = Failure::from(Error::Timeout { limit: std::time::Duration::from_secs(5) });
        let said = text(&definitions(), Err(&timeout));
        assert!(said.starts_with("The broker did not say which providers it has: "), "{said}");
    }
}
