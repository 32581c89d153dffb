//! Users who run no plugin: their token or client certificate is in the kubeconfig, or in files that it names.

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{context_digest::ContextDigest, files::Named};
use crate::{
    file::below,
    provider::{bare, default_issuer},
};
use credbroker_credential::document::Node;
use credbroker_plugin::{Command, Definition, Provider, Sandbox, StoredCredential, StoredValue};

/// The longest time for which what was read from a file is served. It is read again after half of that, which is how often
/// client-go reads the file of a token.
const FILE_MAX_AGE: Duration = Duration::from_secs(120);

/// What makes client-go act as another user than the credential says.
const IMPERSONATION: [&str; 4] = ["as", "as-uid", "as-groups", "as-user-extra"];

/// How a user authenticates.
pub(super) enum UserKind {
    /// With a plugin.
    Plugin,
    /// With a credential of the kubeconfig.
    Stored(StoredCredential),
}

/// How the user authenticates, or why the broker cannot do that for a client.
pub(super) fn kind(user: &Named<'_>) -> Result<UserKind, String> {
    let name = user.name.escape_debug();
    let has = |key: &str| user.body.get(key).is_some_and(is_set);
    if let Some(key) = IMPERSONATION.into_iter().find(|key| has(key)) {
        return Err(format!(
            "its user `{name}` impersonates another user (`{key}`), which a credential cannot express"
        ));
    }
    if has("auth-provider") {
        return Err(format!(
            "its user `{name}` has an `auth-provider`, which is not supported; use an exec plugin"
        ));
    }
    if has("username") || has("password") {
        return Err(format!(
            "its user `{name}` has a user name and a password, which Kubernetes no longer supports"
        ));
    }
    let credential = credential(user).map_err(|problem| format!("its user `{name}`: {problem}"))?;
    match (has("exec"), credential) {
        (true, None) => Ok(UserKind::Plugin),
        (true, Some(_)) => Err(format!(
            "its user `{name}` has an exec plugin, and a token or a certificate too; remove one of them"
        )),
        (false, Some(credential)) => Ok(UserKind::Stored(credential)),
        (false, None) => {
            Err(format!("its user `{name}` has no exec plugin, no token and no client certificate"))
        }
    }
}

fn is_set(node: &Node) -> bool {
    !node.is_null()
        && node.as_str() != Some("")
        && node.as_sequence().is_none_or(|items| !items.is_empty())
        && node.as_mapping().is_none_or(|entries| !entries.is_empty())
}

/// As client-go reads it: the file of a token counts before the token, and data before the file of a certificate or a key.
fn credential(user: &Named<'_>) -> Result<Option<StoredCredential>, String> {
    let file = |key| Ok::<_, String>(text(user, key)?.map(|path| StoredValue::File(below(dir(user), path))));
    let token = text(user, "token")?.map(|token| StoredValue::Inline(token.into()));
    let token = file("tokenFile")?.or(token);
    let chain = data(user, "client-certificate-data")?.or(file("client-certificate")?);
    let key = data(user, "client-key-data")?.or(file("client-key")?);
    let pair = match (chain, key) {
        (Some(chain), Some(key)) => Some([chain, key]),
        (None, None) => None,
        (Some(_), None) => return Err("it has a client certificate without its key".to_owned()),
        (None, Some(_)) => {
            return Err("it has the key of a client certificate without the certificate".to_owned());
        }
    };
    Ok((token.is_some() || pair.is_some()).then_some(StoredCredential { token, pair }))
}

fn dir<'a>(user: &Named<'a>) -> &'a Path {
    user.file.parent().unwrap_or(Path::new("/"))
}

/// The text of a field; `None`: it is absent, null or empty. The value may be a secret, so no message has it.
fn text<'a>(user: &Named<'a>, key: &str) -> Result<Option<&'a str>, String> {
    match user.body.get(key).filter(|node| !node.is_null()) {
        None => Ok(None),
        Some(node) => {
            let text =
                node.as_str().ok_or_else(|| format!("`{key}` must be a string; write it in quotes"))?;
            Ok(Some(text).filter(|text| !text.is_empty()))
        }
    }
}

fn data(user: &Named<'_>, key: &str) -> Result<Option<StoredValue>, String> {
    let Some(text) = text(user, key)? else { return Ok(None) };
    let compact: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(compact).map_err(|_error| format!("`{key}` is not base64"))?;
    let pem = String::from_utf8(bytes).map_err(|_error| format!("`{key}` is not PEM"))?;
    Ok(Some(StoredValue::Inline(pem.into())))
}

/// The provider of a user who has this credential. No request names it.
pub(super) fn provider(credential: StoredCredential, user: &Named<'_>) -> Provider {
    let mut definition = Definition::new(user.identity.to_owned(), user.name, "");
    definition.digest = digest(&credential).into();
    // A name that no issuer of the configuration has: their pauses do not concern it.
    let issuer = default_issuer(format!("{} ({})", user.name, definition.shown_file()).into());
    let mut provider = bare(user.name, Command::Path(user.identity.to_owned()));
    provider.lifetime.max_age = credential.has_file().then_some(FILE_MAX_AGE);
    Provider {
        definition: Some(definition),
        issuer: issuer.into(),
        sandbox: Sandbox::Strict,
        stored: Some(credential),
        ..provider
    }
}

/// What kind of credential it is, and from which files. A new value is the same credential, renewed; so no value is a part,
/// which someone could guess from the digest.
fn digest(credential: &StoredCredential) -> String {
    let mut digest = ContextDigest::new();
    let mut put = |name: &str, value: Option<&StoredValue>| match value {
        None => {}
        Some(StoredValue::Inline(_)) => digest.text(&format!("{name} inline")),
        Some(StoredValue::File(path)) => {
            digest.text(&format!("{name} file"));
            digest.path(path);
        }
    };
    put("token", credential.token.as_ref());
    put("certificate", credential.pair.as_ref().map(|[chain, _]| chain));
    put("key", credential.pair.as_ref().map(|[_, key]| key));
    digest.finish()
}
