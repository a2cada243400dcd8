//! Exact fractions: frame rates and time bases are never floats.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A fraction in lowest terms with a positive denominator, written `30000/1001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Rational {
    num: i64,
    den: i64,
}

impl Rational {
    /// `None` when the denominator is not positive or a value is out of range.
    pub fn new(num: i64, den: i64) -> Option<Self> {
        if den <= 0 || num == i64::MIN {
            return None;
        }
        let divisor = greatest_common_divisor(num.unsigned_abs(), den.unsigned_abs()).max(1);
        let divisor = i64::try_from(divisor).ok()?;
        Some(Self { num: num / divisor, den: den / divisor })
    }

    pub const ONE: Self = Self { num: 1, den: 1 };

    /// A whole number.
    pub const fn whole(number: i64) -> Self {
        Self { num: number, den: 1 }
    }

    pub fn num(self) -> i64 {
        self.num
    }

    pub fn den(self) -> i64 {
        self.den
    }

    pub fn is_positive(self) -> bool {
        self.num > 0
    }

    pub fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }

    pub fn is_above(self, other: Self) -> bool {
        i128::from(self.num) * i128::from(other.den) > i128::from(other.num) * i128::from(self.den)
    }

    /// `value * self`, rounded half up; `None` when it does not fit.
    pub fn scale(self, value: i64) -> Option<i64> {
        let product = i128::from(value) * i128::from(self.num);
        let den = i128::from(self.den);
        i64::try_from((2 * product + den).div_euclid(2 * den)).ok()
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.num, self.den)
    }
}

/// The text was not `a/b`, `a:b` or `a` with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a fraction such as 30000/1001")]
pub struct NotRational;

impl FromStr for Rational {
    type Err = NotRational;

    fn from_str(text: &str) -> Result<Self, NotRational> {
        let (num, den) = text.split_once(['/', ':']).unwrap_or((text, "1"));
        let num = num.parse().map_err(|_| NotRational)?;
        let den = den.parse().map_err(|_| NotRational)?;
        Self::new(num, den).ok_or(NotRational)
    }
}

impl From<Rational> for String {
    fn from(value: Rational) -> Self {
        value.to_string()
    }
}

impl TryFrom<String> for Rational {
    type Error = NotRational;

    fn try_from(text: String) -> Result<Self, NotRational> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_kept_in_lowest_terms() {
        assert_eq!("60000/2002".parse::<Rational>(), Ok("30000/1001".parse().unwrap()));
        assert_eq!(Rational::new(0, 7).unwrap().to_string(), "0/1");
    }

    #[test]
    fn a_zero_denominator_is_no_fraction() {
        assert_eq!("0/0".parse::<Rational>(), Err(NotRational));
        assert_eq!("30:0".parse::<Rational>(), Err(NotRational));
    }

    #[test]
    fn scaling_rounds_half_up_and_never_overflows() {
        let half = Rational::new(1, 2).unwrap();
        assert_eq!(half.scale(3), Some(2));
        assert_eq!(half.scale(-3), Some(-1));
        assert_eq!(Rational::new(i64::MAX, 1).unwrap().scale(2), None);
    }
}
