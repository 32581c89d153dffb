//! Numbers of bytes as Kubernetes writes quantities.

use crate::decimal::Decimal;

/// A regular expression for sizes above zero, in the dialect of JSON Schema.
pub const PATTERN: &str = "^\\+?([0-9]*[1-9][0-9]*(\\.[0-9]*)?|[0-9]*\\.[0-9]*[1-9][0-9]*)\
     (Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|[eE]\\+?[0-9]{1,2})?$";

/// From the largest to the smallest.
const BINARY: [(&str, u64); 6] =
    [("Ei", 1 << 60), ("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
const DECIMAL: [(&str, u64); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// Why a text is not a size. The message never quotes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// There is no text.
    #[error("it is empty")]
    Empty,
    /// Not a number with a unit.
    #[error("expected a number, with a unit or without")]
    Syntax,
    /// Not a unit of size.
    #[error(
        "unknown unit; the units are `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`, `k`, `M`, `G`, `T`, `P` and `E`"
    )]
    UnitUnknown,
    /// A unit that is less than a byte.
    #[error("`m` means thousandths; for mebibytes, write `Mi`")]
    Milli,
    /// Not whole bytes.
    #[error("it is not a whole number of bytes")]
    NotWhole,
    /// Below zero.
    #[error("it is negative")]
    Negative,
    /// More than 64 bits hold.
    #[error("it is more than 16Ei - 1")]
    TooLarge,
}

/// Parses `64Mi`, `1.5Gi`, `500k`, `1e6` or a number of bytes.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    if text.starts_with('-') {
        return Err(SizeError::Negative);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    let (number, name) = Decimal::split(text).ok_or(SizeError::Syntax)?;
    let product = number.times(unit(name)?).ok_or(SizeError::TooLarge)?;
    if product.is_exact { Ok(product.value) } else { Err(SizeError::NotWhole) }
}

fn unit(name: &str) -> Result<u64, SizeError> {
    let named = BINARY.iter().chain(&DECIMAL).find(|(known, _)| *known == name);
    match (name, named) {
        ("", _) => Ok(1),
        ("m", _) => Err(SizeError::Milli),
        (_, Some((_, unit))) => Ok(*unit),
        _ => {
            let exponent = name.strip_prefix(['e', 'E']).ok_or(SizeError::UnitUnknown)?;
            let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
            let is_number = (1..=2).contains(&exponent.len()) && exponent.bytes().all(|b| b.is_ascii_digit());
            let exponent = exponent.parse().ok().filter(|_| is_number).ok_or(SizeError::UnitUnknown)?;
            10_u64.checked_pow(exponent).ok_or(SizeError::TooLarge)
        }
    }
}

/// The shortest text without a fraction; of two equally short ones the one with a binary unit.
pub fn text(bytes: u64) -> String {
    let with = |units: &[(&str, u64)]| {
        let divisor = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
        divisor.map(|(name, unit)| format!("{}{name}", bytes / unit))
    };
    let digits = |text: &String| text.bytes().filter(u8::is_ascii_digit).count();
    let texts = [with(&BINARY), with(&DECIMAL), Some(bytes.to_string())];
    texts.into_iter().flatten().min_by_key(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests;
