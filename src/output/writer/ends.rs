//! What is said at the end of an interval and of the run.

use std::io::{self, Write};

use crate::json::Object;
use crate::output::json::{self, ViewLabel};
use crate::output::writer::Writer;
use crate::output::writer::views::WriterView;
use crate::output::{IntervalEnd, OwnWeight, RunEnd, UnwindingSums, ViewEnd};
use crate::report::Value;
use crate::sys;
use crate::task::procfs;

impl Writer {
    pub fn interval(&mut self, end: &IntervalEnd) -> io::Result<()> {
        if let Some(line) = &end.loss_line {
            self.note(line)?;
        }
        self.outlet.screen.iter().for_each(|screen| screen.interval(end));
        if !self.settings.json {
            return Ok(());
        }
        let out = &mut self.outlet.sink.buffer;
        let label = ViewLabel::of(&self.views, end.view);
        let mut object = json::head(out, "interval", label, end.end_ns, &mut self.outlet.wall);
        object.unsigned("interval", end.interval);
        object.unsigned("start_ns", end.start_ns);
        object.unsigned("end_ns", end.end_ns);
        object.unsigned("samples", end.samples);
        object.unsigned("lost", end.lost);
        object.unsigned("lost_side", end.lost_side);
        json::objects(&mut object, "lost_windows", end.lost_windows.iter(), |object, span| {
            object.unsigned("cpu", u64::from(span.cpu));
            object.unsigned("start_ns", span.start_ns);
            object.unsigned("end_ns", span.end_ns);
            object.unsigned("count", span.count);
        });
        object.unsigned("discarded", end.discarded);
        object.value("verdict", &Value::Word(end.verdict.word()));
        let _ = write!(object.key("coverage"), "{:.6}", end.coverage);
        json::filtered_by(&mut object, &end.filtered_by);
        totals(&mut object, &end.totals);
        object.end();
        out.push(b'\n');
        self.outlet.sink.flush_large()
    }

    pub fn end(&mut self, end: &RunEnd) -> io::Result<()> {
        self.print_held()?;
        self.totals_of_run(usize::MAX, end.time_ns)?;
        self.print_heatmaps(end.time_ns)?;
        let unwinding = end.unwinding.map(|sums| {
            let own = self.stacks.unwinding.counts();
            UnwindingSums { rules: sums.rules + own.rules, rules_made: sums.rules_made + own.made, ..sums }
        });
        if self.settings.json {
            self.json_end(end, unwinding.as_ref());
        }
        self.outlet.sink.flush()?;
        let mut lines = Vec::new();
        if self.settings.coverage {
            lines = self.stacks.quality.describe();
            lines.extend(unwinding.map(|sums| sums.describe()));
            lines.append(&mut self.stacks.names.coverage().describe());
        } else if !self.settings.json {
            let host = &self.settings.host;
            lines.extend(self.stacks.quality.warning(|pid| procfs::is_alive(host, pid)));
            let coverage = self.stacks.names.coverage();
            lines.extend(coverage.jit_cure().into_iter().chain(coverage.reach_line()));
        }
        for line in lines.iter().chain(&end.summary) {
            self.note(line)?;
        }
        Ok(())
    }

    /// Writes the object of the whole run.
    fn json_end(&mut self, end: &RunEnd, unwinding: Option<&UnwindingSums>) {
        let out = &mut self.outlet.sink.buffer;
        let label = match &self.views[..] {
            [view] => view.label(),
            _ => ViewLabel::from(self.settings.name.as_str()),
        };
        let mut object = json::head(out, "end", label, end.time_ns, &mut self.outlet.wall);
        object.unsigned("samples", end.samples);
        object.unsigned("lost", end.lost);
        object.unsigned("lost_output", end.lost_output);
        object.unsigned("lost_side", end.lost_side);
        object.unsigned("lost_switches", end.lost_switches);
        object.unsigned("lost_stacks", end.lost_stacks);
        object.unsigned("lost_pairs", end.lost_pairs);
        object.unsigned("lost_calls", end.lost_calls);
        object.unsigned("unseen", end.unseen);
        object.unsigned("lost_unwind", end.lost_unwind);
        object.unsigned("children_in_doubt", end.children_in_doubt);
        object.unsigned("malformed", end.malformed);
        object.unsigned("discarded", end.discarded);
        object.unsigned("late", end.late);
        object.unsigned("intervals", end.intervals);
        json::filtered_by(&mut object, &end.filtered_by);
        totals(&mut object, &end.totals);
        views_at_end(&mut object, &self.views, &end.views);
        let mut own = Object::new(object.key("self"));
        own.unsigned("cpu_ns", end.cpu_ns);
        // The names of the last report are looked up after the run has told its cost.
        own.unsigned("rss_peak_bytes", sys::self_usage().1.max(end.rss_peak_bytes));
        own.unsigned("locked_bytes", end.locked_bytes);
        own.unsigned("wakeups", end.wakeups);
        own.decimal("events_per_s", end.per_s(end.samples));
        own.decimal("bytes_per_s", end.per_s(end.record_bytes));
        end.weight.iter().for_each(|weight| json_weight(&mut own, weight));
        own.end();
        if self.settings.callchains {
            json::quality(&mut object, &self.stacks.quality);
        }
        unwinding.into_iter().for_each(|sums| json::unwinding(&mut object, sums));
        let coverage = self.stacks.names.coverage();
        if coverage.count.total() > 0 {
            json::coverage(&mut object, &coverage);
        }
        object.end();
        out.push(b'\n');
    }
}

/// What the run has weighed, if that was worth a word.
fn json_weight(own: &mut Object<'_>, weight: &OwnWeight) {
    let mut object = Object::new(own.key("weight"));
    object.decimal("cpu_pct", weight.cpu_pct);
    object.decimal("events_per_s", weight.events_per_s);
    if let Some(heaviest) = &weight.heaviest {
        object.text("event", &heaviest.names.join(", "));
        object.decimal("event_pct", heaviest.pct);
        json::objects(&mut object, "views", heaviest.views.iter(), |object, (view, narrowings)| {
            object.text("view", view);
            object.text("narrowed_by", &narrowings.join(", "));
        });
    }
    if let Some(cost) = &weight.recording {
        object.unsigned("recording_cpu", u64::from(cost.cpu));
        object.decimal("recording_pct", cost.pct);
        object.unsigned("record_ns", cost.record_ns);
    }
    object.end();
}

/// What is told of each of several views at the end.
fn views_at_end(object: &mut Object<'_>, views: &[WriterView], ends: &[ViewEnd]) {
    if ends.is_empty() {
        return;
    }
    json::objects(object, "views", views.iter().zip(ends), |object, (view, end)| {
        object.text("view", &view.settings.name);
        object.text("profiler", view.settings.profiler);
        object.unsigned("samples", end.samples);
        object.unsigned("lost", end.lost);
        object.unsigned("lost_pairs", end.lost_pairs);
        object.unsigned("discarded", end.discarded);
    });
}

fn totals(object: &mut Object<'_>, totals: &[(&'static str, Value)]) {
    for (key, value) in totals {
        object.value(key, value);
    }
}
