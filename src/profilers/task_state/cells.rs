//! The interrupt that has woken a task.

use crate::report::{Cell, CellLookUps, Value};
use crate::symbol::StackId;
use crate::symbol::naming::interrupt;
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
