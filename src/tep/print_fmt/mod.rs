//! Compiles a tracepoint's `print fmt` once, then prints records as the kernel would in `trace`.
//!
//! A `print fmt` is the source of a C printf call: a text with conversions, then C expressions over
//! the record, `REC->field`, with the kernel's own functions in them.

mod bitmap;
mod calls;
mod expr;
mod field_conversion;
mod field_text;
mod flag_table;
mod lexer;
mod parser;
mod pointer;
mod printf;
mod stand_in;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashSet;

use crate::tep::format::Format;
use crate::tep::format::field::until_nul;
use crate::tep::types::IntType;
use expr::{CExpr, COp, CType, CValue, NoValue};
use field_conversion::FieldConversion;
use lexer::{Lexer, unescape};
use parser::{Argument, ArgumentParser};
use printf::{Conversion, ConversionKind, ConversionSize, PrintfPart};
use stand_in::StandIn;

use crate::digits::{push_hex, push_hex16};

pub use field_text::{FieldForm, FieldText};
pub use flag_table::FlagTable;
use pointer::PointerKind;
pub use printf::{ConversionFlags, ConversionLayout};

/// Longer ones are refused; the longest of eight kernels has 6 KiB.
const MAX_PRINT_FMT_BYTES: usize = 64 << 10;
/// The text of one record is cut here. The kernel's own buffer holds 8 KiB.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Why a `print fmt` cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unsupported {
    /// Short: `function jiffies_to_msecs`, `name BLK_RW_SYNC`.
    pub reason: String,
}

impl Unsupported {
    fn new(reason: impl Into<String>) -> Self {
        Unsupported { reason: reason.into() }
    }
}

/// Names of addresses, which only the running kernel knows.
pub trait KernelLookup {
    /// Appends the symbol at `addr`, as `%pS` (`with_offset`) or `%ps` does; false when there is none.
    fn kernel_symbol(&self, addr: u64, out: &mut Vec<u8>, with_offset: bool) -> bool;

    /// Appends the constant string that a `const char *` field points to; false when it is not known.
    /// The kernel lists those strings in `printk_formats`.
    fn kernel_text(&self, addr: u64, out: &mut Vec<u8>) -> bool {
        let _ = (addr, out);
        false
    }
}

/// A [`KernelLookup`] that knows no names: addresses stay numbers.
pub struct NoNames;

impl KernelLookup for NoNames {
    fn kernel_symbol(&self, _addr: u64, _out: &mut Vec<u8>, _with_offset: bool) -> bool {
        false
    }
}

/// A compiled `print fmt`.
#[derive(Clone, Debug)]
pub struct PrintFmt {
    pieces: Vec<FormatPiece>,
    fields: Vec<(String, usize)>, // name and offset, for `flag_table` and `field_text`
    gaps: Vec<String>,
}

#[derive(Clone, Debug)]
enum FormatPiece {
    Literal(Vec<u8>),
    FieldConversion(FieldConversion),
    Conversion(Conversion, CExpr),
    /// A conversion whose argument may be unknown here.
    Gap(Box<GapConversion>),
}

#[derive(Clone, Debug)]
struct GapConversion {
    conversion: Conversion,
    argument: CExpr,
    stand_in: StandIn,
}

impl PrintFmt {
    /// Compiles the `print fmt` of `format`.
    ///
    /// A part that cannot be computed here, such as the call of a driver's function, becomes a gap: see
    /// [`PrintFmt::gaps`].
    ///
    /// # Errors
    /// The `print fmt` does not read as a printf call.
    pub fn compile(format: &Format) -> Result<PrintFmt, Unsupported> {
        let text = format.print_fmt.as_str();
        if text.len() > MAX_PRINT_FMT_BYTES {
            return Err(Unsupported::new("a text too long"));
        }
        if text.is_empty() {
            return Err(Unsupported::new("no print fmt"));
        }
        let mut first_error = None;
        for (text, arguments) in splits(text, format.long_size()) {
            match compile_split(format, &text, arguments) {
                Ok((pieces, gaps)) => {
                    let fields = format.fields.iter().map(|field| (field.name.clone(), field.offset)).collect();
                    return Ok(PrintFmt { pieces, fields, gaps });
                }
                Err(error) => {
                    // A syntax error may only mean that the text was split at the wrong quote.
                    let better =
                        |old: &Unsupported| old.reason.starts_with("syntax") && !error.reason.starts_with("syntax");
                    if first_error.as_ref().is_none_or(better) {
                        first_error = Some(error);
                    }
                }
            }
        }
        Err(first_error.unwrap_or_else(|| Unsupported::new("syntax: no text in quotes")))
    }

    /// Appends the text of one record to `out`. A conversion that cannot be evaluated for the record shows as `?`.
    pub fn render(&self, raw: &[u8], names: &dyn KernelLookup, out: &mut Vec<u8>) {
        render_pieces(&self.pieces, raw, names, out);
    }

    /// Where the text may differ from the kernel's, each once: `function xhci_decode_trb`, `name WB_REASON_SYNC`. An
    /// argument with an unknown function or name shows the fields it is computed from,
    /// `xhci_decode_trb(field0=1,field1=2)`; a flag or value whose number is not known shows as hex. Empty: the text is
    /// the kernel's own.
    pub fn gaps(&self) -> &[String] {
        &self.gaps
    }

    /// How this text shows `field`, if it does so in another way than by a decimal number.
    pub fn field_text(&self, field: &str) -> Option<FieldText> {
        let &(_, offset) = self.fields.iter().find(|(name, _)| name == field)?;
        FieldText::find(&self.pieces, offset)
    }

    /// The names this text has for the values or bits of `field`: the first `__print_flags` or
    /// `__print_symbolic` whose value is computed from it.
    pub fn flag_table(&self, field: &str) -> Option<FlagTable> {
        let &(_, offset) = self.fields.iter().find(|(name, _)| name == field)?;
        self.pieces.iter().find_map(|piece| match piece {
            FormatPiece::Conversion(_, argument) => FlagTable::find(argument, offset),
            FormatPiece::Gap(gap) => FlagTable::find(&gap.argument, offset),
            FormatPiece::Literal(_) | FormatPiece::FieldConversion(_) => None, // a table is a call
        })
    }
}

/// The ways to split `"text", arguments`, the likeliest first. The kernel pastes most texts between
/// two quotes without escaping, so quotes and line breaks may be part of them.
fn splits(print_fmt: &str, long: usize) -> Vec<(Vec<u8>, &str)> {
    const LIMIT: usize = 16;
    let mut all = Vec::new();
    let mut lexer = Lexer::new(print_fmt, long);
    let mut text = Vec::new();
    while let Ok(lexer::Token::Text(part)) = lexer.peek() {
        text.extend(part);
        let _ = lexer.next(); // what `peek` just saw
    }
    let ends_text = |rest: &str| rest.is_empty() || rest.starts_with(',');
    if lexer.rest().len() < print_fmt.len() && ends_text(lexer.rest()) {
        all.push((text, lexer.rest()));
    }
    if let Some(body) = print_fmt.trim_start().strip_prefix('"') {
        let ends = body.match_indices('"').filter_map(|(at, _)| {
            let rest = body.get(at + 1..)?.trim_start();
            ends_text(rest).then(|| Some((unescape(body.get(..at)?.as_bytes()), rest)))?
        });
        all.extend(ends.take(LIMIT));
    }
    all
}

fn compile_split(
    format: &Format,
    text: &[u8],
    arguments: &str,
) -> Result<(Vec<FormatPiece>, Vec<String>), Unsupported> {
    let long = format.long_size();
    let mut parser = ArgumentParser::new(format, Lexer::new(arguments, long));
    let mut arguments = parser.arguments()?.into_iter();
    let mut gaps = parser.left_out;
    let too_few = || Unsupported::new("syntax: fewer arguments than conversions");
    let mut pieces = Vec::new();
    for part in printf::parse(text, long)? {
        match part {
            PrintfPart::Literal(text) => pieces.push(FormatPiece::Literal(text)),
            PrintfPart::Conversion(mut conversion) => {
                let mut fault = None;
                for size in [&mut conversion.width, &mut conversion.precision] {
                    if matches!(size, ConversionSize::Star) {
                        let argument = arguments.next().ok_or_else(too_few)?.expr;
                        fault = fault.or(argument.fault());
                        *size = ConversionSize::Argument(Box::new(argument));
                    }
                }
                let Argument { expr: argument, source } = arguments.next().ok_or_else(too_few)?;
                pieces.push(match fault.or_else(|| argument.fault()).or_else(|| misuse(&conversion, &argument)) {
                    Some(reason) => {
                        let stand_in = StandIn::new(&reason, source, format);
                        gaps.push(reason);
                        FormatPiece::Gap(Box::new(GapConversion { conversion, argument, stand_in }))
                    }
                    None => match FieldConversion::new(&conversion, &argument) {
                        Some(direct) => FormatPiece::FieldConversion(direct),
                        None => FormatPiece::Conversion(conversion, argument),
                    },
                });
            }
        }
    }
    let mut seen = FxHashSet::default();
    gaps.retain(|gap| seen.insert(gap.clone()));
    match arguments.next() {
        None => Ok((pieces, gaps)),
        Some(_) => Err(Unsupported::new("syntax: more arguments than conversions")),
    }
}

/// Why the conversion cannot print such an argument.
fn misuse(conversion: &Conversion, argument: &CExpr) -> Option<String> {
    match conversion.kind {
        ConversionKind::Pointer(PointerKind::Foreign) => Some("conversion of a kernel pointer".to_owned()),
        ConversionKind::Pointer(kind) if kind.dereferences() && !argument.may_be_bytes() => {
            Some("dereference of a kernel pointer".to_owned())
        }
        ConversionKind::Integer { .. } | ConversionKind::Char if argument.ty == CType::Text => {
            Some("text where a number belongs".to_owned())
        }
        _ => None,
    }
}

/// As [`PrintFmt::render`].
fn render_pieces(pieces: &[FormatPiece], raw: &[u8], names: &dyn KernelLookup, out: &mut Vec<u8>) {
    let start = out.len();
    for piece in pieces {
        match piece {
            FormatPiece::Literal(text) => out.extend_from_slice(text),
            FormatPiece::FieldConversion(direct) => {
                if direct.render(raw, out).is_err() {
                    out.push(b'?'); // nothing was written
                }
            }
            FormatPiece::Conversion(conversion, argument) => {
                let before = out.len();
                if render_conversion(conversion, argument, raw, names, out).is_err() {
                    out.truncate(before);
                    out.push(b'?');
                }
            }
            FormatPiece::Gap(gap) => {
                let before = out.len();
                if render_conversion(&gap.conversion, &gap.argument, raw, names, out).is_err() {
                    out.truncate(before);
                    gap.stand_in.render(raw, out);
                }
            }
        }
        if out.len() - start > MAX_TEXT_BYTES {
            out.truncate(start + MAX_TEXT_BYTES);
            return;
        }
    }
}

fn render_conversion(
    conversion: &Conversion,
    argument: &CExpr,
    raw: &[u8],
    names: &dyn KernelLookup,
    out: &mut Vec<u8>,
) -> Result<(), NoValue> {
    let width = size_value(&conversion.width, raw)?;
    let layout = ConversionLayout::new(conversion.flags, width, size_value(&conversion.precision, raw)?);
    let start = out.len();
    match conversion.kind {
        ConversionKind::Integer { radix, signed, upper, bytes } => {
            let bits = IntType { size: bytes, signed }.convert(argument.eval(raw)?.number()?);
            layout.integer(bits, radix, signed, upper, out);
        }
        ConversionKind::Char => {
            out.push(argument.eval(raw)?.number()? as u8); // C converts to unsigned char
            layout.pad(start, out);
        }
        ConversionKind::Text => {
            render_text(argument, raw, names, out)?;
            layout.finish_text(start, out);
        }
        ConversionKind::Pointer(PointerKind::Address) => {
            let bits = argument.eval(raw)?.number()?;
            match layout.width {
                Some(_) => layout.integer(bits, 16, false, false, out),
                None => push_hex16(bits, out),
            }
        }
        ConversionKind::Pointer(PointerKind::Symbol { with_offset }) => {
            let addr = argument.eval(raw)?.number()?;
            if !names.kernel_symbol(addr, out, with_offset) {
                out.truncate(start);
                out.extend_from_slice(b"0x");
                push_hex(addr, out);
            }
            layout.finish_text(start, out);
        }
        ConversionKind::Pointer(kind) => {
            let count = if kind.counts() { layout.width } else { None };
            kind.render(argument.eval(raw)?.bytes()?, count, out)?;
            if !kind.counts() {
                layout.pad(start, out);
            }
        }
    }
    Ok(())
}

fn size_value(size: &ConversionSize, raw: &[u8]) -> Result<Option<i64>, NoValue> {
    Ok(match size {
        ConversionSize::None | ConversionSize::Star => None,
        ConversionSize::Fixed(value) => Some(*value as i64), // bounded when parsed
        ConversionSize::Argument(argument) => Some(IntType::INT.convert(argument.eval(raw)?.number()?) as i64),
    })
}

/// Appends what `%s` prints of the argument.
fn render_text(argument: &CExpr, raw: &[u8], names: &dyn KernelLookup, out: &mut Vec<u8>) -> Result<(), NoValue> {
    match &argument.op {
        COp::Call(call) => return call.render(raw, out),
        COp::Choose(three) => {
            let [condition, yes, no] = &**three;
            let taken = if condition.eval(raw)? == CValue::Number(0) { no } else { yes };
            return render_text(taken, raw, names, out);
        }
        _ => {}
    }
    match argument.eval(raw)? {
        CValue::Bytes(text) | CValue::Literal(text) => out.extend_from_slice(until_nul(text)),
        CValue::Number(0) => out.extend_from_slice(b"(null)"),
        CValue::Number(addr) => {
            let start = out.len();
            if !names.kernel_text(addr, out) {
                out.truncate(start);
                out.extend_from_slice(b"0x");
                push_hex(addr, out);
            }
        }
    }
    Ok(())
}
