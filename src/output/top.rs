//! Where the time went: the functions and the stacks that took most of it.

use std::io::Write;

use crate::output::escape::escape_into;
use crate::output::fold::{Folded, Group};
use crate::output::json::{self, Object};
use crate::output::text;
use crate::stats::value::Value;
use crate::stats::weights::Weight;
use crate::symbol::places::Function;
use crate::task::Comm;

/// Functions listed.
const FUNCTIONS: usize = 15;
/// Stacks shown at the end.
const STACKS: usize = 5;
/// Stacks shown of one occurrence.
pub const STACKS_OF_ONE: usize = 3;

/// What is shown of the weights of a run.
#[derive(Clone, Copy, Debug)]
pub struct Top {
    /// Whole callchains, not only functions.
    pub stacks: bool,
    /// Frames printed of each stack in text.
    pub depth: usize,
    /// They are weighed in ns of CPU time, not in samples.
    pub by_time: bool,
}

/// Hundredths of a per cent of `part` in `whole`.
pub fn share(part: u64, whole: u64) -> u32 {
    let whole = u128::from(whole.max(1));
    let hundredths = (u128::from(part) * 10_000 + whole / 2) / whole;
    u32::try_from(hundredths).unwrap_or(u32::MAX)
}

/// Appends the list of functions, behind the beginning of its headline.
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
        text::function(function.name.as_deref().map_err(|reason| *reason), function.module.as_deref(), out);
        out.push(b'\n');
    }
}

/// Of what the shares are.
fn base(folded: &Folded, top: Top) -> String {
    let Weight { amount, samples } = folded.total();
    if top.by_time {
        format!("{}.{:03} s of CPU time, {samples} samples", amount / 1_000_000_000, amount / 1_000_000 % 1000)
    } else {
        format!("{samples} busy samples")
    }
}

/// Appends the stacks, behind the beginning of their headline.
pub fn stacks(folded: &Folded, top: Top, out: &mut Vec<u8>) {
    let _ = writeln!(out, ": stacks, % of {}", base(folded, top));
    for group in &folded.heaviest(STACKS) {
        percent(group.weight, folded.total(), out);
        let _ = write!(out, " {:>8} ", group.weight.samples);
        subject(group, out);
        out.push(b'\n');
        frames(group, top.depth, out);
    }
}

/// Appends the stacks of one occurrence.
pub fn stacks_of_one(folded: &Folded, depth: usize, out: &mut Vec<u8>) {
    for group in &folded.heaviest(STACKS_OF_ONE) {
        let _ = write!(out, "  {:>4} of {} samples: ", group.weight.samples, folded.total().samples);
        subject(group, out);
        out.push(b'\n');
        frames(group, depth, out);
    }
}

fn percent(weight: Weight, total: Weight, out: &mut Vec<u8>) {
    let tenths = (share(weight.amount, total.amount) + 5) / 10;
    let _ = write!(out, "{:>3}.{}", tenths / 10, tenths % 10);
}

fn subject(group: &Group, out: &mut Vec<u8>) {
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

/// Names alone: the stacks differ in their addresses.
fn frames(group: &Group, depth: usize, out: &mut Vec<u8>) {
    let frames = &group.frames;
    for frame in frames.iter().take(depth) {
        out.extend_from_slice(b"    ");
        text::function(frame.symbol.as_deref().map_err(|reason| *reason), frame.module.as_deref(), out);
        out.push(b'\n');
    }
    if frames.is_empty() {
        out.extend_from_slice(b"    (no stack)\n");
    } else if frames.len() > depth {
        let _ = writeln!(out, "    ... {} more", frames.len() - depth);
    }
}

/// The rows for JSON, each behind the keys that `head` has written.
pub fn json_rows(
    folded: &Folded,
    top: Top,
    out: &mut Vec<u8>,
    mut head: impl for<'a> FnMut(&'a mut Vec<u8>) -> Object<'a>,
) {
    let mut row = |weight: Weight, out: &mut Vec<u8>, rest: &dyn Fn(&mut Object<'_>)| {
        let mut object = head(out);
        object.value("pct", &Value::Pct(share(weight.amount, folded.total().amount)));
        object.unsigned("samples", weight.samples);
        rest(&mut object);
        object.end();
        out.push(b'\n');
    };
    for (Function { name, module }, weight) in folded.functions(FUNCTIONS) {
        row(weight, out, &|object| {
            json::function(object, name.as_deref().map_err(|reason| *reason), module.as_deref())
        });
    }
    for group in &folded.heaviest(if top.stacks { STACKS } else { 0 }) {
        row(group.weight, out, &|object| json_group(object, group));
    }
}

/// The stacks of one occurrence under the key `stacks`.
pub fn json_stacks_of_one(folded: &Folded, object: &mut Object<'_>) {
    json::objects(object, "stacks", folded.heaviest(STACKS_OF_ONE).iter(), |object, group| {
        object.unsigned("samples", group.weight.samples);
        json_group(object, group);
    });
}

fn json_group(object: &mut Object<'_>, group: &Group) {
    object.value("comm", &Value::Comm(group.comm));
    object.value("pid", &group.pid.map_or(Value::None, |pid| Value::Signed(pid.into())));
    json::stack(object, &group.frames);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fold::tests::{folded, named};

    fn example() -> Folded {
        let three = named(1, Ok("three"), Some("/bin/parts"));
        let main = named(2, Ok("main"), Some("/bin/parts"));
        let kernel = named(u64::MAX - 9999, Err("no kernel symbol there"), Some("[kernel]"));
        folded(&[(7, "parts", 3, vec![three, main.clone()]), (7, "parts", 1, vec![kernel, main])])
    }

    fn top(depth: usize) -> Top {
        Top { stacks: true, depth, by_time: false }
    }

    fn text(build: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        build(&mut out);
        String::from_utf8(out).unwrap()
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
        let lines = text(|out| json_rows(&example(), top(9), out, |out| Object::new(out)));
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
    fn shares_are_rounded() {
        for (part, whole, want) in [(0, 0, 0), (1, 3, 3333), (2, 3, 6667), (7, 7, 10_000), (u64::MAX, u64::MAX, 10_000)]
        {
            assert_eq!(share(part, whole), want, "{part} of {whole}");
        }
    }
}
