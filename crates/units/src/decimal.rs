//! A decimal number without a sign, times a unit.

/// A number such as `1`, `1.5`, `1.` or `.5`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal<'a> {
    pub(crate) text: &'a str,
    whole: &'a str,
    fraction: &'a str,
}

/// The product of a number and a unit, rounded down.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Product {
    pub(crate) value: u64,
    pub(crate) is_exact: bool,
}

impl<'a> Decimal<'a> {
    /// The number at the start of `text`, and what follows it. `None`: there is no digit.
    pub(crate) fn split(text: &'a str) -> Option<(Self, &'a str)> {
        let digits = |text: &'a str| text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        let (whole, after_whole) = digits(text);
        let (fraction, rest) = after_whole.strip_prefix('.').map_or(("", after_whole), digits);
        let number = text.get(..text.len() - rest.len())?;
        let has_digit = !(whole.is_empty() && fraction.is_empty());
        has_digit.then_some((Self { text: number, whole, fraction }, rest))
    }

    /// `None`: the product is more than a `u64` holds.
    pub(crate) fn times(self, unit: u64) -> Option<Product> {
        let value = |digit: u8| u64::from(digit.wrapping_sub(b'0'));
        let append = |number: u64, digit| number.checked_mul(10)?.checked_add(value(digit));
        let whole = self.whole.bytes().try_fold(0, append)?;
        // From the last digit to the first, rounding down in each step is the same as rounding down once.
        let (mut part, mut is_exact) = (0_u64, true);
        for digit in self.fraction.bytes().rev() {
            let tenths = unit.checked_mul(value(digit))?.checked_add(part)?;
            is_exact &= tenths % 10 == 0;
            part = tenths / 10;
        }
        Some(Product { value: whole.checked_mul(unit)?.checked_add(part)?, is_exact })
    }
}
