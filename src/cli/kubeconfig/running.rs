//! Whether the running broker has the definitions that were wrapped.

use std::collections::HashSet;

use credbroker_client::Error;
use credbroker_exec::Failure;

use crate::{
    cli::broker::{SocketArg, TimeoutArg, ask},
    plugin::{Definition, Environment},
    text::listed,
};

/// Asks the broker, and says what must happen before it answers for all of `definitions`.
pub(super) fn advice(
    socket: &SocketArg,
    environment: &Environment,
    definitions: &[(String, Definition)],
) -> anyhow::Result<String> {
    let limit = TimeoutArg::default().limit;
    let answer = ask(socket, limit, environment, async |client| client.admin().providers().await)?;
    let answer = answer
        .map(|providers| providers.into_iter().filter_map(|known| known.definition).collect::<HashSet<_>>());
    Ok(text(definitions, answer.as_ref()))
}

/// `answer` is the digests of the broker's definitions. Each covers the name too.
fn text(definitions: &[(String, Definition)], answer: Result<&HashSet<String>, &Failure>) -> String {
    let known = match answer {
        Ok(known) => known,
        Err(Failure::Broker(Error::Unreachable { .. })) => {
            return format!("No broker is running. {}", remedy(definitions, "start it"));
        }
        Err(failure) => {
            return format!("The broker did not say which providers it has: {}.", failure.line(None));
        }
    };
    let unknown: Vec<_> =
        definitions.iter().filter(|(_, definition)| !known.contains(definition.digest())).cloned().collect();
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

/// How a broker gets to read the files that define these.
fn remedy(definitions: &[(String, Definition)], then: &str) -> String {
    let mut files: Vec<_> = definitions.iter().map(|(_, definition)| definition.file()).collect();
    files.sort_unstable();
    files.dedup();
    let list = |separator: &str| {
        files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(separator)
    };
    format!(
        "Add `kubeconfigs: [{}]` to its configuration, or if it has none set KUBECONFIG={} for it, and {then}.",
        list(", "),
        list(":")
    )
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
        insta::assert_snapshot!(text(&definitions, Ok(&known(&definitions))), @"The running broker has all of these providers.");
    }

    /// One of the same name from another file is another provider.
    #[test]
    fn what_the_broker_does_not_have_is_named_with_the_remedy() {
        let other = ("rel".to_owned(), Definition::new("/other".into(), "rel"));
        let mut providers = known(&definitions()[1..]);
        providers.extend(known(&[other]));
        insta::assert_snapshot!(text(&definitions(), Ok(&providers)), @"The running broker does not have these definitions: rel. Until it does, requests for them fail. Add `kubeconfigs: [/home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/home/jane/.kube/config for it, and restart it.");
        insta::assert_snapshot!(text(&definitions(), Ok(&HashSet::new())), @"The running broker does not have these definitions: rel, dev, prod. Until it does, requests for them fail. Add `kubeconfigs: [/etc/prod, /home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/etc/prod:/home/jane/.kube/config for it, and restart it.");
    }

    #[test]
    fn a_broker_that_is_not_there_or_does_not_answer_is_not_said_to_be_ready() {
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
