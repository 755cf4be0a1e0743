//! The text for an argument that cannot be computed here, `vmemmap_base(pfn=4660)`: the unknown name, and the fields
//! from which the kernel would have computed the value.

use super::lexer::{Lexer, Token};
use crate::tep::format::Format;
use crate::tep::format::field::Field;
use crate::tep::format::fields_text::render_list;

#[derive(Clone, Debug)]
pub struct StandIn {
    name: String,
    fields: Vec<Field>,
}

impl StandIn {
    /// For the argument written as `source`; `reason` says what is unknown in it.
    pub fn new(reason: &str, source: &str, format: &Format) -> StandIn {
        let fields = named_in(source, format.long_size()).into_iter().filter_map(|name| format.field(name)).cloned();
        StandIn { name: unknown_name(reason).to_owned(), fields: fields.collect() }
    }

    pub fn render(&self, raw: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.name.as_bytes());
        out.push(b'(');
        render_list(self.fields.iter(), b',', raw, out);
        out.push(b')');
    }
}

/// The name in a reason such as `function jiffies_to_msecs`; `?` when it has none.
fn unknown_name(reason: &str) -> &str {
    match reason.rsplit_once(' ') {
        Some(("name" | "function" | "conversion" | "type" | "member" | "size of struct", name)) => name,
        _ => "?",
    }
}

/// The names of the fields in an expression, each once, in order.
fn named_in(source: &str, long: usize) -> Vec<&str> {
    let mut lexer = Lexer::new(source, long);
    let mut names = Vec::new();
    while let Ok(token) = lexer.next() {
        let found = match token {
            Token::End => break,
            Token::Word("REC") if lexer.eat("->") => lexer.word(),
            Token::Word(word) if word.starts_with("__get_") && lexer.eat("(") => lexer.word(),
            _ => continue,
        };
        if let Ok(name) = found
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}
