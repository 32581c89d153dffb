//! The file with the original definitions of a kubeconfig that was changed in place. It is a kubeconfig, which the broker
//! reads, with an extension that has what `restore` needs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::nodes::{entry, marks, name, string, yaml};
use crate::cli::files;
use credbroker_config::kubeconfig::{INJECTED, extension};
use credbroker_credential::document::{self, Aliases, Node, Value};
use credbroker_plugin::Definition;

/// The definitions that were moved out of one kubeconfig.
#[derive(Debug)]
pub(super) struct Moved {
    /// The kubeconfig that identifies them.
    pub(super) origin: PathBuf,
    /// Its path as it was named, which programs that change it lock.
    pub(super) named: PathBuf,
    pub(super) users: Vec<MovedUser>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct MovedUser {
    pub(super) name: String,
    /// The stanza, with an absolute command.
    pub(super) exec: Node,
    /// The text of the stanza in the kubeconfig, and of the one that replaces it.
    pub(super) original: String,
    pub(super) written: String,
    /// The column of their first character.
    pub(super) column: usize,
}

impl MovedUser {
    /// The meaning of `text`, one of the two.
    pub(super) fn meaning(&self, text: &str) -> Option<Node> {
        let text = format!("{}{text}", " ".repeat(self.column));
        document::yaml(text.as_bytes(), Aliases::Refuse).ok()
    }
}

impl Moved {
    /// Where the definitions of `origin` are moved to, in the directory `own`.
    pub(super) fn path(own: &Path, origin: &Path) -> PathBuf {
        let digest = Definition::new(origin.to_owned(), "").digest().to_owned();
        own.join("injected").join(format!("{}.yaml", digest.get(..16).unwrap_or(&digest)))
    }

    /// The files in the directory `own`, sorted.
    pub(super) fn all(own: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let dir = own.join("injected");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", dir.display())),
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
        paths.sort();
        Ok(paths)
    }

    /// Reads the file at `path`; `None`: there is none.
    pub(super) fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let root = document::yaml(&bytes, Aliases::Refuse).ok();
        let moved = root.and_then(|root| Self::parsed(&root));
        let moved = moved.with_context(|| {
            format!(
                "{} is not a file that `credbroker kubeconfig inject` wrote; repair it, or remove it if you do not need the definitions in it",
                path.display()
            )
        })?;
        Ok(Some(moved))
    }

    fn parsed(root: &Node) -> Option<Self> {
        let ours = extension(root, INJECTED)?;
        let users = root.get("users")?.as_sequence()?;
        let moved = ours.get("users")?.as_sequence()?.iter().map(|item| {
            let name_of = name(item)?;
            let user = users.iter().find(|user| name(user) == Some(name_of))?;
            Some(MovedUser {
                name: name_of.to_owned(),
                exec: user.get("user")?.get("exec")?.clone(),
                original: item.get("original")?.as_str()?.to_owned(),
                written: item.get("written")?.as_str()?.to_owned(),
                column: item.get("column")?.as_number()?.parse().ok()?,
            })
        });
        let path = |key: &str| Some(PathBuf::from(ours.get(key)?.as_str()?));
        Some(Self { origin: path("origin")?, named: path("named")?, users: moved.collect::<Option<_>>()? })
    }

    /// Adds `user`, in the place of one of that name.
    pub(super) fn set(&mut self, user: MovedUser) {
        self.users.retain(|known| known.name != user.name);
        self.users.push(user);
    }

    /// Writes the file, for its owner only, because a stanza may contain a secret.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(dir) = path.parent() {
            files::private_directory(dir)?;
        }
        files::write_private(path, &yaml(&self.document())?)
    }

    fn document(&self) -> Node {
        let texts = self.users.iter().map(|user| {
            let entries = vec![
                entry("name", string(user.name.as_str())),
                entry("original", string(user.original.as_str())),
                entry("written", string(user.written.as_str())),
                entry("column", Value::Number(user.column.to_string())),
            ];
            Value::Mapping(entries).into()
        });
        let users = self.users.iter().map(|user| {
            let (user_name, exec) = (user.name.as_str(), entry("exec", user.exec.value.clone()));
            let user = Value::Mapping(vec![exec]);
            Value::Mapping(vec![entry("name", string(user_name)), entry("user", user)]).into()
        });
        let extension = Value::Mapping(vec![
            entry("origin", string(self.origin.to_string_lossy())),
            entry("named", string(self.named.to_string_lossy())),
            entry("users", Value::Sequence(texts.collect())),
        ]);
        let entries = vec![
            entry("apiVersion", string("v1")),
            entry("kind", string("Config")),
            entry("extensions", marks(INJECTED, extension)),
            entry("users", Value::Sequence(users.collect())),
        ];
        Value::Mapping(entries).into()
    }
}
