//! The interrupt that has woken a task, and the functions in which another task was meanwhile.

use crate::report::{Cell, CellLookUps, Value};
use crate::symbol::StackId;
use crate::symbol::naming::interrupt;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::names::KERNEL;
use crate::tep::context::Interruption;

/// An interrupt, by its kind and the stack of its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakingInterrupt(pub Interruption, pub Option<StackId>);

impl Cell for WakingInterrupt {
    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let WakingInterrupt(kind, stack) = *self;
        let frames = stack.map_or_else(Vec::new, |stack| look_ups.frames(stack));
        Some(interrupt::name(kind, &frames).map_or(Value::None, |name| Value::Text(name.into())))
    }
}

/// The functions of the program in which a task was, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callers(pub StackId);

impl Cell for Callers {
    fn looked_up(&self, look_ups: &mut dyn CellLookUps) -> Option<Value> {
        let text = callers(&look_ups.frames(self.0));
        Some(if text.is_empty() { Value::None } else { Value::Text(text.into()) })
    }
}

/// `sleep < backOff < sync`: the innermost functions of the program. Of an interpreted program, those that its author
/// wrote.
fn callers(frames: &[NamedFrame]) -> String {
    const MAX_FUNCTIONS: usize = 4;
    const MAX_CHARS: usize = 60;
    let is_kernel = |frame: &NamedFrame| frame.module.as_deref().is_some_and(|module| module == KERNEL);
    let user = || frames.iter().filter(|frame| !is_kernel(frame) && frame.symbol.is_ok());
    let Some(innermost) = user().next() else { return String::new() };
    // Without the functions of libc between the innermost one and the program.
    let outside = || user().filter(|frame| frame.module != innermost.module);
    let of_script = || user().filter(|frame| frame.line.is_some());
    let callers: Vec<&NamedFrame> = if of_script().next().is_some() {
        of_script().collect()
    } else if outside().next().is_some() {
        outside().collect()
    } else {
        user().skip(1).collect()
    };
    let told: Vec<&NamedFrame> = std::iter::once(innermost).chain(callers).collect();
    let names = told.iter().take(MAX_FUNCTIONS).filter_map(|frame| frame.symbol.as_deref().ok());
    let names: Vec<String> = names
        .map(|name| match name.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}...", &name[..end]),
            None => name.to_owned(),
        })
        .collect();
    names.join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_the_program_are_told() {
        let frame = |name: &str, module: &str| NamedFrame::new(Ok(name.into()), 1, Some(module.into()));
        let python = |name: &str| NamedFrame { line: Some(7), ..frame(name, "x.py") };
        let kernel = || frame("do_nanosleep", KERNEL);
        let libc = |name| frame(name, "libc.so.6");
        let native = [kernel(), libc("clock_nanosleep"), libc("nanosleep"), frame("rest", "shop"), libc("qsort")];
        assert_eq!(callers(&native), "clock_nanosleep < rest");
        let own = ["futex", "wait", "take", "sell", "main"].map(|name| frame(name, "shop"));
        assert_eq!(callers(&own), "futex < wait < take < sell");
        let script =
            [kernel(), frame("clock_nanosleep", "libc.so.6"), frame("time_sleep", "python3"), python("back_off")];
        assert_eq!(callers(&script), "clock_nanosleep < back_off");
        assert_eq!(callers(&[kernel()]), "");
        assert_eq!(callers(&[frame(&"€".repeat(61), "a")]), format!("{}...", "€".repeat(60)));
    }
}
