//! The functions and the stacks that took most of the time, as text or JSON.

use std::io::Write;

use crate::escape::escape_into;
use crate::json::Object;
use crate::output::json;
use crate::output::stack_weights::fold::{Folded, StackGroup};
use crate::output::text::frames;
use crate::report::{Top, Value, hundredths_of};
use crate::stats::weights::Weight;
use crate::symbol::naming::name_cache::FunctionName;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::task::Comm;

/// Limit of the functions listed.
const FUNCTIONS: usize = 15;
/// Limit of the stacks shown at the end of the run.
const STACKS: usize = 5;
/// Limit of the stacks shown of one occurrence.
pub const STACKS_OF_ONE: usize = 3;

/// Appends the list of functions. The caller has started its headline.
pub fn functions(folded: &Folded, top: Top, out: &mut Vec<u8>) {
    if folded.total().amount == 0 {
        out.extend_from_slice(b": no function was seen, there are no busy samples\n");
        return;
    }
    let _ = writeln!(out, ": functions, % of {}", base(folded, top));
    out.extend_from_slice(b"    %  samples function\n");
    for (function, weight) in folded.functions(FUNCTIONS) {
        percent(weight, folded.total(), out);
        let _ = write!(out, " {:>8} ", weight.samples);
        frames::function(function.name.as_deref().map_err(|unnamed| *unnamed), function.module.as_deref(), out);
        out.push(b'\n');
    }
}

/// The total that the shares refer to, in words.
fn base(folded: &Folded, top: Top) -> String {
    let Weight { amount, samples } = folded.total();
    if top.by_time {
        format!("{}.{:03} s of CPU time, {samples} samples", amount / 1_000_000_000, amount / 1_000_000 % 1000)
    } else {
        format!("{samples} busy samples")
    }
}

/// Appends the list of stacks. The caller has started its headline.
pub fn stacks(folded: &Folded, top: Top, out: &mut Vec<u8>) {
    let _ = writeln!(out, ": stacks, % of {}", base(folded, top));
    let groups = folded.heaviest(STACKS);
    for group in &groups {
        percent(group.weight, folded.total(), out);
        let _ = write!(out, " {:>8} ", group.weight.samples);
        subject(group, out);
        out.push(b'\n');
        stack_of(group, top.depth.unwrap_or_else(|| telling_depth(group, &groups)), out);
    }
}

/// Appends the stacks of one occurrence.
pub fn stacks_of_one(folded: &Folded, out: &mut Vec<u8>) {
    let groups = folded.heaviest(STACKS_OF_ONE);
    for group in &groups {
        let _ = write!(out, "  {:>4} of {} samples: ", group.weight.samples, folded.total().samples);
        subject(group, out);
        out.push(b'\n');
        stack_of(group, telling_depth(group, &groups), out);
    }
}

/// Number of frames to show: a few callers, and as many more as distinguish the stack from each of the others. A stack
/// may have ninety frames, too many to read.
fn telling_depth(group: &StackGroup, groups: &[StackGroup]) -> usize {
    const LEAST: usize = 8;
    let is_same =
        |(one, other): &(&NamedFrame, &NamedFrame)| (&one.symbol, &one.module) == (&other.symbol, &other.module);
    let shared = |other: &StackGroup| group.frames.iter().zip(&other.frames).take_while(is_same).count();
    let others = groups.iter().filter(|other| !std::ptr::eq(*other, group));
    others.map(|other| shared(other) + 2).max().unwrap_or(0).max(LEAST)
}

fn percent(weight: Weight, total: Weight, out: &mut Vec<u8>) {
    let tenths = (hundredths_of(weight.amount, total.amount) + 5) / 10;
    let _ = write!(out, "{:>3}.{}", tenths / 10, tenths % 10);
}

fn subject(group: &StackGroup, out: &mut Vec<u8>) {
    push_comm(group.comm, out);
    let _ = match group.pid {
        Some(pid) => write!(out, " {pid}"),
        None => write!(out, " (several processes)"),
    };
}

fn push_comm(comm: Comm, out: &mut Vec<u8>) {
    let name = if comm.is_empty() { b"<gone>" } else { comm.as_bytes() };
    escape_into(name, out);
}

fn stack_of(group: &StackGroup, depth: usize, out: &mut Vec<u8>) {
    if group.frames.is_empty() {
        out.extend_from_slice(b"    (no stack)\n");
    }
    frames::names(&group.frames, depth, out);
}

/// Appends the rows as JSON, each after the keys that `head` writes for the row's table.
pub fn json_rows(
    folded: &Folded,
    top: Top,
    out: &mut Vec<u8>,
    mut head: impl for<'a> FnMut(&'static str, &'a mut Vec<u8>) -> Object<'a>,
) {
    let mut row = |table, weight: Weight, out: &mut Vec<u8>, rest: &dyn Fn(&mut Object<'_>)| {
        let mut object = head(table, out);
        object.value("pct", &Value::Pct(hundredths_of(weight.amount, folded.total().amount)));
        object.unsigned("samples", weight.samples);
        rest(&mut object);
        object.end();
        out.push(b'\n');
    };
    for (FunctionName { name, module }, weight) in folded.functions(FUNCTIONS) {
        row("functions", weight, out, &|object| {
            json::function(object, name.as_deref().map_err(|unnamed| *unnamed), module.as_deref());
        });
    }
    for group in &folded.heaviest(if top.stacks { STACKS } else { 0 }) {
        row("stacks", group.weight, out, &|object| json_group(object, group));
    }
}

/// Writes the stacks of one occurrence under the key `stacks`.
pub fn json_stacks_of_one(folded: &Folded, object: &mut Object<'_>) {
    json::objects(object, "stacks", folded.heaviest(STACKS_OF_ONE).iter(), |object, group| {
        object.unsigned("samples", group.weight.samples);
        json_group(object, group);
    });
}

fn json_group(object: &mut Object<'_>, group: &StackGroup) {
    object.value("comm", &Value::Comm(group.comm));
    object.value("pid", &group.pid.map_or(Value::None, |pid| Value::Signed(pid.into())));
    json::stack(object, &group.frames);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::stack_weights::fold::tests::{folded, named};
    use crate::symbol::unnamed::Unnamed;

    fn example() -> Folded {
        let three = named(1, Ok("three"), Some("/bin/parts"));
        let main = named(2, Ok("main"), Some("/bin/parts"));
        let kernel = named(u64::MAX - 9999, Err("no kernel symbol there"), Some("[kernel]"));
        folded(&[(7, "parts", 3, vec![three, main.clone()]), (7, "parts", 1, vec![kernel, main])])
    }

    fn top(depth: usize) -> Top {
        Top { stacks: true, depth: Some(depth), by_time: false }
    }

    fn text(build: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        build(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn stacks_are_shown_up_to_where_they_differ() {
        let group = |frames: &[&str]| StackGroup {
            comm: Comm::new(b"x"),
            pid: Some(7),
            weight: Weight::default(),
            frames: frames.iter().map(|name| named(1, Ok(name), None)).collect(),
        };
        let common: Vec<String> = (0..30).map(|n| format!("f{n}")).collect();
        let with = |last: &str| group(&common.iter().map(String::as_str).chain([last, "main"]).collect::<Vec<_>>());
        let groups = [with("a"), with("b"), group(&["f0", "other"])];
        assert_eq!(groups.each_ref().map(|one| telling_depth(one, &groups)), [32, 32, 8]);
        assert_eq!(telling_depth(&groups[0], &groups[..1]), 8);
    }

    #[test]
    fn lists_functions_and_stacks() {
        let want = ": functions, % of 4 busy samples\n    %  samples function\n 75.0        3 three (parts)\n \
                    25.0        1 (no kernel symbol there) [kernel]\n";
        assert_eq!(text(|out| functions(&example(), top(1), out)), want);
        let want = ": stacks, % of 4 busy samples\n 75.0        3 parts 7\n    three (parts)\n    ... 1 more\n \
                    25.0        1 parts 7\n    (no kernel symbol there) [kernel]\n    ... 1 more\n";
        assert_eq!(text(|out| stacks(&example(), top(1), out)), want);
        assert_eq!(
            text(|out| functions(&folded(&[]), top(1), out)),
            ": no function was seen, there are no busy samples\n"
        );
    }

    #[test]
    fn rows_have_their_keys() {
        let lines = text(|out| json_rows(&example(), top(9), out, |_, out| Object::new(out)));
        let rows: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[0], serde_json::json!({"pct": 75.0, "samples": 3, "symbol": "three", "module": "/bin/parts"}));
        assert_eq!(rows[1]["reason"], "no kernel symbol there");
        assert_eq!((&rows[2]["pid"], &rows[2]["stack"][1]["symbol"]), (&7.into(), &"main".into()));
        let one = text(|out| {
            let mut object = Object::new(out);
            json_stacks_of_one(&example(), &mut object);
            object.end();
        });
        let one: serde_json::Value = serde_json::from_str(&one).unwrap();
        assert_eq!(one["stacks"][1]["samples"], 1);
    }

    #[test]
    fn a_function_without_a_name_has_its_address() {
        let start = Unnamed { reason: "stripped", function: Some(0x5c78) };
        let frame = NamedFrame { symbol: Err(start), ..named(1, Ok(""), Some("/bin/gzip")) };
        let folded = folded(&[(7, "gzip", 3, vec![frame])]);
        let lines = text(|out| json_rows(&folded, top(9), out, |_, out| Object::new(out)));
        let rows: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let known = serde_json::json!({"reason": "stripped", "function_addr": "0x5c78", "module": "/bin/gzip"});
        for (key, want) in known.as_object().unwrap() {
            assert_eq!((&rows[0][key], &rows[1]["stack"][0][key]), (want, want), "{key}");
        }
        assert!(text(|out| functions(&folded, top(9), out)).ends_with(" gzip+0x5c78 (stripped)\n"));
    }
}
