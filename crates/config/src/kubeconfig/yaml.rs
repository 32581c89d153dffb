//! Writes a document as YAML that a YAML 1.1 parser (kubectl's) and a YAML 1.2 parser read back unchanged.

use credbroker_credential::document::Node;

/// The document in block style. A string that YAML 1.1 or 1.2 could read as another value is in quotes.
///
/// # Errors
///
/// It cannot be written.
pub fn yaml(node: &Node) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(node, options)
}
