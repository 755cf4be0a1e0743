//! The keys of all events of a run: each is compiled for its event, and all are shown in the same way, with their
//! names.

use std::borrow::Cow;
use std::collections::HashMap;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cli::usage;
use crate::event::{BoundEvent, EventKey, KeyExpr, KeyTexts, PrintKey, PrintedKey};
use crate::expr::{Expr, ExprType, Naming, NoResultCounts};
use crate::host::{Host, disks};
use crate::profiler::{Context, Report};
use crate::report::Value;
use crate::stats::SumKey;
use crate::symbol::StackId;
use crate::tep::syscalls::call_id::CallId;
use crate::tep::{FieldForm, FieldText};

/// Limit of the names of keys that are kept.
const MAX_NAMES: usize = 10_000;
const UNKNOWN: &str = "unknown";
const OTHERS: &str = "<others>";

impl SumKey for EventKey {
    fn others(&self) -> EventKey {
        EventKey::OTHERS
    }
}

/// The key of an event: its attribute `key`, else `default`, the expression of `-k`.
///
/// # Errors
/// The event lacks a field of `default`, or its types do not fit.
pub fn key_of(bound: &mut BoundEvent, default: Option<&Expr>) -> Result<Option<KeyExpr>> {
    let own = bound.attributes.expressions.iter().find(|(name, _)| name == "key");
    let program = bound.expressions.iter().find(|(name, _)| name == "key");
    if let (Some((_, expr)), Some((_, program))) = (own, program) {
        return Ok(Some(KeyExpr::new(expr, program.clone(), &bound.format)));
    }
    let Some(expr) = default else { return Ok(None) };
    let name = bound.format.full_name();
    let program = expr.compile(&bound.format).map_err(|err| match err.is_unknown_field() {
        true => anyhow::Error::new(err).context(format!("-k: {name} has no such key, and none of its own (key=EXPR)")),
        false => usage(format!("-k: {err}")),
    })?;
    if program.ty().needs_abi() {
        bound.evsel.add_abi();
    }
    Ok(Some(KeyExpr::new(expr, program, &bound.format)))
}

/// How the keys of a run are shown.
#[derive(Debug)]
pub struct ShownKeys {
    heading: String,
    ty: ExprType,
    print: Option<PrintKey>,
    /// How the events show the field that all keys are.
    field: Option<FieldText>,
    /// Names of disks by their numbers, where that field is one.
    disks: HashMap<String, String>,
    /// Names that had to be asked for while the events came.
    names: FxHashMap<u64, Value>,
}

impl ShownKeys {
    /// How to show these keys, with the first given `printkey`. `default`: the heading if there is no key; keys are
    /// numbers then.
    ///
    /// # Errors
    /// The keys are of different types, and so are never equal; a `printkey` of text.
    pub fn of<'k>(
        keys: impl IntoIterator<Item = &'k KeyExpr>,
        print: Option<&PrintKey>,
        default: &str,
        host: &Host,
    ) -> Result<ShownKeys> {
        let new = |heading: &str, ty| ShownKeys {
            heading: heading.to_owned(),
            ty,
            print: print.cloned(),
            field: None,
            disks: HashMap::new(),
            names: FxHashMap::default(),
        };
        let mut shown: Option<ShownKeys> = None;
        for key in keys {
            let ty = key.ty();
            let Some(shown) = &mut shown else {
                shown = Some(ShownKeys { field: key.field().cloned(), ..new(key.heading(), ty) });
                continue;
            };
            if key.heading() != shown.heading || key.field().is_none() {
                shown.field = None;
            }
            shown.ty = match (shown.ty, ty) {
                (one, other) if one == other => one,
                (one, other) if one.is_number() && other.is_number() => ExprType::Signed,
                (one, other) => {
                    let (key, first) = (key.heading(), &shown.heading);
                    return Err(usage(format!(
                        "key {first} is {one}, and key {key} is {other}: keys of different types are never equal"
                    )));
                }
            };
        }
        let mut shown = shown.unwrap_or_else(|| new(default, ExprType::Signed));
        if shown.print.is_some() || !shown.ty.is_number() {
            shown.field = None;
        }
        match shown.field.as_ref().map(|field| field.form) {
            Some(FieldForm::KernelAddress) => shown.ty = ExprType::Named(Naming::Kernel),
            Some(FieldForm::Device) => shown.disks = disks(host),
            Some(FieldForm::Name | FieldForm::Hex) | None => {}
        }
        if let Some(print) = shown.print.as_ref().filter(|_| shown.ty == ExprType::Text) {
            let (print, key) = (print.text(), &shown.heading);
            return Err(usage(format!("printkey={print} is for keys that are numbers, and {key} is text")));
        }
        Ok(shown)
    }

    /// The text of the first key.
    pub fn heading(&self) -> &str {
        &self.heading
    }

    /// Keys are text, or shown as text: the row of the others can show `<others>` in their place.
    pub fn is_text(&self) -> bool {
        !self.ty.is_number() || self.print.is_some() || self.field.is_some()
    }

    /// Names of keys must be looked up: see [`ShownKeys::meet`].
    pub fn have_names(&self) -> bool {
        self.print.is_some() || matches!(self.ty, ExprType::Named(_))
    }

    /// Looks up the name of a key while it can be known, for keys that have names.
    #[inline]
    pub fn meet(&mut self, key: EventKey, pid: i32, ctx: &mut Context) {
        if let EventKey::Number(number) = key
            && self.have_names()
            && !self.names.contains_key(&number)
        {
            self.add_name(number, pid, ctx);
        }
    }

    #[cold]
    fn add_name(&mut self, number: u64, pid: i32, ctx: &mut Context) {
        if self.names.len() < MAX_NAMES {
            let mut task = |tid: u64| {
                let comm = i32::try_from(tid).map(|tid| ctx.tasks.comm_if_any(tid)).unwrap_or_default();
                if comm.is_empty() { UNKNOWN.into() } else { comm.as_bytes().to_vec() }
            };
            let printed = self.printed(number, &mut task);
            let value = match printed {
                PrintedKey::Named(Naming::Task, tid) => Value::Path(task(tid).into()),
                PrintedKey::Named(Naming::Kernel, address) => {
                    ctx.kernel_address(address, pid).map_or(Value::Address(address), Value::Place)
                }
                printed => plain(printed),
            };
            self.names.insert(number, value);
        }
    }

    /// Ends an interval whose rows are not kept: reports on its keys, and makes room for those of the next interval.
    pub fn end_interval(&mut self, texts: &mut KeyTexts, no_value: &NoResultCounts, report: &mut Report) {
        report.run_total("no_value", Value::Unsigned(no_value.total()));
        report.run_total("folded_keys", Value::Unsigned(texts.folded()));
        if texts.are_many() {
            texts.retain(|_| false);
        }
        self.retain(|_| false);
    }

    /// A key as it is shown in a table. The key of the others is unknown if keys are numbers, since programs that read
    /// JSON expect numbers.
    pub fn value(&self, key: EventKey, texts: &KeyTexts) -> Value {
        match key {
            EventKey::Number(number) => match self.names.get(&number) {
                Some(name) => name.clone(),
                None => self.field_value(number).unwrap_or_else(|| plain(self.printed(number, |_| UNKNOWN.into()))),
            },
            EventKey::Text(place) => match texts.get(place) {
                Some(text) => Value::Path(text.clone()),
                None if self.is_text() => Value::Word(OTHERS),
                None => Value::None,
            },
        }
    }

    /// As [`ShownKeys::value`], but only for text.
    pub fn text_value(&self, key: EventKey, texts: &KeyTexts) -> Value {
        if key == EventKey::OTHERS { Value::Word(OTHERS) } else { self.value(key, texts) }
    }

    /// A key as the events show the field that it is.
    fn field_value(&self, number: u64) -> Option<Value> {
        let field = self.field.as_ref()?;
        match field.form {
            FieldForm::KernelAddress => None, // its name was asked for
            FieldForm::Hex => Some(Value::Address(number)),
            FieldForm::Name => Some(Value::Path(field.text(number)?.into())),
            FieldForm::Device => {
                let numbers = String::from_utf8(field.text(number)?).ok()?;
                let name = self.disks.get(&numbers).map(|name| format!("{name} ({numbers})"));
                Some(Value::Path(name.unwrap_or(numbers).into_bytes().into()))
            }
        }
    }

    fn printed(&self, number: u64, task: impl FnMut(u64) -> Vec<u8>) -> PrintedKey {
        let signed = |number: u64| PrintedKey::Signed(number as i64);
        match (&self.print, self.ty) {
            (Some(print), ty) => match print.print(number, task) {
                Ok(PrintedKey::Unsigned(number)) if ty != ExprType::Unsigned => signed(number),
                Ok(printed) => printed,
                Err(reason) => PrintedKey::Text(format!("<{}>", reason.reason()).into_bytes()),
            },
            (None, ExprType::Named(naming)) => PrintedKey::Named(naming, number),
            (None, ExprType::Unsigned) => PrintedKey::Unsigned(number),
            (None, _) => signed(number),
        }
    }

    /// More than half of the room for names is used.
    pub fn are_many(&self) -> bool {
        self.names.len() > MAX_NAMES / 2
    }

    /// Forgets all names but those of the keys that are in use.
    pub fn retain(&mut self, mut is_used: impl FnMut(EventKey) -> bool) {
        if self.are_many() {
            self.names.retain(|number, _| is_used(EventKey::Number(*number)));
        }
    }

    /// As [`Profiler::stacks_in_use`](crate::profiler::Profiler::stacks_in_use).
    pub fn stacks_in_use(&self, used: &mut FxHashSet<StackId>) {
        used.extend(self.names.values().filter_map(|name| if let Value::Place(id) = name { Some(*id) } else { None }));
    }
}

/// A key without a looked-up name.
fn plain(printed: PrintedKey) -> Value {
    match printed {
        PrintedKey::Signed(number) => Value::Signed(number),
        PrintedKey::Unsigned(number) => Value::Unsigned(number),
        PrintedKey::Text(text) => Value::Path(text.into()),
        PrintedKey::Named(Naming::Syscall, bits) => match CallId::of_bits(bits).name() {
            Some(Cow::Borrowed(name)) => Value::Word(name),
            Some(Cow::Owned(name)) => Value::Path(name.into_bytes().into()),
            None => Value::Path(bits.to_string().into_bytes().into()),
        },
        PrintedKey::Named(Naming::Kernel, address) => Value::Address(address),
        PrintedKey::Named(Naming::Task, tid) => Value::Path(tid.to_string().into_bytes().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::parse_with;
    use crate::tep::Format;
    use crate::tep::syscalls::compat_calls;

    fn format() -> Format {
        let field = |field: &str, offset, size, signed| {
            format!("\tfield:{field};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
        };
        let fields = [("int pid", 8, 4, 1), ("u64 addr", 16, 8, 0), ("char comm[16]", 24, 16, 0), ("u32 nr", 40, 4, 0)]
            .map(|(name, offset, size, signed)| field(name, offset, size, signed));
        Format::parse("x", &format!("name: y\nID: 1\nformat:\n{}\nprint fmt: \"\"\n", fields.concat())).unwrap()
    }

    fn key(text: &str) -> KeyExpr {
        let expr = Expr::parse(text).unwrap();
        let program = expr.compile(&format()).unwrap();
        KeyExpr::new(&expr, program, &format())
    }

    fn print(text: &str) -> PrintKey {
        let selectors = parse_with(&format!("x:y//printkey={text}/"), &["printkey=EXPR"]).unwrap();
        selectors[0].attrs.print_key.clone().unwrap()
    }

    fn shown(keys: &[&str], print_key: Option<&str>, number: u64) -> Value {
        let keys: Vec<KeyExpr> = keys.iter().map(|text| key(text)).collect();
        let shown = ShownKeys::of(&keys, print_key.map(print).as_ref(), "tid", &Host::default()).unwrap();
        shown.value(EventKey::Number(number), &KeyTexts::default())
    }

    #[test]
    fn numbers_are_shown_by_the_types_of_their_keys() {
        let minus = u64::MAX;
        assert_eq!(shown(&["pid"], None, minus), Value::Signed(-1));
        assert_eq!(shown(&["pid - 100000"], None, -100_i64 as u64), Value::Signed(-100));
        assert_eq!(shown(&["addr"], None, minus), Value::Unsigned(minus));
        assert_eq!(shown(&["addr", "pid"], None, minus), Value::Signed(-1));
        assert_eq!(shown(&[], None, 7), Value::Signed(7));
        assert_eq!(shown(&["pid"], Some("key"), minus), Value::Signed(-1));
        assert_eq!(shown(&["addr"], Some("key"), minus), Value::Unsigned(minus));
    }

    #[test]
    fn named_numbers_have_their_names() {
        assert_eq!(
            shown(&["syscall_name(nr)"], None, u64::from(crate::tep::syscalls::number("openat").unwrap())),
            Value::Word("openat")
        );
        let text = |text: &str| Value::Path(text.as_bytes().into());
        assert_eq!(shown(&["syscall_name(nr)"], None, 99_999), text("99999"));
        assert_eq!(shown(&["syscall_name(nr)"], None, CallId::COMPAT | 20), text(&compat_calls::text(20)));
        assert_eq!(shown(&["syscall_name(nr)"], None, u64::MAX), text(&u64::MAX.to_string()));
        assert_eq!(shown(&["pid"], Some(r#"printf("%03d", key)"#), 7), text("007"));
        assert_eq!(shown(&["pid"], Some("(1 / key)"), 0), text("<division by zero>"));
    }

    #[test]
    fn others_are_a_word_where_keys_are_text() {
        let texts = KeyTexts::default();
        for (text, want) in [("comm", Value::Word(OTHERS)), ("pid", Value::None)] {
            let shown = ShownKeys::of(&[key(text)], None, "tid", &Host::default()).unwrap();
            assert_eq!(shown.value(EventKey::OTHERS, &texts), want, "{text}");
            assert_eq!(shown.text_value(EventKey::OTHERS, &texts), Value::Word(OTHERS));
            assert_eq!(shown.heading(), text);
        }
    }

    #[test]
    fn keys_that_are_never_equal_are_refused() {
        let refusal = |keys: [&str; 2], print_key: Option<&str>| {
            ShownKeys::of(&keys.map(key), print_key.map(print).as_ref(), "tid", &Host::default())
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(["pid", "comm"], None).starts_with("key pid is a number, and key comm is text"));
        assert!(refusal(["comm_get(pid)", "pid"], None).contains("the name of a task"));
        assert!(refusal(["comm", "comm"], Some("key")).starts_with("printkey=key is for keys that are numbers"));
    }
}
