//! Functions of the kernel and of its drivers that a `print fmt` may call and whose result is known here.

use nix::time::{ClockId, clock_getres};

use super::ArgumentParser;
use crate::tep::operators::BinaryOperator;
use crate::tep::print_fmt::Unsupported;
use crate::tep::print_fmt::expr::{CExpr, CType, Call};
use crate::tep::types::IntType;

/// enum xhci_ring_type, drivers/usb/host/xhci.h
const XHCI_RINGS: [&str; 7] = ["CTRL", "ISOC", "BULK", "INTR", "STREAM", "CMD", "EVENT"];

impl ArgumentParser<'_> {
    /// Parses the call of `name`, whose opening bracket is read, up to the closing bracket, which stays unread. None:
    /// an unknown function, or one whose result is unknown for this kernel.
    pub fn kernel_function(&mut self, name: &str) -> Result<Option<CExpr>, Unsupported> {
        match name {
            "jiffies_to_msecs" => {
                let [jiffies] = self.operands()?;
                tick_hz().map(|hz| jiffies_to_msecs(jiffies, hz)).transpose().map(Option::flatten)
            }
            "__le16_to_cpup" => {
                let [pointer] = self.operands()?;
                let value = CExpr::deref(pointer)?;
                if cfg!(target_endian = "big") { self.swapped(value).map(Some) } else { Ok(Some(value)) }
            }
            "__fswab16" => {
                let [value] = self.operands()?;
                self.swapped(value).map(Some)
            }
            "nvme_trace_disk_name" => {
                let [_buffer, name] = self.operands()?;
                CExpr::call(Call::DiskName { name }).map(Some)
            }
            "xhci_ring_type_string" => {
                let [value] = self.operands()?;
                CExpr::call(Call::Named { value, names: &XHCI_RINGS, other: "UNKNOWN" }).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The two bytes of `value` the other way round.
    fn swapped(&mut self, value: CExpr) -> Result<CExpr, Unsupported> {
        let value = CExpr::cast(value, CType::Int(IntType::unsigned(2)))?;
        let number = |value| CExpr::constant(value, IntType::INT);
        let low = CExpr::binary(BinaryOperator::ShiftLeft, self.copy(&value)?, number(8))?;
        let high = CExpr::binary(BinaryOperator::ShiftRight, value, number(8))?;
        CExpr::cast(CExpr::binary(BinaryOperator::BitOr, low, high)?, CType::Int(IntType::unsigned(2)))
    }
}

/// kernel/time/time.c. None for a frequency whose rounding differed between kernels.
fn jiffies_to_msecs(jiffies: CExpr, hz: u64) -> Result<Option<CExpr>, Unsupported> {
    const MSEC_PER_SEC: u64 = 1000;
    let number = |value| CExpr::constant(value, IntType::U64);
    let msecs = if hz <= MSEC_PER_SEC && MSEC_PER_SEC.is_multiple_of(hz) {
        CExpr::binary(BinaryOperator::Multiply, number(MSEC_PER_SEC / hz), jiffies)?
    } else if hz.is_multiple_of(MSEC_PER_SEC) {
        let ticks = hz / MSEC_PER_SEC;
        CExpr::binary(
            BinaryOperator::Divide,
            CExpr::binary(BinaryOperator::Add, jiffies, number(ticks - 1))?,
            number(ticks),
        )?
    } else {
        return Ok(None);
    };
    CExpr::cast(msecs, CType::Int(IntType::unsigned(4))).map(Some)
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
            let expr = jiffies_to_msecs(CExpr::constant(jiffies, IntType::U64), hz).unwrap();
            assert_eq!(expr.and_then(|expr| expr.as_const()), want, "{jiffies} at {hz} Hz");
        }
        assert!(tick_hz().is_some_and(|hz| (24..=10_000).contains(&hz)));
    }

    #[test]
    fn a_frequency_of_unknown_rounding_is_refused() {
        assert!(matches!(jiffies_to_msecs(CExpr::bad("x"), 300), Ok(None)));
        assert!(matches!(jiffies_to_msecs(CExpr::bad("x"), 100), Ok(Some(CExpr { op: COp::Cast(_), .. }))));
    }
}
