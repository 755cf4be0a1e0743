//! The functions a `print fmt` may call: those that find data, and those that make text of it.
//!
//! Source: include/trace/stages/stage3_trace_output.h and kernel/trace/trace_output.c.

use std::io::Write;

use super::super::field::{Field, FieldKind, int_at, until_nul};
use super::super::operators::BinaryOperator;
use super::super::types::IntType;
use super::Unsupported;
use super::bitmap;
use super::expr::{CExpr, COp, CType, NoValue};
use super::lexer::Token;
use super::parser::ArgumentParser;
use crate::digits::push_hex;

/// A call that makes text.
#[derive(Clone, Debug)]
pub enum Call {
    Flags {
        value: CExpr,
        delimiter: Vec<u8>,
        table: NameTable,
    },
    Symbolic {
        value: CExpr,
        table: NameTable,
    },
    Hex {
        bytes: CExpr,
        len: CExpr,
        spaced: bool,
    },
    Array {
        bytes: CExpr,
        count: CExpr,
        size: CExpr,
    },
    Bitmask {
        bytes: CExpr,
    },
    /// `nvme_trace_disk_name`
    DiskName {
        name: CExpr,
    },
    /// A function of the kernel that returns a name for each value.
    Named {
        value: CExpr,
        names: &'static [&'static str],
        other: &'static str,
    },
}

/// `{ mask, "name" }, ..` in the kernel's order.
pub type NameTable = Vec<(u64, Vec<u8>)>;

impl Call {
    pub fn operands(&self) -> Vec<&CExpr> {
        match self {
            Call::Flags { value, .. } | Call::Symbolic { value, .. } | Call::Named { value, .. } => vec![value],
            Call::DiskName { name } => vec![name],
            Call::Hex { bytes, len, .. } => vec![bytes, len],
            Call::Array { bytes, count, size } => vec![bytes, count, size],
            Call::Bitmask { bytes } => vec![bytes],
        }
    }

    pub fn render(&self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
        match self {
            Call::Flags { value, delimiter, table } => render_flags(value.eval(raw)?.number()?, delimiter, table, out),
            Call::Symbolic { value, table } => render_symbol(value.eval(raw)?.number()?, table, out),
            Call::Hex { bytes, len, spaced } => {
                let bytes = first(bytes.eval(raw)?.bytes()?, len.eval(raw)?.number()?)?;
                let separator: &[u8] = if *spaced { b" " } else { b"" };
                render_hex(bytes, separator, out);
            }
            Call::Array { bytes, count, size } => {
                let size = size.eval(raw)?.number()?;
                let len = count.eval(raw)?.number()?.checked_mul(size).ok_or(NoValue)?;
                render_array(first(bytes.eval(raw)?.bytes()?, len)?, size, out)?;
            }
            Call::DiskName { name } => {
                let name = until_nul(name.eval(raw)?.bytes()?);
                if !name.is_empty() {
                    out.extend_from_slice(b"disk=");
                    out.extend_from_slice(name);
                    out.extend_from_slice(b", ");
                }
            }
            Call::Named { value, names, other } => {
                let value = usize::try_from(value.eval(raw)?.number()?).ok();
                let name = value.and_then(|value| names.get(value)).unwrap_or(other);
                out.extend_from_slice(name.as_bytes());
            }
            Call::Bitmask { bytes } => {
                let bytes = bytes.eval(raw)?.bytes()?;
                bitmap::render_hex(bytes, bytes.len() * 8, out);
            }
        }
        Ok(())
    }
}

fn first(bytes: &[u8], len: u64) -> Result<&[u8], NoValue> {
    usize::try_from(len).ok().and_then(|len| bytes.get(..len)).ok_or(NoValue)
}

/// The names of the bits set, then what is left of them in hex. As in the kernel, an entry with
/// mask 0 is named whenever bits are left.
pub fn render_flags(value: u64, delimiter: &[u8], table: &NameTable, out: &mut Vec<u8>) {
    let start = out.len();
    let mut left = value;
    for (mask, name) in table {
        if left == 0 {
            break;
        }
        if left & mask == *mask {
            left &= !mask;
            if out.len() > start {
                out.extend_from_slice(delimiter);
            }
            out.extend_from_slice(name);
        }
    }
    if left != 0 {
        if out.len() > start {
            out.extend_from_slice(delimiter);
        }
        out.extend_from_slice(b"0x");
        push_hex(left, out);
    }
}

/// The name of the value, else the value in hex. An empty name does not count as one.
pub fn render_symbol(value: u64, table: &NameTable, out: &mut Vec<u8>) {
    match table.iter().find(|(mask, _)| *mask == value) {
        Some((_, name)) if !name.is_empty() => out.extend_from_slice(name),
        _ => {
            out.extend_from_slice(b"0x");
            push_hex(value, out);
        }
    }
}

pub fn render_hex(bytes: &[u8], separator: &[u8], out: &mut Vec<u8>) {
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(separator);
        }
        let _ = write!(out, "{byte:02x}"); // writing to a Vec cannot fail
    }
}

fn render_array(bytes: &[u8], size: u64, out: &mut Vec<u8>) -> Result<(), NoValue> {
    let size = usize::try_from(size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8)).ok_or(NoValue)?;
    out.push(b'{');
    for (at, element) in bytes.chunks_exact(size).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"0x");
        push_hex(int_at(element, 0, size)?, out);
    }
    out.push(b'}');
    Ok(())
}

impl ArgumentParser<'_> {
    /// The call of `name`, whose opening bracket is read.
    pub fn call(&mut self, name: &str) -> Result<CExpr, Unsupported> {
        let name = name.strip_suffix("_u64").filter(|name| name.starts_with("__print_")).unwrap_or(name);
        let expr = match name {
            "__get_str" | "__get_rel_str" => self.located(CType::Pointer(Some(IntType::signed(1))))?,
            "__get_dynamic_array" | "__get_rel_dynamic_array" | "__get_sockaddr" | "__get_rel_sockaddr" => {
                self.located(CType::Pointer(None))?
            }
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => match self.located(CType::Pointer(None))?.op {
                COp::Located { word, .. } => CExpr::leaf(COp::LocatedLen { word }, CType::Int(IntType::INT)),
                op => CExpr::leaf(op, CType::Int(IntType::INT)),
            },
            "__get_bitmask" | "__get_cpumask" | "__get_rel_bitmask" | "__get_rel_cpumask" => {
                let bytes = self.located(CType::Pointer(None))?;
                CExpr::call(Call::Bitmask { bytes: bytes.clone() }, &[&bytes])?
            }
            "__print_flags" => {
                let value = self.expression()?;
                self.lexer.expect(",")?;
                let delimiter = match self.expression()?.op {
                    COp::Literal(text) => text,
                    COp::Const(0) => Vec::new(),
                    _ => return Err(Unsupported::new("a delimiter that is no literal")),
                };
                let table = self.table()?;
                let copy = value.clone();
                CExpr::call(Call::Flags { value, delimiter, table }, &[&copy])?
            }
            "__print_symbolic" => {
                let value = self.expression()?;
                let table = self.table()?;
                let copy = value.clone();
                CExpr::call(Call::Symbolic { value, table }, &[&copy])?
            }
            "__print_hex" | "__print_hex_str" => {
                let [bytes, len] = self.operands()?;
                let operands = [bytes.clone(), len.clone()];
                bytes_call(Call::Hex { bytes, len, spaced: name == "__print_hex" }, &operands)?
            }
            "__print_array" => {
                let [bytes, count, size] = self.operands()?;
                let operands = [bytes.clone(), count.clone(), size.clone()];
                bytes_call(Call::Array { bytes, count, size }, &operands)?
            }
            "__print_dynamic_array" => {
                let bytes = self.located(CType::Pointer(None))?;
                self.lexer.expect(",")?;
                let size = self.expression()?;
                let COp::Located { word, .. } = bytes.op else { return Ok(CExpr::bad("array that is not dynamic")) };
                let len = CExpr::leaf(COp::LocatedLen { word }, CType::Int(IntType::INT));
                let count = CExpr::binary(BinaryOperator::Divide, len, size.clone())?;
                let operands = [bytes.clone(), count.clone(), size.clone()];
                bytes_call(Call::Array { bytes, count, size }, &operands)?
            }
            "__print_ns_to_secs" | "__print_ns_without_secs" => {
                let [value] = self.operands()?;
                let value = CExpr::cast(value, CType::Int(IntType::U64))?;
                let second = CExpr::constant(1_000_000_000, IntType::U64);
                if name == "__print_ns_to_secs" {
                    CExpr::binary(BinaryOperator::Divide, value, second)?
                } else {
                    CExpr::cast(
                        CExpr::binary(BinaryOperator::Remainder, value, second)?,
                        CType::Int(IntType::unsigned(4)),
                    )?
                }
            }
            "__builtin_expect" => {
                let [value, _expected] = self.operands()?;
                CExpr::cast(value, CType::Int(IntType::signed(self.long)))?
            }
            "__builtin_constant_p" => {
                let [value] = self.operands()?;
                CExpr::constant(u64::from(value.as_const().is_some()), IntType::INT)
            }
            "__builtin_choose_expr" => {
                let [condition, yes, no] = self.operands()?;
                CExpr::choose(condition, yes, no)?
            }
            name => {
                let start = self.lexer.clone();
                match self.kernel_function(name) {
                    Ok(Some(expr)) => expr,
                    Ok(None) | Err(_) => {
                        self.lexer = start;
                        self.lexer.skip_to_close()?;
                        return Ok(CExpr::bad(format!("function {name}")));
                    }
                }
            }
        };
        self.lexer.expect(")")?;
        Ok(expr)
    }

    pub fn operands<const N: usize>(&mut self) -> Result<[CExpr; N], Unsupported> {
        let mut all = Vec::with_capacity(N);
        loop {
            all.push(self.expression()?);
            if all.len() == N || !self.lexer.eat(",") {
                break;
            }
        }
        all.try_into().map_err(|_| Unsupported::new("syntax: too few arguments of a function"))
    }

    /// `field` or `field[2]`: a pointer to what the field locates.
    fn located(&mut self, ty: CType) -> Result<CExpr, Unsupported> {
        let name = self.lexer.word()?;
        let index = if self.lexer.eat("[") {
            let index = self.expression()?.as_const();
            self.lexer.expect("]")?;
            index.and_then(|index| usize::try_from(index).ok())
        } else {
            Some(0)
        };
        let Some(field) = self.format.field(name) else { return Ok(CExpr::bad(format!("field {name}"))) };
        Ok(index.and_then(|index| located_word(field, index)).map_or_else(
            || CExpr::bad(format!("field {name}, which locates nothing")),
            |(word, relative)| CExpr::leaf(COp::Located { word, relative, limit: field.limit }, ty),
        ))
    }

    /// `, { value, "name" }, ..` up to the closing bracket. An entry of unknown value is left out: its bits
    /// or its value are then shown in hex, as the kernel shows those that no entry names.
    fn table(&mut self) -> Result<NameTable, Unsupported> {
        let (mut table, mut ended) = (NameTable::new(), false);
        while self.lexer.eat(",") {
            match self.lexer.peek()? {
                Token::Mark(")") => break,
                Token::Mark("{") => {}
                Token::Word(name) => {
                    self.lexer.next()?;
                    self.left_out.push(format!("name {name}"));
                    continue;
                }
                _ => {}
            }
            self.lexer.expect("{")?;
            if self.lexer.eat("}") {
                continue; // the macro that fills the table expands to nothing
            }
            let value = self.expression()?;
            self.lexer.expect(",")?;
            let name = self.expression()?;
            self.lexer.expect("}")?;
            let reason = value.fault().or_else(|| name.fault());
            // Tables end at an entry without a name.
            ended |= name.as_const() == Some(0);
            if !ended {
                match (value.op, name.op) {
                    // `unsigned long` in the kernel: already extended by its type.
                    (COp::Const(mask), COp::Literal(name)) => table.push((mask, name)),
                    _ => self.left_out.push(reason.unwrap_or_else(|| "a table entry that is not constant".to_owned())),
                }
            }
        }
        Ok(table)
    }
}

/// A call whose first operand must be bytes of the record.
fn bytes_call(call: Call, operands: &[CExpr]) -> Result<CExpr, Unsupported> {
    match operands.first() {
        Some(bytes) if bytes.may_be_bytes() || matches!(bytes.op, COp::Bad(_)) => {
            CExpr::call(call, &operands.iter().collect::<Vec<_>>())
        }
        _ => Ok(CExpr::bad("dereference of a kernel pointer")),
    }
}

/// The offset of the field's locator word number `index`, and whether it counts from itself.
fn located_word(field: &Field, index: usize) -> Option<(usize, bool)> {
    let at = index.checked_mul(4).filter(|at| *at < field.size)?;
    match field.kind {
        FieldKind::DataLoc { .. } => Some((field.offset.checked_add(at)?, false)),
        FieldKind::RelLoc { .. } => Some((field.offset.checked_add(at)?, true)),
        _ => None,
    }
}
