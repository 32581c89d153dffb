//! What a call without a runtime asks for.

use std::time::Duration;

use credbroker_proto::v1::{ExecPluginCaller, GetCredentialRequest};

use crate::reference::CredentialRef;

/// A request for a credential, with what an exec plugin says about the client that runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialRequest(GetCredentialRequest);

impl CredentialRequest {
    /// Requests the credential that `reference` names.
    pub fn new(reference: CredentialRef) -> Self {
        let reference = Some(reference.into_message());
        Self(GetCredentialRequest { r#ref: reference, ..GetCredentialRequest::default() })
    }

    /// Sets the process that started this exec plugin. Only exec plugins call this.
    ///
    /// The exec protocol does not report a 401: the client starts its plugin again. So when the same `id` requests a
    /// credential that it already has, the broker suspects that the API server rejected that credential, and may run the
    /// provider's plugin. A service that sends a constant `id` therefore makes the broker refresh valid credentials.
    ///
    /// `id` identifies the process for its lifetime. `None`: unknown. `without_exec_info`: the process did not set
    /// `KUBERNETES_EXEC_INFO`. Its second request is then weaker evidence.
    #[must_use]
    pub fn exec_plugin_caller(mut self, id: Option<String>, without_exec_info: bool) -> Self {
        self.0.exec_plugin_caller = Some(ExecPluginCaller { id: id.unwrap_or_default(), without_exec_info });
        self
    }

    /// Sets whether a user at a terminal waits for the credential.
    #[must_use]
    pub fn at_terminal(mut self, at_terminal: bool) -> Self {
        self.0.at_terminal = at_terminal;
        self
    }

    /// Sets variables of the session of that user, such as `DISPLAY`: a plugin run that the request starts gets them.
    #[must_use]
    pub fn session(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.0.session.clear();
        self.0.session.extend(variables);
        self
    }

    /// Sets how long the credential has to live. One that lives shorter is the answer if the plugin cannot do better.
    #[must_use]
    pub fn min_lifetime(mut self, min_lifetime: Duration) -> Self {
        self.0.min_lifetime = min_lifetime.try_into().ok();
        self
    }

    pub(super) fn message(&self) -> &GetCredentialRequest {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_sent_and_no_value_is_shown() {
        let request = CredentialRequest::new(CredentialRef::provider("p").env("AWS_PROFILE", "c4n4ry"));
        assert_eq!(request.message().exec_plugin_caller, None);
        let session = [("DISPLAY".to_owned(), "c4n4ry".to_owned())];
        let request = request.exec_plugin_caller(Some("me".into()), true).at_terminal(true).session(session);
        let request = request.min_lifetime(Duration::from_secs(600));
        assert!(!format!("{request:?}").contains("c4n4ry"), "{request:?}");
        let GetCredentialRequest { r#ref, exec_plugin_caller, at_terminal, session, min_lifetime } =
            request.message().clone();
        assert_eq!(session["DISPLAY"], "c4n4ry");
        assert_eq!(min_lifetime.map(|lifetime| lifetime.seconds), Some(600));
        assert_eq!(r#ref.unwrap().env["AWS_PROFILE"], "c4n4ry");
        let caller = ExecPluginCaller { id: "me".into(), without_exec_info: true };
        assert_eq!((exec_plugin_caller, at_terminal), (Some(caller), true));
        let unknown = CredentialRequest::new(CredentialRef::provider("p")).exec_plugin_caller(None, false);
        assert_eq!(unknown.message().exec_plugin_caller, Some(ExecPluginCaller::default()));
    }
}
