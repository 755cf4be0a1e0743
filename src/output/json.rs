//! JSON lines: one object per line, units in the keys.

use crate::bpf::attached::AttachedProgram;
use crate::escape::escape;
use crate::json::{Object, is_itself, push_address, push_escaped, push_list, push_signed, push_string, push_unsigned};
use crate::output::UnwindingSums;
use crate::output::event_text::EventText;
use crate::output::table::TableLine;
use crate::output::wall::WallClock;
use crate::report::{ArgumentText, ArgumentTexts, ColumnHead, ColumnKind, OccurrenceLayout, Subject, Value};
use crate::symbol::StackId;
use crate::symbol::naming::coverage::Coverage;
use crate::symbol::naming::named_frame::NamedFrame;
use crate::symbol::quality::counts::QualityCounts;
use crate::symbol::unnamed::Unnamed;
use crate::tep::format::field::FieldValue;
use crate::tep::syscalls::call_text::{socket_address, words};

/// The view that an object comes from, and its profiler.
#[derive(Clone, Copy, Debug)]
pub struct ViewLabel<'a> {
    pub view: &'a str,
    pub profiler: &'a str,
}

/// The only view of a run: the name of its profiler.
impl<'a> From<&'a str> for ViewLabel<'a> {
    fn from(name: &'a str) -> ViewLabel<'a> {
        ViewLabel { view: name, profiler: name }
    }
}

/// Starts an object with the keys that every line begins with.
pub fn head<'a, 'l>(
    out: &'a mut Vec<u8>,
    kind: &str,
    label: impl Into<ViewLabel<'l>>,
    time_ns: u64,
    wall: &mut WallClock,
) -> Object<'a> {
    let ViewLabel { view, profiler } = label.into();
    let mut object = Object::new(out);
    push_string(kind, object.labelled(b"\"type\":"));
    push_string(view, object.labelled(b"\"view\":"));
    push_string(profiler, object.labelled(b"\"profiler\":"));
    push_unsigned(time_ns, object.labelled(b"\"time_ns\":"));
    let wall_key = object.labelled(b"\"wall\":\"");
    wall.rfc3339(time_ns, wall_key);
    wall_key.push(b'"');
    object
}

/// Writes the BPF programs of other tools that may have hidden events, if there are any.
pub fn filtered_by(object: &mut Object<'_>, programs: &[AttachedProgram]) {
    if programs.is_empty() {
        return;
    }
    attached(programs, object.key("filtered_by"));
}

/// Writes BPF programs, and the events that they are attached to.
pub fn attached(programs: &[AttachedProgram], out: &mut Vec<u8>) {
    push_list(programs.iter(), out, |program, out| {
        let mut object = Object::new(out);
        object.unsigned("program", program.id.into());
        program.name.iter().for_each(|name| object.text("name", &escape(name.as_bytes())));
        push_list(program.listed().iter(), object.key("events"), |event, out| push_string(event, out));
        object.unsigned("event_count", program.events.len() as u64);
        object.bool("hides_nothing", program.hides_nothing());
        program.missed.filter(|_| program.returns_one).iter().for_each(|missed| object.unsigned("missed", *missed));
        object.end();
    });
}

/// Writes the number of callchains by quality, and the worst programs.
pub fn quality(object: &mut Object<'_>, stacks: &QualityCounts) {
    const MAX_PROGRAMS: usize = 50;
    let mut inner = Object::new(object.key("stacks"));
    for (key, count) in [
        ("taken", stacks.total()),
        ("good", stacks.good),
        ("guessed", stacks.guessed),
        ("broken_libc", stacks.broken_libc),
        ("broken", stacks.broken),
        ("truncated", stacks.truncated),
        ("empty", stacks.empty),
        ("unjudged", stacks.unjudged),
        ("unwound", stacks.unwound),
    ] {
        inner.unsigned(key, count);
    }
    push_list(stacks.programs().into_iter().take(MAX_PROGRAMS), inner.key("programs"), |program, out| {
        let mut object = Object::new(out);
        program.program.iter().for_each(|path| object.text("program", &escape(path.as_bytes())));
        object.unsigned("taken", program.taken());
        object.unsigned("whole", program.whole);
        object.unsigned("guessed", program.guessed);
        object.unsigned("truncated", program.truncated);
        object.unsigned("broken", program.broken);
        program.help().iter().for_each(|help| object.text("help", &escape(help.as_bytes())));
        object.end();
    });
    inner.end();
}

/// Writes how many copies of stacks were unwound.
pub fn unwinding(object: &mut Object<'_>, sums: &UnwindingSums) {
    let mut inner = Object::new(object.key("unwinding"));
    for (key, count) in [
        ("windows", sums.windows),
        ("lost_windows", sums.lost_windows),
        ("walked", sums.walked),
        ("handed_on", sums.handed_on),
        ("rules", sums.rules),
        ("rules_made", sums.rules_made),
    ] {
        inner.unsigned(key, count);
    }
    inner.end();
}

/// Writes how many code places have a name, and which modules lack names.
pub fn coverage(object: &mut Object<'_>, coverage: &Coverage) {
    let mut inner = Object::new(object.key("symbols"));
    inner.unsigned("named", coverage.count.named);
    inner.unsigned("unnamed", coverage.count.unnamed);
    inner.unsigned("nowhere", coverage.nowhere);
    push_list(coverage.modules.iter(), inner.key("modules"), |module, out| {
        let mut object = Object::new(out);
        object.text("module", &escape(module.module.as_bytes()));
        object.unsigned("named", module.count.named);
        object.unsigned("unnamed", module.count.unnamed);
        object.text("reason", module.reason);
        object.end();
    });
    if !coverage.elsewhere.is_empty() {
        objects(&mut inner, "elsewhere", coverage.elsewhere.iter(), |object, reach| {
            object.text("path", &escape(reach.path.as_bytes()));
            reach.container.iter().for_each(|name| object.text("container", &escape(name.as_bytes())));
        });
    }
    inner.end();
}

pub fn subject(object: &mut Object<'_>, subject: &Subject) {
    push_unsigned(u64::from(subject.cpu), object.labelled(b"\"cpu\":"));
    push_signed(i64::from(subject.pid), object.labelled(b"\"pid\":"));
    push_signed(i64::from(subject.tid), object.labelled(b"\"tid\":"));
    push_escaped(subject.comm.as_bytes(), object.labelled(b"\"comm\":"));
}

/// Writes the details of an occurrence.
pub fn details(object: &mut Object<'_>, layout: &OccurrenceLayout, values: &[Value]) {
    for (detail, value) in layout.details().iter().zip(values).filter(|(detail, _)| detail.in_json) {
        object.value(detail.name, value);
        detail.alias.iter().for_each(|alias| object.value(alias, value));
    }
    // A stack or another key may follow, so the inner object is closed: a value with an empty key does that.
    object.value("", &Value::None);
}

/// Writes the cells of a row, and the frames of its stack.
pub fn row<'c>(
    object: &mut Object<'c>,
    columns: &'c [ColumnHead],
    line: &TableLine,
    name: impl FnMut(StackId) -> Vec<NamedFrame>,
) {
    for (column, value) in columns.iter().zip(&line.cells).filter(|(column, _)| column.in_json) {
        if column.kind != ColumnKind::Stack {
            object.value(&column.key, value);
        }
    }
    line.others.iter().for_each(|rows| object.unsigned("rows", *rows));
    if let Some(frames) = line.place.named(name) {
        stack(object, &frames);
        line.place.broken.iter().for_each(|broken| object.unsigned("broken_stacks", broken.stacks));
    }
}

/// Writes the keys of a traced event, and the values of the cell `beside` it. `render` appends the text of the event
/// and returns where it starts.
pub fn event(
    object: &mut Object<'_>,
    event: &EventText,
    texts: ArgumentTexts<'_>,
    beside: &[Value],
    render: impl FnOnce(&mut Vec<u8>) -> usize,
) {
    object.labelled(&event.json_label);
    let out = object.labelled(b"\"text\":\"");
    let start = render(out);
    if out.get(start..).is_some_and(is_itself) {
        out.push(b'"');
    } else {
        let text = out.split_off(start);
        out.pop();
        push_string(&escape(&text), out);
    }
    let mut fields = Object::new(object.labelled(b"\"fields\":"));
    for (label, field) in &event.json_fields {
        if let Some(text) = texts.at(field.offset) {
            argument(&mut fields, label, &field.name, text);
        } else if let Ok(value) = field.value(texts.raw) {
            push_field(value, fields.labelled(label));
        }
    }
    fields.end();
    beside.iter().filter_map(Value::as_cell).for_each(|cell| cell.event_keys(object));
}

/// Writes the string, list or address of a socket that an argument points to, or `null` and the reason: `"name":null,"name_unread":"not in memory"`.
fn argument(fields: &mut Object<'_>, label: &[u8], name: &str, text: ArgumentText<'_>) {
    let out = fields.labelled(label);
    match text {
        ArgumentText::Read(text) => push_escaped(text, out),
        ArgumentText::Cut(text) => {
            push_escaped(text, out);
            fields.bool(&format!("{name}_cut"), true);
        }
        ArgumentText::Late(text) => {
            push_escaped(text, out);
            fields.bool(&format!("{name}_late"), true);
        }
        ArgumentText::Words(list) => {
            let (words, is_cut) = words::split(list);
            push_list(words, out, push_escaped);
            if is_cut {
                fields.bool(&format!("{name}_cut"), true);
            }
        }
        ArgumentText::SocketAddress(address) => {
            let mut text = String::new();
            socket_address::push(address, &mut text);
            push_escaped(text.as_bytes(), out);
        }
        ArgumentText::Unread(unread) | ArgumentText::UnreadData(unread) => {
            out.extend_from_slice(b"null");
            fields.text(&format!("{name}_unread"), unread.reason());
        }
    }
}

fn push_field(value: FieldValue<'_>, out: &mut Vec<u8>) {
    match value {
        FieldValue::Signed(value) => push_signed(value, out),
        FieldValue::Unsigned(value) => push_unsigned(value, out),
        FieldValue::Pointer(value) => push_address(value, out),
        FieldValue::Text(text) => push_escaped(text, out),
        FieldValue::Ints(ints) => push_list(ints.iter(), out, push_field),
        FieldValue::Bytes(bytes) => push_list(bytes.iter(), out, |byte, out| push_unsigned(u64::from(*byte), out)),
    }
}

pub fn stack(object: &mut Object<'_>, frames: &[NamedFrame]) {
    objects(object, "stack", frames.iter(), |object, frame| {
        if let Some(addr) = frame.addr {
            object.text("addr", &format!("{addr:#x}"));
        }
        push_name(object, frame.symbol.as_deref().map_err(|unnamed| *unnamed));
        match frame.line {
            None => object.unsigned("offset", frame.offset),
            Some(0) => {}
            Some(line) => object.unsigned("line", line.into()),
        }
        if let Some(module) = &frame.module {
            object.text("module", &escape(module.as_bytes()));
        }
        if frame.guessed {
            object.bool("guessed", true);
        }
    });
}

/// Writes a list of objects.
pub fn objects<T>(
    object: &mut Object<'_>,
    key: &str,
    items: impl Iterator<Item = T>,
    fill: impl Fn(&mut Object<'_>, T),
) {
    push_list(items, object.key(key), |item, out| {
        let mut object = Object::new(out);
        fill(&mut object, item);
        object.end();
    });
}

/// Writes the keys of a function without an address.
pub fn function(object: &mut Object<'_>, name: Result<&str, Unnamed>, module: Option<&str>) {
    push_name(object, name);
    if let Some(module) = module {
        object.text("module", &escape(module.as_bytes()));
    }
}

fn push_name(object: &mut Object<'_>, name: Result<&str, Unnamed>) {
    match name {
        Ok(symbol) => object.text("symbol", &escape(symbol.as_bytes())),
        Err(Unnamed { reason, function }) => {
            object.text("reason", reason);
            if let Some(start) = function {
                object.text("function_addr", &format!("{start:#x}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Detail, OccurrenceSchema};
    use crate::task::Comm;

    fn parsed(build: impl FnOnce(&mut Object<'_>)) -> serde_json::Value {
        let mut out = Vec::new();
        let mut object = Object::new(&mut out);
        build(&mut object);
        object.end();
        serde_json::from_slice(&out).unwrap_or_else(|err| panic!("{err}: {}", String::from_utf8_lossy(&out)))
    }

    #[test]
    fn dotted_keys_make_objects() {
        #[derive(Default)]
        struct DottedWait {
            state: Option<&'static str>,
            waker: Option<Comm>,
            wchan: Option<&'static str>,
        }
        static WAITS: OccurrenceSchema<DottedWait> = OccurrenceSchema::new(
            &[
                Detail::new("state", |wait| wait.state.map_or(Value::None, Value::Word)),
                Detail::new("waker.tid", |wait| wait.waker.map_or(Value::None, |_| Value::Signed(7))),
                Detail::new("waker.comm", |wait| wait.waker.map_or(Value::None, Value::Comm)),
                Detail::text_only("here", |_| Value::Word("here")),
                Detail::aliased("wchan", "place", |wait| wait.wchan.map_or(Value::None, Value::Word)),
            ],
            &[],
        );
        let (state, waker, wchan) = (Some("D"), Some(Comm::new(b"a\x1b\"b")), Some("x"));
        let cases = [
            (
                DottedWait { state, waker, wchan },
                r#"{"state":"D","waker":{"tid":7,"comm":"a\\x1b\"b"},"wchan":"x","place":"x"}"#,
            ),
            (DottedWait { waker: None, state, wchan }, r#"{"state":"D","wchan":"x","place":"x"}"#),
            (DottedWait { waker, ..DottedWait::default() }, r#"{"waker":{"tid":7,"comm":"a\\x1b\"b"}}"#),
            (DottedWait::default(), "{}"),
        ];
        for (wait, want) in cases {
            let values: Vec<Value> = WAITS.values(&wait).collect();
            assert_eq!(
                parsed(|object| details(object, WAITS.layout(), &values)),
                serde_json::from_str::<serde_json::Value>(want).unwrap()
            );
        }
    }

    #[test]
    fn a_key_may_follow_an_object() {
        static ONE: OccurrenceSchema<i64> =
            OccurrenceSchema::new(&[Detail::new("waker.tid", |tid| Value::Signed(*tid))], &[]);
        let value = parsed(|object| {
            details(object, ONE.layout(), &ONE.values(&7).collect::<Vec<_>>());
            object.unsigned("next", 1);
        });
        assert_eq!(value, serde_json::json!({"waker": {"tid": 7}, "next": 1}));
    }
}
