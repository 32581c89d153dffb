//! Whether the running broker has the definitions that were wrapped.

use credbroker_client::Code;
use credbroker_exec::Failure;
use credbroker_proto::v1::ProviderState;

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
    let answer = ask(socket, limit, environment, async |mut client| client.providers().await)?;
    Ok(text(definitions, answer.as_deref()))
}

fn text(definitions: &[(String, Definition)], answer: Result<&[ProviderState], &Failure>) -> String {
    let providers = match answer {
        Ok(providers) => providers,
        Err(Failure::Broker(credbroker_client::Error::Unreachable { .. })) => {
            return format!("No broker is running. {}", remedy(definitions, "start it"));
        }
        Err(Failure::Broker(credbroker_client::Error::Failed { code: Code::Unimplemented, .. })) => {
            return format!(
                "The running broker is of an older release and cannot say which providers it has. {}",
                remedy(definitions, "restart it")
            );
        }
        Err(failure) => {
            return format!("The broker did not say which providers it has: {}.", failure.line(None));
        }
    };
    let is_known = |name: &str, definition: &Definition| {
        providers.iter().any(|known| known.name == name && known.definition.as_deref() == Some(definition.digest()))
    };
    let unknown: Vec<_> =
        definitions.iter().filter(|(name, definition)| !is_known(name, definition)).cloned().collect();
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

    use credbroker_client::{Error, Socket};

    use super::*;

    fn definitions() -> Vec<(String, Definition)> {
        [("rel", "/home/jane/.kube/config"), ("dev", "/home/jane/.kube/config"), ("prod", "/etc/prod")]
            .map(|(name, file)| (name.to_owned(), Definition::new(file.into(), name)))
            .into()
    }

    fn known(definitions: &[(String, Definition)]) -> Vec<ProviderState> {
        let state = |(name, definition): &(String, Definition)| ProviderState {
            name: name.clone(),
            definition: Some(definition.digest().to_owned()),
            ..ProviderState::default()
        };
        definitions.iter().map(state).collect()
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
        insta::assert_snapshot!(text(&definitions(), Ok(&[])), @"The running broker does not have these definitions: rel, dev, prod. Until it does, requests for them fail. Add `kubeconfigs: [/etc/prod, /home/jane/.kube/config]` to its configuration, or if it has none set KUBECONFIG=/etc/prod:/home/jane/.kube/config for it, and restart it.");
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
