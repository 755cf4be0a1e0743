//! Parser of mangled names: position, bounds, and substitutions.
//!
//! The grammar is that of the Itanium C++ ABI, part "Name mangling". Its rules are in `names.rs`, `types.rs`,
//! `arguments.rs` and `expressions.rs`.

use super::tree::{Node, NodeId, NodeList, TemplateScope, Tree};

/// Most rules tried per name. Names of real programs take a few per byte.
const MAX_STEPS: u32 = 100_000;
/// Deepest nesting of types and expressions; 20 in real programs. The maximum takes 400 KiB of stack, unoptimized.
const MAX_NESTED: u32 = 128;

/// State of the parser.
pub struct Parser<'a> {
    text: &'a str,
    offset: usize,
    steps: u32,
    nested: u32,
    pub tree: Tree<'a>,
    /// The nodes that `S_`, `S0_` and so on refer to.
    substitutions: Vec<NodeId>,
    /// Items of the lists that are being read, the innermost list last.
    pending: Vec<NodeId>,
    /// The function whose template arguments `T_` refers to here.
    pub scope: TemplateScope,
    /// Reads ambiguous unresolved names as gcc mangles them.
    pub is_gcc_form: bool,
    /// The name contains such an ambiguity.
    pub is_ambiguous: bool,
    /// The type of a conversion operator is being read: template arguments behind it may belong to the operator.
    pub is_conversion: bool,
}

/// A position to return to.
#[derive(Clone, Copy)]
pub struct Checkpoint {
    offset: usize,
    substitutions: usize,
    pending: usize,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        let mut tree = Tree::with_capacity(text.len());
        let scope = tree.add_scope();
        Parser {
            text,
            offset: 0,
            steps: 0,
            nested: 0,
            tree,
            substitutions: Vec::with_capacity(32),
            pending: Vec::with_capacity(32),
            scope,
            is_gcc_form: false,
            is_ambiguous: false,
            is_conversion: false,
        }
    }

    /// The text that is not read yet.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    pub fn peek_second(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset + 1).copied()
    }

    pub fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.offset += 1;
        Some(byte)
    }

    /// The next two bytes.
    pub fn peek_code(&self) -> Option<[u8; 2]> {
        Some([self.peek()?, self.peek_second()?])
    }

    pub fn eat(&mut self, word: &str) -> bool {
        let is_next = self.text.as_bytes()[self.offset..].starts_with(word.as_bytes());
        if is_next {
            self.offset += word.len();
        }
        is_next
    }

    pub fn expect(&mut self, word: &str) -> Option<()> {
        self.eat(word).then_some(())
    }

    /// Reads bytes up to the first that is not `wanted`.
    pub fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> Option<&'a str> {
        let start = self.offset;
        while self.peek().is_some_and(&wanted) {
            self.offset += 1;
        }
        self.steps += (self.offset - start) as u32 / 16; // it may be read many times
        self.text.get(start..self.offset)
    }

    pub fn number(&mut self) -> Option<u32> {
        self.take_while(|byte| byte.is_ascii_digit())?.parse().ok()
    }

    /// `_` is 0, `0_` is 1, and so on.
    pub fn number_from_underscore(&mut self) -> Option<u32> {
        if self.eat("_") {
            return Some(0);
        }
        let number = self.number()?;
        self.expect("_")?;
        number.checked_add(1)
    }

    /// `3foo`
    pub fn source_name(&mut self) -> Option<&'a str> {
        let len = self.number()? as usize;
        let name = self.text.get(self.offset..self.offset.checked_add(len)?)?;
        self.offset += len;
        (len > 0).then_some(name)
    }

    /// Counts a rule. None when the limit is reached.
    pub fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= MAX_STEPS).then_some(())
    }

    /// Runs a rule one level deeper. None when that is too deep.
    pub fn nest<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.step()?;
        if self.nested >= MAX_NESTED {
            self.steps = MAX_STEPS; // trying other rules would not help
            return None;
        }
        self.nested += 1;
        let read = rule(self);
        self.nested -= 1;
        read
    }

    pub fn add(&mut self, node: Node<'a>) -> Option<NodeId> {
        self.tree.add(node)
    }

    /// The node made of what `rule` reads behind a code, which is empty where it was read already.
    pub fn behind<T>(
        &mut self,
        code: &str,
        rule: impl FnOnce(&mut Self) -> Option<T>,
        node: impl FnOnce(T) -> Node<'a>,
    ) -> Option<NodeId> {
        self.expect(code)?;
        let read = rule(self)?;
        self.add(node(read))
    }

    /// Adds a node to the substitutions.
    pub fn substitutable(&mut self, node: NodeId) -> NodeId {
        self.substitutions.push(node);
        node
    }

    /// A substitution `S_`, `S0_`, `SA_`. The `S` has been read.
    pub fn back_reference(&mut self) -> Option<NodeId> {
        let index = self.sequence_number()?;
        self.substitutions.get(index as usize).copied()
    }

    /// In base 36: `_` is 0, `0_` is 1, and so on.
    pub fn sequence_number(&mut self) -> Option<u32> {
        let digits = self.take_while(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())?;
        self.expect("_")?;
        if digits.is_empty() { Some(0) } else { u32::from_str_radix(digits, 36).ok()?.checked_add(1) }
    }

    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { offset: self.offset, substitutions: self.substitutions.len(), pending: self.pending.len() }
    }

    pub fn go_back(&mut self, to: Checkpoint) {
        self.offset = to.offset;
        self.substitutions.truncate(to.substitutions);
        self.pending.truncate(to.pending);
    }

    /// Reads items until `is_end`.
    pub fn list(
        &mut self,
        mut is_end: impl FnMut(&mut Self) -> bool,
        mut item: impl FnMut(&mut Self) -> Option<NodeId>,
    ) -> Option<NodeList> {
        let start = self.pending.len();
        while !is_end(self) {
            self.step()?;
            let node = item(self)?;
            self.pending.push(node);
        }
        self.tree.list(self.pending.drain(start..))
    }

    /// Reads items up to an `E`, and the `E`.
    pub fn list_to_end(&mut self, item: impl FnMut(&mut Self) -> Option<NodeId>) -> Option<NodeList> {
        self.list(|parser| parser.eat("E"), item)
    }

    /// Runs a rule with a new scope of `T_`.
    pub fn with_scope<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let outer = (self.scope, std::mem::take(&mut self.is_conversion));
        self.scope = self.tree.add_scope();
        let read = rule(self);
        (self.scope, self.is_conversion) = outer;
        read
    }
}
