//! Single occurrences as text or JSON. In text, a flood of equal occurrences is a few lines.

use std::io::{self, Write};

use crate::escape::{escape_from, escape_into};
use crate::output::event_text::EventText;
use crate::output::json::ViewLabel;
use crate::output::stack_weights::top;
use crate::output::text::flood::{Flood, FloodGroup, Groupable, HeldGroups};
use crate::output::text::stack_numbers::StackMention;
use crate::output::text::{call_text, frames};
use crate::output::writer::{Writer, name_values};
use crate::output::{json, text};
use crate::report::{ArgumentTexts, Batch, Occurrence, OccurrenceBody, Value};
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::naming::names::KERNEL;
use crate::symbol::stacks::key::StackKey;
use crate::symbol::{FrameNames, StackId};
use crate::sys;
use crate::tep::format::fields_text::render_fields;
use crate::tep::print_fmt;
use crate::tep::tracefs::strings::KernelStrings;

/// Most groups printed at once.
const MAX_GROUPS: usize = 20;
/// Most lines printed at once, frames of stacks included. The last group may exceed it.
const MAX_LINES: u32 = 100;

/// Names of kernel addresses for print formats.
struct KernelNames<'a> {
    names: std::cell::RefCell<&'a mut FrameNames>,
    strings: &'a KernelStrings,
}

impl print_fmt::KernelLookup for KernelNames<'_> {
    fn kernel_symbol(&self, addr: u64, out: &mut Vec<u8>, with_offset: bool) -> bool {
        let Ok(mut names) = self.names.try_borrow_mut() else { return false };
        let named = names.kernel_or_data(addr);
        let Ok(symbol) = &named.symbol else { return false };
        out.extend_from_slice(symbol.as_bytes());
        // As __sprint_symbol in kernel/kallsyms.c; writing to a Vec cannot fail.
        if with_offset {
            let _ = write!(out, "+{:#x}", named.offset);
            let _ = names.kernel_size(addr).map(|size| write!(out, "/{size:#x}"));
        }
        if let Some(module) = named.module.filter(|module| &**module != KERNEL) {
            let _ = write!(out, " [{module}]");
        }
        true
    }

    fn kernel_text(&self, addr: u64, out: &mut Vec<u8>) -> bool {
        let text = self.strings.get(addr);
        out.extend_from_slice(text.unwrap_or_default());
        text.is_some()
    }
}

impl Writer {
    pub(super) fn occurrences(&mut self, batch: &Batch) -> io::Result<()> {
        if self.outlet.sink.is_over() {
            return Ok(());
        }
        let mut groupable_left = None;
        for (index, occurrence) in batch.occurrences.iter().enumerate() {
            if self.settings.json {
                self.json_occurrence(occurrence, batch);
            } else if let Some(one) = self.groupable(occurrence, batch) {
                let all_left = || batch.occurrences[index..].iter().filter(|next| is_groupable(next)).count();
                let left = groupable_left.get_or_insert_with(all_left);
                self.text_groupable(&one, *left)?;
                *left = left.saturating_sub(1);
            } else {
                self.text_occurrence(occurrence, batch)?;
            }
            self.outlet.sink.flush_large()?;
        }
        Ok(())
    }

    fn groupable<'a>(&self, occurrence: &'a Occurrence, batch: &'a Batch) -> Option<Groupable<'a>> {
        let OccurrenceBody::Detailed { layout, values } = &occurrence.body else { return None };
        let grouping = layout.grouping.as_ref().filter(|_| !self.settings.prompt)?;
        let Occurrence { view, subject, stack, .. } = occurrence;
        Some(Groupable { view: *view, subject, layout, grouping, values: values.of(&batch.values), stack: *stack })
    }

    /// Writes an occurrence of a kind that is grouped in floods. `at_once` of them arrive together, this one included.
    fn text_groupable(&mut self, one: &Groupable<'_>, at_once: usize) -> io::Result<()> {
        let now = sys::monotonic_ns();
        let key = StackKey::of(one.stack, &self.stacks.frames);
        let below = self.lines_below(&key);
        let Some(view) = self.views.get_mut(usize::from(one.view)) else { return Ok(()) };
        if let Some(folding) = one.grouping.folding.filter(|folding| one.is(folding.folded)) {
            if !one.is(folding.again) {
                view.folded_waits.fold(now, *one, key);
            }
            return Ok(());
        }
        if view.flood.is_on(now, at_once) {
            let is_new = view.flood.hold(now, *one, key);
            view.flood.record_arrival(now, 1 + if is_new { below } else { 0 });
            return Ok(());
        }
        let start = self.outlet.sink.buffer.len();
        self.line_head(usize::from(one.view), one.subject.time);
        let named = name_values(&mut self.stacks, &mut self.look_ups, one.values);
        text::occurrence(one.subject, one.layout, &named, &mut self.outlet.sink.buffer);
        self.text_stack(one.stack, &key);
        let lines = self.above.stack_numbers.passed(&self.outlet.sink.buffer[start..]);
        self.views
            .iter_mut()
            .skip(usize::from(one.view))
            .take(1)
            .for_each(|view| view.flood.record_arrival(now, lines));
        Ok(())
    }

    /// Number of lines of frames that a line with this stack would have.
    fn lines_below(&self, key: &StackKey) -> u32 {
        if self.above.stack_numbers.is_above(key) { 0 } else { key.frames() }
    }

    /// Ends a line with its stack: the frames, or the number of the stack above.
    fn text_stack(&mut self, stack: Option<StackId>, key: &StackKey) {
        let out = &mut self.outlet.sink.buffer;
        let mention = self.above.stack_numbers.mention(key);
        if let Some(mention) = mention {
            text::stack_mention(mention, out);
        }
        out.push(b'\n');
        if let Some(id) = stack.filter(|_| !matches!(mention, Some(StackMention::Above(_)))) {
            let frames = self.stacks.name(id);
            frames::stack(&frames, out);
            if frames.iter().any(NamedFrame::is_given_up) {
                self.above.stack_numbers.print_again(key);
            }
        }
    }

    /// When the held groups of a flood are to be printed.
    pub fn held_until(&self) -> Option<u64> {
        self.views.iter().flat_map(|view| [&view.flood, &view.folded_waits]).filter_map(Flood::due_at).min()
    }

    /// Prints the held groups of a flood, if it is time to.
    pub fn print_due(&mut self) -> io::Result<()> {
        let now = sys::monotonic_ns();
        if self.held_until().is_some_and(|due| now >= due) {
            self.start(false);
            self.print_held_until(now)?;
            self.note_given_up_names()?;
        }
        Ok(())
    }

    /// Prints the held groups of a flood, before output that is later than they are, or counts them.
    pub fn print_held(&mut self) -> io::Result<()> {
        self.print_held_until(u64::MAX)
    }

    /// Prints the groups that are to be printed until then.
    fn print_held_until(&mut self, due_ns: u64) -> io::Result<()> {
        for index in 0..self.views.len() {
            let is_due = |flood: &&mut Flood| flood.due_at().is_some_and(|due| due <= due_ns);
            let floods = self.views[index].floods_mut().into_iter().filter(is_due);
            let held: Vec<HeldGroups> = floods.map(|flood| flood.take(sys::monotonic_ns())).collect();
            held.into_iter().try_for_each(|held| self.print_groups(index, held))?;
        }
        Ok(())
    }

    fn print_groups(&mut self, view: usize, mut held: HeldGroups) -> io::Result<()> {
        if self.outlet.sink.is_over() {
            return Ok(());
        }
        // Folded ones come seldom.
        let (groups, lines) = if held.are_folded() { (2 * MAX_GROUPS, 2 * MAX_LINES) } else { (MAX_GROUPS, MAX_LINES) };
        held.choose(groups, lines, |group| 1 + self.lines_below(&group.stack_key));
        held.groups.iter().for_each(|group| self.text_group(view, group));
        let start = self.outlet.sink.buffer.len();
        held.rests.iter().for_each(|rest| text::rest(rest, &mut self.outlet.sink.buffer));
        self.above.stack_numbers.passed(&self.outlet.sink.buffer[start..]);
        self.outlet.sink.flush_large()
    }

    /// Begins a line: with the time of day, and the name of the view where there are several.
    fn line_head(&mut self, view: usize, time_ns: u64) {
        let out = &mut self.outlet.sink.buffer;
        self.outlet.wall.text(time_ns, out);
        out.push(b' ');
        if let Some(view) = self.views.get(view).filter(|_| self.views.len() > 1) {
            escape_into(view.settings.name.as_bytes(), out);
            out.extend_from_slice(b": ");
        }
    }

    fn text_group(&mut self, view: usize, group: &FloodGroup) {
        let start = self.outlet.sink.buffer.len();
        self.line_head(view, group.subject.time);
        let named = group.told_values(|values| name_values(&mut self.stacks, &mut self.look_ups, values).into_owned());
        text::group(group, &named, &mut self.outlet.sink.buffer);
        self.text_stack(group.stack, &group.stack_key);
        self.above.stack_numbers.passed(&self.outlet.sink.buffer[start..]);
    }

    fn text_occurrence(&mut self, occurrence: &Occurrence, batch: &Batch) -> io::Result<()> {
        self.line_head(usize::from(occurrence.view), occurrence.subject.time);
        let out = &mut self.outlet.sink.buffer;
        match &occurrence.body {
            OccurrenceBody::Event { event, raw, beside } => {
                let values = beside.of(&batch.values);
                let named = name_values(&mut self.stacks, &mut self.look_ups, values);
                let beside = || named.iter().filter_map(Value::as_cell);
                beside().for_each(|cell| cell.before_event(out));
                if let Some(Some(event)) = self.settings.events.get(event.index()) {
                    let texts = self.look_ups.record_strings.texts(event, occurrence.subject.pid, raw.of(&batch.raw));
                    text::event_head(&occurrence.subject, text::latency_flags(event, texts.raw), out);
                    out.extend_from_slice(&event.label);
                    let start = render(event, texts, &mut self.stacks.names, &self.settings.strings, out);
                    escape_from(start, out);
                }
                beside().for_each(|cell| cell.behind_event(out));
            }
            OccurrenceBody::Detailed { layout, values } | OccurrenceBody::Weighted { layout, values, .. } => {
                let values = values.of(&batch.values);
                let named = name_values(&mut self.stacks, &mut self.look_ups, values);
                text::occurrence(&occurrence.subject, layout, &named, out);
            }
        }
        out.push(b'\n');
        if self.settings.prompt {
            self.outlet.sink.flush()?;
        }
        if let OccurrenceBody::Weighted { weights, .. } = &occurrence.body {
            let folded = self.stacks.fold(weights.of(&batch.weights));
            top::stacks_of_one(&folded, &mut self.outlet.sink.buffer);
        }
        if let Some(id) = occurrence.stack {
            let frames = self.stacks.name(id);
            frames::stack(&frames, &mut self.outlet.sink.buffer);
        }
        Ok(())
    }

    fn json_occurrence(&mut self, occurrence: &Occurrence, batch: &Batch) {
        let view = usize::from(occurrence.view);
        let label = ViewLabel::of(&self.views, view);
        let out = &mut self.outlet.sink.buffer;
        let mut object = json::head(out, "event", label, occurrence.subject.time, &mut self.outlet.wall);
        json::subject(&mut object, &occurrence.subject);
        match &occurrence.body {
            OccurrenceBody::Event { event, raw, beside } => {
                let values = beside.of(&batch.values);
                let beside = name_values(&mut self.stacks, &mut self.look_ups, values);
                if let Some(Some(event)) = self.settings.events.get(event.index()) {
                    let texts = self.look_ups.record_strings.texts(event, occurrence.subject.pid, raw.of(&batch.raw));
                    json::event(&mut object, event, texts, &beside, |out| {
                        render(event, texts, &mut self.stacks.names, &self.settings.strings, out)
                    });
                }
            }
            OccurrenceBody::Detailed { layout, values } | OccurrenceBody::Weighted { layout, values, .. } => {
                let values = values.of(&batch.values);
                let named = name_values(&mut self.stacks, &mut self.look_ups, values);
                json::details(&mut object, layout, &named);
            }
        }
        if let OccurrenceBody::Weighted { weights, .. } = &occurrence.body {
            let folded = self.stacks.fold(weights.of(&batch.weights));
            top::json_stacks_of_one(&folded, &mut object);
        } else if self.views.get(view).is_some_and(|view| view.settings.stacks) || occurrence.stack.is_some() {
            let frames = occurrence.stack.map_or_else(Vec::new, |id| self.stacks.name(id));
            json::stack(&mut object, &frames);
        }
        object.end();
        out.push(b'\n');
    }
}

fn is_groupable(occurrence: &Occurrence) -> bool {
    matches!(occurrence.body, OccurrenceBody::Detailed { layout, .. } if layout.grouping.is_some())
}

/// Appends the text of a record, not escaped, and returns where it starts.
fn render(
    event: &EventText,
    texts: ArgumentTexts<'_>,
    names: &mut FrameNames,
    strings: &KernelStrings,
    out: &mut Vec<u8>,
) -> usize {
    let (start, raw) = (out.len(), texts.raw);
    match &event.print {
        _ if !texts.is_empty() || event.arguments.is_some() => {
            call_text::render(&event.format, event.arguments.as_ref(), texts, out);
        }
        _ if event.result.is_some() => {
            event.result.iter().for_each(|result| call_text::render_result(result, raw, out));
        }
        Some(print) => print.render(raw, &KernelNames { names: names.into(), strings }, out),
        None => render_fields(&event.format, raw, out),
    }
    let end = start + out[start..].trim_ascii_end().len();
    out.truncate(end);
    start
}
