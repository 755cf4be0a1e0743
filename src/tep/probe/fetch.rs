//! The arguments that a probe records, `size=$arg1 path=+0($arg2):ustring`: checked, and translated to the kernel's
//! language.
//!
//! ```text
//! ARGS  = ARG { " " ARG }
//! ARG   = [ NAME "=" ] FETCH [ ":" TYPE ]
//! FETCH = "$argN" | "$retval" | "$stack" | "$stackN" | "$comm" | "%REGISTER"
//!       | "@ADDRESS" | "@SYMBOL" [ "+N" | "-N" ] | ( "+" | "-" ) [ "u" ] N "(" FETCH ")" | "\NUMBER" | "\"TEXT""
//! ```
//! Three things are easier than in the kernel's own language (Documentation/trace/kprobetrace.rst): `$argN` works in
//! user programs, text needs no `+0(...)` around its pointer, and `string[N]`, `string[FETCH]` is text of at most so
//! many bytes instead of an array of texts: the kernel reads up to a NUL, and the text is cut when it is read from the
//! record.

use super::machine::Machine;

/// MAX_TRACE_ARGS and MAX_ARG_NAME_LEN, kernel/trace/trace_probe.h.
const MAX_ARGS: usize = 128;
const MAX_NAME_BYTES: usize = 31;
/// FETCH_INSN_MAX of the same.
const MAX_DEPTH: usize = 16;
/// The variables and types that messages list.
const VARIABLES: &str = "$arg1 $arg2 ..., $retval, $comm, $stack, $stack0 $stack1 ...";
const TYPES: &str = "u8 to u64, s8 to s64, x8 to x64, char, string, ustring, symbol, b1@0/8, or one of these with [N]; \
                     string[$arg2] is text with a length";
/// MAX_STRING_SIZE of the same: as much text as the kernel reads.
const MAX_TEXT_BYTES: u16 = 4096;

const STACK_WORD_32: &str = "what an argument on the stack of a 32-bit program points to cannot be recorded";

/// The place of a probe, as far as its arguments depend on it.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSite {
    /// The probe is in a program, not in the kernel.
    pub user: bool,
    /// The probe is at the return of the function.
    pub ret: bool,
    /// The probe is at the first instruction of the function.
    pub entry: bool,
    pub machine: Machine,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchArg {
    /// The argument in the kernel's language, with name and type.
    pub text: String,
    /// Byte offset in the text of all arguments, as typed.
    pub offset: usize,
    /// `text` is what was typed.
    pub as_typed: bool,
    pub name: String,
    /// Limit of a text's length.
    pub limit: Option<FetchLimit>,
}

/// Limit of a text's length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchLimit {
    Bytes(u16),
    /// The value of the argument of this name, in bytes.
    Field(String),
}

/// A fault, and its byte offset in the text of all arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgFault {
    pub message: String,
    pub offset: usize,
}

/// Parses all arguments.
///
/// # Errors
/// The kernel would refuse an argument, as far as that can be known here.
pub fn parse(text: &str, site: &ProbeSite) -> Result<Vec<FetchArg>, ArgFault> {
    let mut args: Vec<FetchArg> = Vec::new();
    let mut offset = 0;
    for word in text.split(' ') {
        if !word.is_empty() {
            for arg in argument(word, offset, site, args.len() + 1)? {
                if args.iter().any(|other| other.name == arg.name) {
                    return fault(
                        offset,
                        format!("there are two of the name {}: write another one before a `=`", arg.name),
                    );
                }
                args.push(arg);
            }
        }
        offset += word.len() + 1;
    }
    match args.len() {
        0 => fault(0, "nothing to record: write as in args='size=$arg1 path=$arg2:ustring'"),
        count if count > MAX_ARGS => fault(0, format!("the kernel records {MAX_ARGS} values at most")),
        _ => Ok(args),
    }
}

/// Parses one argument. A text whose length is fetched makes a second one, that length.
fn argument(word: &str, offset: usize, site: &ProbeSite, number: usize) -> Result<Vec<FetchArg>, ArgFault> {
    if let Some(bad) = word.find(|c: char| !c.is_ascii_graphic() || matches!(c, ';' | '#')) {
        return fault(offset + bad, "the kernel takes no such character");
    }
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let (given, fetch_at) = match word.split_once('=') {
        Some((name, _)) if name.len() > MAX_NAME_BYTES => {
            return fault(offset, format!("a name has {MAX_NAME_BYTES} bytes at most"));
        }
        Some((name, _)) if name.starts_with("common_") || name.starts_with("__probe_") => {
            return fault(offset, format!("{name} is a field of every probe already: choose another name"));
        }
        Some((name, _)) if is_name(name) => (Some(name), name.len() + 1),
        Some((name, _)) if !name.contains('"') => {
            return fault(offset, "a name is letters, digits and `_`, as in size=$arg1");
        }
        _ => (None, 0),
    };
    let mut parser = FetchParser { word, next: fetch_at, base: offset, site };
    let fetched = parser.fetch(0)?;
    let (ty, len) = parser.type_and_len()?;
    let name = given.map(str::to_owned).or_else(|| default_name(&word[fetch_at..])).unwrap_or(format!("value{number}"));
    let is_text = ty.is_some_and(|ty| ty.starts_with("string") || ty.starts_with("ustring"));
    if fetched.kind == FetchedKind::StackWord32 && is_text {
        return fault(offset + fetch_at, STACK_WORD_32);
    }
    let (ty, len) = match len {
        Some(TextLen::Bytes(bytes)) => (ty, Some((FetchLimit::Bytes(bytes), None))),
        Some(TextLen::Fetched(len)) => {
            let len_name = format!("{name}_len");
            if len_name.len() > MAX_NAME_BYTES {
                return fault(offset, format!("a name of text with a length has {} bytes at most", MAX_NAME_BYTES - 4));
            }
            let word = if site.user && site.machine.word().is_some() { "u32" } else { "u64" };
            let text = format!("{len_name}={}:{word}", len.text);
            (ty, Some((FetchLimit::Field(len_name.clone()), Some((text, len_name)))))
        }
        None => (ty, None),
    };
    let text = format!("{name}={}", with_type(fetched, ty, site));
    let (limit, len) = len.unzip();
    let mut args = vec![FetchArg { as_typed: text == word, text, offset, name, limit }];
    args.extend(len.flatten().map(|(text, name)| FetchArg { text, offset, as_typed: false, name, limit: None }));
    Ok(args)
}

/// The name of an argument that has none: `arg1` for `$arg1`, `di` for `%di`.
fn default_name(fetch: &str) -> Option<String> {
    let fetch = fetch.split(':').next()?;
    let name = fetch.strip_prefix(['$', '%'])?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| name.to_owned())
}

/// The argument with its type: text is fetched through a pointer, and a word of a 32-bit program has 4 bytes.
fn with_type(fetched: Fetched, ty: Option<&str>, site: &ProbeSite) -> String {
    let Fetched { text, kind } = fetched;
    let base = ty.map(|ty| ty.split('[').next().unwrap_or(ty));
    match (base, ty) {
        (Some("string" | "ustring"), Some(ty)) => {
            // All memory of a program is the user's: kernels before 5.2 know only `string`.
            let ty = if site.user { ty.trim_start_matches('u') } else { ty };
            if matches!(kind, FetchedKind::Value) { format!("+0({text}):{ty}") } else { format!("{text}:{ty}") }
        }
        (_, Some(ty)) => format!("{text}:{ty}"),
        (_, None) => match site.machine.word().filter(|_| site.user && kind != FetchedKind::Text) {
            Some(word) => format!("{text}:{word}"),
            None => text,
        },
    }
}

/// A FETCH of the grammar, in the kernel's language.
struct Fetched {
    text: String,
    kind: FetchedKind,
}

#[derive(PartialEq, Eq)]
enum FetchedKind {
    Value,
    /// A word of a 32-bit program's stack.
    StackWord32,
    Memory,
    Text,
}

struct FetchParser<'a> {
    word: &'a str,
    next: usize,
    /// Byte offset of `word` in the text of all arguments.
    base: usize,
    site: &'a ProbeSite,
}

impl<'a> FetchParser<'a> {
    fn rest(&self) -> &'a str {
        self.word.get(self.next..).unwrap_or_default()
    }

    /// Takes characters as long as they are `wanted`.
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())];
        self.next += taken.len();
        taken
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, ArgFault> {
        fault(self.base + self.next, message)
    }

    fn fetch(&mut self, depth: usize) -> Result<Fetched, ArgFault> {
        if depth >= MAX_DEPTH {
            return self.fault("too many pointers in pointers");
        }
        let start = self.next;
        let value = |text: String| Ok(Fetched { text, kind: FetchedKind::Value });
        match self.rest().chars().next() {
            Some('$') => self.variable(),
            Some('%') => {
                self.next += 1;
                let name = self.take(|c| c.is_ascii_alphanumeric());
                match self.site.machine.register(name) {
                    Some(register) => value(format!("%{register}")),
                    None => fault(
                        self.base + start + 1,
                        format!("no such register; there are {}", self.site.machine.registers()),
                    ),
                }
            }
            Some('@') => {
                self.next += 1;
                let place = self.take(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c));
                if place.is_empty() {
                    return self.fault("an address or a symbol is missing, as in @jiffies");
                }
                Ok(Fetched { text: format!("@{place}"), kind: FetchedKind::Memory })
            }
            Some(sign @ ('+' | '-')) => self.behind_pointer(sign, depth),
            Some('\\') => {
                self.next += 1;
                let is_text = self.rest().starts_with('"');
                let word = self.take(|c| !matches!(c, ':' | ')'));
                Ok(Fetched {
                    text: format!("\\{word}"),
                    kind: if is_text { FetchedKind::Text } else { FetchedKind::Value },
                })
            }
            // A parameter by its name: kernels with BTF know them.
            Some(c) if !self.site.user && (c.is_ascii_alphabetic() || c == '_') => {
                value(self.take(|c| c.is_ascii_alphanumeric() || "_->.".contains(c)).to_owned())
            }
            _ => {
                self.fault(format!("what to record is missing here: one of {VARIABLES}, %REGISTER, +N(...), @ADDRESS"))
            }
        }
    }

    /// `+8($arg1)`: what lies at an offset from what another fetch gives.
    fn behind_pointer(&mut self, sign: char, depth: usize) -> Result<Fetched, ArgFault> {
        self.next += 1;
        let user = self.take(|c| c == 'u');
        let offset = self.number()?;
        if user.len() > 1 || !self.rest().starts_with('(') {
            return self.fault("write an offset and what it is from, as in +8($arg1)");
        }
        self.next += 1;
        let inner_offset = self.next;
        let inner = self.fetch(depth + 1)?;
        if inner.kind == FetchedKind::StackWord32 {
            return fault(self.base + inner_offset, STACK_WORD_32);
        }
        if !self.rest().starts_with(')') {
            return self.fault("a `)` is missing");
        }
        self.next += 1;
        Ok(Fetched { text: format!("{sign}{user}{offset}({})", inner.text), kind: FetchedKind::Memory })
    }

    fn variable(&mut self) -> Result<Fetched, ArgFault> {
        let start = self.next;
        let here = |message: String| fault(self.base + start, message);
        let ProbeSite { ret, entry, machine, user } = *self.site;
        let rest = &self.rest()[1..];
        let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '*').unwrap_or(rest.len())];
        let text = match name {
            "retval" if ret => "$retval".to_owned(),
            "retval" => {
                let letter = if user { 'u' } else { 'k' };
                return here(format!("$retval is there when the function returns: write {letter}retprobe:"));
            }
            "stack" | "comm" => format!("${name}"),
            "arg*" if !user => "$arg*".to_owned(),
            _ => match name.strip_prefix("arg").map(str::parse::<u32>) {
                Some(Ok(1..)) if ret && user => {
                    return here(
                        "the arguments are gone when the function returns: record them with uprobe:".to_owned(),
                    );
                }
                Some(Ok(1..)) if !entry && !ret => {
                    return here("arguments are known where a function starts; elsewhere name a %register".to_owned());
                }
                // Newer kernels keep the arguments until the return.
                Some(Ok(1..)) if ret => format!("${name}"),
                Some(Ok(number @ 1..)) => match machine.argument(number) {
                    Some(place) => place,
                    None => {
                        return here("where arguments are is not known of this machine: name a %register".to_owned());
                    }
                },
                _ if name.strip_prefix("stack").is_some_and(|number| number.parse::<u32>().is_ok()) => {
                    format!("${name}")
                }
                _ => return here(format!("there is no ${name}; there are {VARIABLES}")),
            },
        };
        self.next += 1 + name.len();
        let kind = match name {
            "comm" => FetchedKind::Text,
            _ if text.starts_with('+') => FetchedKind::StackWord32,
            _ => FetchedKind::Value,
        };
        Ok(Fetched { text, kind })
    }

    fn number(&mut self) -> Result<&'a str, ArgFault> {
        let start = self.next;
        let digits = self.take(|c| c.is_ascii_alphanumeric());
        let value = match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).is_ok(),
            None => digits.parse::<i64>().is_ok(),
        };
        if value { Ok(digits) } else { fault(self.base + start, "a number is missing here, as in +8($arg1)") }
    }

    /// Parses the type, and the length of a text, at the end of the argument.
    fn type_and_len(&mut self) -> Result<(Option<&'a str>, Option<TextLen>), ArgFault> {
        let Some(ty) = self.rest().strip_prefix(':') else {
            return if self.rest().is_empty() {
                Ok((None, None))
            } else {
                self.fault("a blank or a `:` expected here")
            };
        };
        self.next += 1;
        if let Some((text @ ("string" | "ustring"), _)) = ty.split_once('[') {
            self.next += text.len() + 1;
            return Ok((Some(text), Some(self.len()?)));
        }
        if is_type(ty) { Ok((Some(ty), None)) } else { self.fault(format!("no such type; there are {TYPES}")) }
    }

    /// Parses the length of a text, up to the end of the argument: `16]`, `$arg2]`.
    fn len(&mut self) -> Result<TextLen, ArgFault> {
        let start = self.base + self.next;
        let len = if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            match self.take(|c| c.is_ascii_digit()).parse() {
                Ok(bytes @ 1..=MAX_TEXT_BYTES) => TextLen::Bytes(bytes),
                _ => return fault(start, format!("a text has 1 to {MAX_TEXT_BYTES} bytes")),
            }
        } else {
            match self.fetch(1)? {
                Fetched { kind: FetchedKind::Text, .. } => return fault(start, "a length is a number"),
                len => TextLen::Fetched(len),
            }
        };
        if self.rest() == "]" { Ok(len) } else { self.fault("a `]` is missing at the end, as in string[$arg2]") }
    }
}

/// Length of a text.
enum TextLen {
    Bytes(u16),
    Fetched(Fetched),
}

fn is_type(ty: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number > 0) && !text.starts_with('+');
    let base = match ty.strip_suffix(']').and_then(|ty| ty.split_once('[')) {
        Some((base, count)) if is_number(count) => base,
        Some(_) => return false,
        None => ty,
    };
    let bits = |text: &str| matches!(text, "8" | "16" | "32" | "64");
    matches!(base, "char" | "string" | "ustring" | "symbol" | "symstr" | "%pd" | "%pD")
        || base.strip_prefix(['u', 's', 'x']).is_some_and(bits)
        || base.strip_prefix('b').and_then(|field| field.split_once('@')).is_some_and(|(width, place)| {
            let (offset, container) = place.split_once('/').unwrap_or((place, ""));
            is_number(width) && offset.parse::<u32>().is_ok() && bits(container)
        })
}

fn fault<T>(offset: usize, message: impl Into<String>) -> Result<T, ArgFault> {
    Err(ArgFault { message: message.into(), offset })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KERNEL: ProbeSite = ProbeSite { user: false, ret: false, entry: true, machine: Machine::X86_64 };
    const USER: ProbeSite = ProbeSite { user: true, ..KERNEL };
    const RETURN: ProbeSite = ProbeSite { ret: true, ..USER };

    fn texts(text: &str, site: &ProbeSite) -> Vec<String> {
        let args = parse(text, site).unwrap_or_else(|err| panic!("{text:?}: {err:?}"));
        args.into_iter().map(|arg| arg.text).collect()
    }

    #[test]
    fn translates_to_the_kernels_language() {
        let arm = ProbeSite { machine: Machine::Aarch64, ..USER };
        let narrow = ProbeSite { machine: Machine::X86, ..USER };
        let cases: [(&str, ProbeSite, &[&str]); 20] = [
            ("size=$arg1", USER, &["size=%di"]),
            ("size=$arg1:u64  path=+0($arg2):ustring", KERNEL, &["size=%di:u64", "path=+0(%si):ustring"]),
            ("path=$arg2:ustring", KERNEL, &["path=+0(%si):ustring"]),
            ("path=$arg2:ustring", USER, &["path=+0(%si):string"]),
            ("path=+8($arg1):string", USER, &["path=+8(%di):string"]),
            ("text=$arg1:string[16]", USER, &["text=+0(%di):string"]),
            ("text=$arg1:string[$arg2]", USER, &["text=+0(%di):string", "text_len=%si:u64"]),
            ("$arg1:ustring[+8(%dx)] x=%r8", KERNEL, &["arg1=+0(%di):ustring", "arg1_len=+8(%dx):u64", "x=%r8"]),
            ("a=%bx:string[$arg2]", narrow, &["a=+0(%bx):string", "a_len=+8($stack):u32"]),
            ("$arg7 $comm %rdi", USER, &["arg7=$stack1", "comm=$comm", "rdi=%di"]),
            ("who=$comm:string", USER, &["who=$comm:string"]),
            ("$arg1 a=$arg9", arm, &["arg1=%x0", "a=$stack0"]),
            ("$arg1 b=$arg2:u16", narrow, &["arg1=+4($stack):x32", "b=+8($stack):u16"]),
            ("ret=$retval:s32", RETURN, &["ret=$retval:s32"]),
            ("$retval", RETURN, &["retval=$retval"]),
            ("x=+4(-0x8(%sp)):u32[4]", USER, &["x=+4(-0x8(%sp)):u32[4]"]),
            ("x=+u16(@init_task):b4@0/32", KERNEL, &["x=+u16(@init_task):b4@0/32"]),
            ("a=\\1 b=\\\"x\" c=$stack", KERNEL, &["a=\\1", "b=\\\"x\"", "c=$stack"]),
            ("count file->f_pos", KERNEL, &["value1=count", "value2=file->f_pos"]),
            ("a=$arg1", ProbeSite { ret: true, ..KERNEL }, &["a=$arg1"]),
        ];
        for (text, site, want) in cases {
            assert_eq!(texts(text, &site), want, "{text:?}");
        }
        let args = parse(" a=%di  b=$arg2", &USER).unwrap();
        assert_eq!((args[0].offset, args[0].as_typed, args[1].offset, args[1].as_typed), (1, true, 8, false));
    }

    #[test]
    fn refuses_with_the_place() {
        let inside = ProbeSite { entry: false, ..USER };
        let cases = [
            ("", USER, 0, "nothing to record"),
            ("a=", USER, 2, "what to record is missing"),
            ("a=$arg0", USER, 2, "there is no $arg0"),
            ("a=$argx", USER, 2, "there is no $argx"),
            ("a=$retval", USER, 2, "$retval is there when the function returns: write uretprobe:"),
            ("a=$retval", KERNEL, 2, "$retval is there when the function returns: write kretprobe:"),
            ("a=$arg1", RETURN, 2, "the arguments are gone"),
            ("a=$arg1", inside, 2, "arguments are known where a function starts"),
            ("b=%di a=%zz", USER, 9, "no such register; there are r15"),
            ("a=$arg1:u7", USER, 8, "no such type"),
            ("a=$arg1:u8[0]", USER, 8, "no such type"),
            ("a=$arg1:string[0]", USER, 15, "a text has 1 to 4096 bytes"),
            ("a=$arg1:string[4097]", USER, 15, "a text has 1 to 4096 bytes"),
            ("a=$arg1:string[", USER, 15, "what to record is missing"),
            ("a=$arg1:string[8", USER, 16, "a `]` is missing"),
            ("a=$arg1:string[8]x", USER, 16, "a `]` is missing"),
            ("a=$arg1:string[$arg2", USER, 20, "a `]` is missing"),
            ("a=$arg1:string[$comm]", USER, 15, "a length is a number"),
            ("a=$arg1:string[%zz]", USER, 16, "no such register"),
            ("a=$arg1:string[%si] a_len=%dx", USER, 20, "there are two of the name a_len"),
            ("a=$arg1x", USER, 2, "there is no $arg1x"),
            ("a=+0($arg1", USER, 10, "a `)` is missing"),
            ("a=+($arg1)", USER, 3, "a number is missing"),
            ("a=+0$arg1", USER, 4, "write an offset"),
            ("a=$arg1 a=$arg2", USER, 8, "there are two of the name a"),
            ("a b=$arg1", USER, 0, "what to record is missing"),
            ("common_pid=$arg1", USER, 0, "common_pid is a field of every probe"),
            ("a-b=$arg1", USER, 0, "a name is letters"),
            ("a=$arg1;b", USER, 7, "the kernel takes no such character"),
            ("a=$arg1\nb", USER, 7, "the kernel takes no such character"),
            ("s=$arg2:string", ProbeSite { machine: Machine::X86, ..USER }, 2, "what an argument on the stack"),
            ("s=+0($arg2):u8", ProbeSite { machine: Machine::X86, ..USER }, 5, "what an argument on the stack"),
            ("a=$arg1,b", USER, 7, "a blank or a `:`"),
            ("a=$arg1:é", USER, 8, "the kernel takes no such character"),
        ];
        for (text, site, offset, message) in cases {
            let err = parse(text, &site).expect_err(text);
            assert!(err.message.starts_with(message), "{text:?}: {err:?}");
            assert_eq!(err.offset, offset, "{text:?}: {err:?}");
        }
    }

    proptest! {
        #[test]
        fn one_line_or_a_fault(text in "([a-z=$%@+()\\\\:0-9 \n;#\"é\\[\\]-]|\\$arg|retval|string|:string\\[|\\PC){0,40}", user: bool, ret: bool) {
            match parse(&text, &ProbeSite { user, ret, entry: !ret, machine: Machine::X86_64 }) {
                Ok(args) => for arg in args {
                    prop_assert!(arg.text.bytes().all(|byte| byte.is_ascii_graphic() && !b";#".contains(&byte)));
                    prop_assert!(text.is_char_boundary(arg.offset));
                },
                Err(err) => prop_assert!(err.offset <= text.len() && text.is_char_boundary(err.offset), "{err:?}"),
            }
        }
    }
}
