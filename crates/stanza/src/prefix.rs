//! The arguments before the original command.

/// The command of a program that runs the shim as its subcommand starts with this argument.
const SHIM: &str = "shim";
const SEPARATOR: &str = "--";
const PROVIDER: &str = "--provider";
const API_VERSION: &str = "--api-version";
const DIR: &str = "--dir";
const ENV: &str = "--env";
const CLUSTER_INFO: &str = "--cluster-info";
const WAS: &str = "--was";
/// Flags that are the shim's alone. Each has a value.
const OTHERS: [&str; 4] = ["--socket", "--broker-uid", "--timeout", "--fallback"];

/// What the shim's arguments say before the original command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Prefix {
    /// Whether the command is a program that runs the shim as its subcommand `shim`.
    pub is_subcommand: bool,
    /// Name of the user.
    pub provider: String,
    /// Last part of the `apiVersion`, such as `v1beta1`.
    pub api_version: String,
    /// The directory that a relative command is relative to.
    pub dir: Option<String>,
    /// Names of the variables that the original stanza sets.
    pub env: Vec<String>,
    /// Whether the original asked for the cluster.
    pub cluster_info: bool,
    /// Keys whose value is another one now, and their original texts; [`ABSENT`](Self::ABSENT): the stanza did not have the key.
    pub changed: Vec<(String, String)>,
    /// Flags of the shim that say nothing about the original, with their values.
    pub others: Vec<(String, String)>,
}

/// Why arguments cannot be read as those of a brokered stanza. `Display` is one clause.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PrefixError {
    /// It is not a flag that comes before a command.
    #[error("`{}` is not a flag that comes before a command", .0.escape_debug())]
    Unknown(String),
    /// The flag has no value.
    #[error("{} has no value", .0.escape_debug())]
    ValueMissing(String),
    /// The flag is required, or is given twice.
    #[error("{0} must be given once")]
    NotOnce(&'static str),
    /// No command follows the separator.
    #[error("no command follows `{SEPARATOR}`")]
    CommandMissing,
}

impl Prefix {
    /// The text of a key that was not there.
    pub const ABSENT: &'static str = "absent";

    /// Reads the arguments of a stanza that runs the shim; with them, the original command and its arguments. `None`: they
    /// have no separator, so there is no original.
    ///
    /// # Errors
    ///
    /// The arguments before the separator are not such a prefix.
    pub fn parse<T: AsRef<str>>(args: &[T]) -> Result<Option<(Self, &[T])>, PrefixError> {
        let Some(end) = args.iter().position(|arg| arg.as_ref() == SEPARATOR) else { return Ok(None) };
        let (flags, original) =
            (args.get(..end).unwrap_or_default(), args.get(end + 1..).unwrap_or_default());
        if original.is_empty() {
            return Err(PrefixError::CommandMissing);
        }
        let mut flags = flags.iter().map(AsRef::as_ref).peekable();
        let mut prefix = Self { is_subcommand: flags.next_if_eq(&SHIM).is_some(), ..Self::default() };
        let (mut provider, mut api_version, mut cluster_info) = (None, None, None);
        while let Some(arg) = flags.next() {
            let (flag, attached) =
                arg.split_once('=').map_or((arg, None), |(flag, value)| (flag, Some(value)));
            let mut value = || {
                let value = attached.or_else(|| flags.next());
                value.map(str::to_owned).ok_or_else(|| PrefixError::ValueMissing(flag.to_owned()))
            };
            match flag {
                CLUSTER_INFO if attached.is_none() => once(CLUSTER_INFO, &mut cluster_info, ())?,
                PROVIDER => once(PROVIDER, &mut provider, value()?)?,
                API_VERSION => once(API_VERSION, &mut api_version, value()?)?,
                DIR => once(DIR, &mut prefix.dir, value()?)?,
                ENV => prefix.env.push(value()?),
                WAS => {
                    let value = value()?;
                    let missing = || PrefixError::ValueMissing(format!("{WAS} {value}"));
                    let (key, was) = value.split_once('=').ok_or_else(missing)?;
                    prefix.changed.push((key.to_owned(), was.to_owned()));
                }
                _ if OTHERS.contains(&flag) => prefix.others.push((flag.to_owned(), value()?)),
                _ => return Err(PrefixError::Unknown(arg.to_owned())),
            }
        }
        prefix.provider = provider.ok_or(PrefixError::NotOnce(PROVIDER))?;
        prefix.api_version = api_version.ok_or(PrefixError::NotOnce(API_VERSION))?;
        prefix.cluster_info = cluster_info.is_some();
        Ok(Some((prefix, original)))
    }

    /// The arguments, with the separator.
    pub fn to_args(&self) -> Vec<String> {
        let mut args: Vec<_> = self.is_subcommand.then(|| SHIM.to_owned()).into_iter().collect();
        let mut add = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
        add(PROVIDER, &self.provider);
        add(API_VERSION, &self.api_version);
        self.dir.iter().for_each(|dir| add(DIR, dir));
        self.env.iter().for_each(|name| add(ENV, name));
        self.changed.iter().for_each(|(key, was)| add(WAS, &format!("{key}={was}")));
        self.others.iter().for_each(|(flag, value)| add(flag, value));
        args.extend(self.cluster_info.then(|| CLUSTER_INFO.to_owned()));
        args.push(SEPARATOR.to_owned());
        args
    }

    /// The original text of `key`; `None`: it was not changed.
    pub fn was(&self, key: &str) -> Option<&str> {
        self.changed.iter().find_map(|(changed, was)| (changed == key).then_some(was.as_str()))
    }
}

fn once<T>(flag: &'static str, place: &mut Option<T>, value: T) -> Result<(), PrefixError> {
    place.replace(value).map_or(Ok(()), |_| Err(PrefixError::NotOnce(flag)))
}

#[cfg(test)]
mod tests;
