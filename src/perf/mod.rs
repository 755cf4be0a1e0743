//! Perf events as types: attributes ([`attr`]), an event ([`evsel`]) and its number ([`event_id`]), all events of a run
//! ([`evsels`]) and their descriptors ([`evlist`]), the CPUs and tasks that they watch ([`target`]), why an event is
//! refused ([`refusal`], [`no_tracefs`]), and the records that events write ([`sample_type`], [`record`], [`layout`],
//! [`decode`], [`sample`], [`user_window`]). Safe code only; no profiler is known here.

pub mod attr;
pub mod classes;
pub mod cpu_events;
pub mod decode;
pub mod event_id;
pub mod evlist;
pub mod evsel;
pub mod evsels;
mod ids;
pub mod layout;
pub mod no_tracefs;
pub mod opening;
mod plan;
pub mod record;
pub mod refusal;
pub mod sample;
pub mod sample_type;
pub mod target;
pub mod user_window;

#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod record_tests;

pub use attr::{Attr, Counter};
pub use event_id::EventId;
pub use evlist::Evlist;
pub use evsel::Evsel;
pub use record::Record;
pub use sample::Sample;
pub use target::Target;
