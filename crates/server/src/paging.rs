//! Pages of lists, as AIP-158 defines them.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher as _},
};

use prost::Message;
use serde::{Serialize, de::DeserializeOwned};
use tonic::Status;

use super::status;

/// Maximum number of rows in a page, and of its bytes: many clients limit a message to 4 MiB, and a slow reader keeps it in
/// memory.
const ROWS: usize = 1_000;
const BYTES: usize = 256 * 1024;

/// Size of the pages that a request asks for, and the list that they are from.
#[derive(Debug)]
pub(super) struct Paging {
    rows: usize,
    /// Prefix of the list's page tokens: the name of the list and a hash of the filter.
    list: String,
}

impl Paging {
    /// Reads a request for the rows of list `name` that match `filter`. Also returns the position where the previous page
    /// ended, which must be one of the same list and filter.
    pub(super) fn read<P: DeserializeOwned>(
        name: &str,
        filter: &impl Hash,
        page_size: i32,
        page_token: Option<&str>,
    ) -> Result<(Self, Option<P>), Status> {
        let size = usize::try_from(page_size)
            .map_err(|_negative| status::invalid("`page_size` must not be negative"))?;
        let rows = if size == 0 { ROWS } else { size.min(ROWS) };
        // A token may come from another release. If that release computes another hash, the token is refused, and the
        // client lists again.
        let mut hasher = DefaultHasher::new();
        filter.hash(&mut hasher);
        let paging = Self { rows, list: format!("{name}.{:016x}.", hasher.finish()) };
        let after = match page_token {
            None => None,
            Some(token) => {
                let position = token.strip_prefix(&paging.list);
                let position = position.and_then(|position| serde_json::from_str(position).ok());
                let foreign = "`page_token` must be the `next_page_token` of a response to the same request";
                Some(position.ok_or_else(|| status::invalid(foreign))?)
            }
        };
        Ok((paging, after))
    }

    /// Takes as many of `rows`, each with its position in the list, as fit. Also returns the token of the next page. A
    /// row that is larger than a page gets a separate page.
    pub(super) fn fill<T: Message, P: Serialize>(
        &self,
        rows: impl Iterator<Item = (T, P)>,
    ) -> (Vec<T>, Option<String>) {
        let (mut page, mut size, mut last) = (Vec::new(), 0, None);
        for (row, at) in rows {
            size += row.encoded_len();
            if (size > BYTES || page.len() == self.rows)
                && let Some(last) = last
            {
                let position = serde_json::to_string(&last).unwrap_or_default(); // never fails: strings and numbers
                return (page, Some(format!("{}{position}", self.list)));
            }
            page.push(row);
            last = Some(at);
        }
        (page, None)
    }
}

#[cfg(test)]
mod tests;
