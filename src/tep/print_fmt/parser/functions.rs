//! Functions of the kernel and of its drivers that a `print fmt` may call and whose result is known here.

use nix::time::{ClockId, clock_getres};

use super::ArgumentParser;
use crate::tep::operators::BinaryOperator;
use crate::tep::print_fmt::Unsupported;
use crate::tep::print_fmt::expr::{BitFunction, CExpr, CType, CUnary, Call};
use crate::tep::types::IntType;

const MSEC_PER_SEC: u64 = 1000;
const USEC_PER_SEC: u64 = 1_000_000;
/// enum xhci_ring_type, drivers/usb/host/xhci.h
const XHCI_RINGS: [&str; 7] = ["CTRL", "ISOC", "BULK", "INTR", "STREAM", "CMD", "EVENT"];

impl ArgumentParser<'_> {
    /// Parses the call of `name`, whose opening bracket is read, up to the closing bracket, which stays unread. None:
    /// an unknown function, or one whose result is unknown for this kernel.
    pub fn kernel_function(&mut self, name: &str) -> Result<Option<CExpr>, Unsupported> {
        match name {
            "jiffies_to_msecs" => self.jiffies_to(MSEC_PER_SEC),
            "jiffies_to_usecs" => self.jiffies_to(USEC_PER_SEC),
            "ktime_to_ns" => self.divided(IntType::signed(8), Some(1)),
            "ktime_to_us" => self.divided(IntType::signed(8), Some(1000)),
            "ktime_to_ms" => self.divided(IntType::signed(8), Some(1_000_000)),
            "div_u64" | "div64_u64" => self.divided(IntType::U64, None),
            "div_s64" | "div64_s64" => self.divided(IntType::signed(8), None),
            "nvme_trace_disk_name" => {
                let [_buffer, name] = self.operands()?;
                CExpr::call(Call::DiskName { name }).map(Some)
            }
            "xhci_ring_type_string" => {
                let [value] = self.operands()?;
                CExpr::call(Call::Named { value, names: &XHCI_RINGS, other: "UNKNOWN" }).map(Some)
            }
            name => match self.bit_function(name) {
                Some((function, operand, result)) => {
                    let [value] = self.operands()?;
                    let value = CExpr::cast(value, CType::Int(operand))?;
                    CExpr::cast(CExpr::unary(CUnary::Bits(function), value)?, CType::Int(result)).map(Some)
                }
                None => self.load(name),
            },
        }
    }

    /// The function of bits that `name` is, the type of its operand and of its result. Source: the manual of GCC,
    /// include/linux/bitops.h and include/uapi/linux/swab.h.
    fn bit_function(&self, name: &str) -> Option<(BitFunction, IntType, IntType)> {
        let (uint, long) = (IntType::unsigned(4), IntType::unsigned(self.long));
        Some(match name {
            "__builtin_ffs" | "ffs" => (BitFunction::FirstSet, uint, IntType::INT),
            "__builtin_ffsl" => (BitFunction::FirstSet, long, IntType::INT),
            "__builtin_ffsll" => (BitFunction::FirstSet, IntType::U64, IntType::INT),
            "fls" => (BitFunction::LastSet, uint, IntType::INT),
            "fls64" => (BitFunction::LastSet, IntType::U64, IntType::INT),
            "__builtin_ctz" => (BitFunction::TrailingZeros, uint, IntType::INT),
            "__builtin_ctzl" => (BitFunction::TrailingZeros, long, IntType::INT),
            "__builtin_ctzll" => (BitFunction::TrailingZeros, IntType::U64, IntType::INT),
            "__ffs" => (BitFunction::TrailingZeros, long, long),
            "__builtin_clz" => (BitFunction::LeadingZeros, uint, IntType::INT),
            "__builtin_clzl" => (BitFunction::LeadingZeros, long, IntType::INT),
            "__builtin_clzll" => (BitFunction::LeadingZeros, IntType::U64, IntType::INT),
            "__fls" => (BitFunction::HighestBit, long, long),
            "__ilog2_u32" => (BitFunction::HighestBit, uint, IntType::INT),
            "__ilog2_u64" => (BitFunction::HighestBit, IntType::U64, IntType::INT),
            "__builtin_popcount" => (BitFunction::CountOnes, uint, IntType::INT),
            "__builtin_popcountl" => (BitFunction::CountOnes, long, IntType::INT),
            "__builtin_popcountll" => (BitFunction::CountOnes, IntType::U64, IntType::INT),
            name => match split_at_bits(name)? {
                ("__builtin_bswap" | "__fswab" | "__swab" | "__arch_swab", ty, "") => (BitFunction::SwapBytes, ty, ty),
                ("__arch_hweight" | "__sw_hweight", ty, "") => (BitFunction::CountOnes, ty, uint),
                _ => return None,
            },
        })
    }

    /// A function that loads a number of one byte order.
    fn load(&mut self, name: &str) -> Result<Option<CExpr>, Unsupported> {
        let Some((stem, ty, end)) = split_at_bits(name) else { return Ok(None) };
        let swaps = match (stem, end) {
            ("__le", "_to_cpup") | ("get_unaligned_le", "") => cfg!(target_endian = "big"),
            ("__be", "_to_cpup") | ("get_unaligned_be", "") => cfg!(target_endian = "little"),
            ("__swab", "p") => true,
            _ => return Ok(None),
        };
        let [pointer] = self.operands()?;
        let value = CExpr::deref(CExpr::cast(pointer, CType::Pointer(Some(ty)))?)?;
        Ok(Some(if swaps { CExpr::unary(CUnary::Bits(BitFunction::SwapBytes), value)? } else { value }))
    }

    /// A number of this type, divided by `divisor` or by a second operand.
    fn divided(&mut self, ty: IntType, divisor: Option<u64>) -> Result<Option<CExpr>, Unsupported> {
        let (value, divisor) = match divisor {
            Some(divisor) => {
                let [value] = self.operands()?;
                (value, CExpr::constant(divisor, ty))
            }
            None => {
                let [value, divisor] = self.operands()?;
                (value, CExpr::cast(divisor, CType::Int(ty))?)
            }
        };
        CExpr::binary(BinaryOperator::Divide, CExpr::cast(value, CType::Int(ty))?, divisor).map(Some)
    }

    fn jiffies_to(&mut self, units_per_sec: u64) -> Result<Option<CExpr>, Unsupported> {
        let [jiffies] = self.operands()?;
        tick_hz().map(|hz| jiffies_to(units_per_sec, jiffies, hz)).transpose().map(Option::flatten)
    }
}

/// Splits `__be32_to_cpup` into the text before the number of bits, the unsigned integer type of that size, and the
/// text behind.
fn split_at_bits(name: &str) -> Option<(&str, IntType, &str)> {
    let (stem, digits) = name.split_at_checked(name.find(|c: char| c.is_ascii_digit())?)?;
    let (bits, end) = digits.split_at_checked(digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()))?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some((stem, IntType::unsigned(bytes), end))
}

/// kernel/time/time.c. None for a frequency whose rounding differed between kernels.
fn jiffies_to(units_per_sec: u64, jiffies: CExpr, hz: u64) -> Result<Option<CExpr>, Unsupported> {
    let number = |value| CExpr::constant(value, IntType::U64);
    let units = if hz <= units_per_sec && units_per_sec.is_multiple_of(hz) {
        CExpr::binary(BinaryOperator::Multiply, number(units_per_sec / hz), jiffies)?
    } else if hz.is_multiple_of(units_per_sec) {
        let ticks = hz / units_per_sec;
        CExpr::binary(
            BinaryOperator::Divide,
            CExpr::binary(BinaryOperator::Add, jiffies, number(ticks - 1))?,
            number(ticks),
        )?
    } else {
        return Ok(None);
    };
    CExpr::cast(units, CType::Int(IntType::unsigned(4))).map(Some)
}

/// CONFIG_HZ of the running kernel: the resolution of its coarse clocks is one tick.
fn tick_hz() -> Option<u64> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let nanos = u64::try_from(tick.tv_nsec()).ok().filter(|nanos| *nanos > 0 && tick.tv_sec() == 0)?;
    Some((1_000_000_000 + nanos / 2) / nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tep::print_fmt::expr::COp;

    #[test]
    fn counts_milliseconds_as_the_kernel_does() {
        let cases: [(u64, u64, Option<u64>); 6] = [
            (100, 7, Some(70)),
            (250, 7, Some(28)),
            (1000, 7, Some(7)),
            (2000, 7, Some(4)),
            (300, 7, None),
            (250, 1 << 31, Some(0)),
        ];
        for (hz, jiffies, want) in cases {
            let expr = jiffies_to(MSEC_PER_SEC, CExpr::constant(jiffies, IntType::U64), hz).unwrap();
            assert_eq!(expr.and_then(|expr| expr.as_const()), want, "{jiffies} at {hz} Hz");
        }
        assert!(tick_hz().is_some_and(|hz| (24..=10_000).contains(&hz)));
    }

    #[test]
    fn a_frequency_of_unknown_rounding_is_refused() {
        assert!(matches!(jiffies_to(MSEC_PER_SEC, CExpr::bad("x"), 300), Ok(None)));
        assert!(matches!(jiffies_to(MSEC_PER_SEC, CExpr::bad("x"), 100), Ok(Some(CExpr { op: COp::Cast(_), .. }))));
    }
}
