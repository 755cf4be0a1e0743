//! The functions that a `print fmt` may call: those that find data, and those that make text of it.

use super::{ArgumentParser, constants};
use crate::tep::format::field::{Field, FieldKind};
use crate::tep::operators::BinaryOperator;
use crate::tep::print_fmt::Unsupported;
use crate::tep::print_fmt::expr::{CExpr, COp, CType, Call, HexDump, NameTable};
use crate::tep::print_fmt::lexer::Token;
use crate::tep::types::IntType;

impl ArgumentParser<'_> {
    /// The call of `name`, whose opening bracket is read.
    pub fn call(&mut self, name: &str) -> Result<CExpr, Unsupported> {
        // One function, since each arm is one function of the kernel.
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
                CExpr::call(Call::Bitmask { bytes })?
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
                CExpr::call(Call::Flags { value, delimiter, table })?
            }
            "__print_symbolic" => {
                let value = self.expression()?;
                let table = self.table()?;
                CExpr::call(Call::Symbolic { value, table })?
            }
            "__print_hex" | "__print_hex_str" => {
                let [bytes, len] = self.operands()?;
                bytes_call(Call::Hex { bytes, len, spaced: name == "__print_hex" })?
            }
            "__print_hex_dump" => self.hex_dump()?,
            "__print_array" => {
                let [bytes, count, size] = self.operands()?;
                bytes_call(Call::Array { bytes, count, size })?
            }
            "__print_dynamic_array" => {
                let bytes = self.located(CType::Pointer(None))?;
                self.lexer.expect(",")?;
                let size = self.expression()?;
                let COp::Located { word, .. } = bytes.op else { return Ok(CExpr::bad("array that is not dynamic")) };
                let len = CExpr::leaf(COp::LocatedLen { word }, CType::Int(IntType::INT));
                let count = CExpr::binary(BinaryOperator::Divide, len, size.clone())?;
                bytes_call(Call::Array { bytes, count, size })?
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

    /// The operands of `__print_hex_dump`. Source: hex_dump_to_buffer, lib/hexdump.c.
    fn hex_dump(&mut self) -> Result<CExpr, Unsupported> {
        let [prefix, kind, row, group, bytes, len, ascii] = self.operands()?;
        let size = |size: &CExpr| size.as_const().map(|bits| bits as usize);
        let (COp::Literal(prefix), Some(kind), Some(row), Some(group), Some(ascii)) =
            (prefix.op, kind.as_const(), size(&row), size(&group), ascii.as_const())
        else {
            return Ok(CExpr::bad("layout of a dump that is not constant"));
        };
        if kind == constants::DUMP_PREFIX_ADDRESS {
            return Ok(CExpr::bad("address of the record"));
        }
        bytes_call(Call::HexDump(HexDump {
            prefix,
            offsets: kind == constants::DUMP_PREFIX_OFFSET,
            row: if row == 32 { 32 } else { 16 },
            group: if matches!(group, 2 | 4 | 8) { group } else { 1 },
            bytes,
            len,
            ascii: ascii != 0,
        }))
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
fn bytes_call(call: Call) -> Result<CExpr, Unsupported> {
    match call.operands().first() {
        Some(bytes) if bytes.may_be_bytes() || matches!(bytes.op, COp::Bad(_)) => CExpr::call(call),
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
