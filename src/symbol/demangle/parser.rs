//! Reads a mangled name: where the reader is in it, what it may cost, and what was seen before.
//!
//! The grammar is that of the Itanium C++ ABI, part "Name mangling". Its rules are in `names.rs`, `types.rs`, `arguments.rs`
//! and `expressions.rs`.

use super::tree::{List, Node, NodeId, Scope, Tree};

/// Of rules that are tried. A name of real programs takes a few for each of its bytes.
const MOST_STEPS: u32 = 100_000;
/// Of types and expressions within each other, 20 in real programs. All of them take 400 KiB of stack, unoptimized.
const MOST_NESTED: u32 = 128;

pub struct Parser<'a> {
    text: &'a str,
    at: usize,
    steps: u32,
    nested: u32,
    pub tree: Tree<'a>,
    /// What `S_`, `S0_` and so on stand for.
    substitutions: Vec<NodeId>,
    /// Lists that are being read, one behind the other.
    pending: Vec<NodeId>,
    /// Whose arguments `T_` means here.
    pub scope: Scope,
    /// Names within names are written as gcc does.
    pub is_of_gcc: bool,
    /// There was one that has another meaning then.
    pub is_ambiguous: bool,
    /// The type of a conversion operator is being read: the arguments behind it may be the operator's.
    pub is_conversion: bool,
}

/// A place to go back to.
#[derive(Clone, Copy)]
pub struct Checkpoint {
    at: usize,
    substitutions: usize,
    pending: usize,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        let mut tree = Tree::with_capacity(text.len());
        let scope = tree.add_scope();
        Parser {
            text,
            at: 0,
            steps: 0,
            nested: 0,
            tree,
            substitutions: Vec::with_capacity(32),
            pending: Vec::with_capacity(32),
            scope,
            is_of_gcc: false,
            is_ambiguous: false,
            is_conversion: false,
        }
    }

    /// What is left to read.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub fn peek_second(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at + 1).copied()
    }

    pub fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// The two bytes that come next.
    pub fn peek_code(&self) -> Option<[u8; 2]> {
        Some([self.peek()?, self.peek_second()?])
    }

    pub fn eat(&mut self, word: &str) -> bool {
        let is_next = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    pub fn expect(&mut self, word: &str) -> Option<()> {
        self.eat(word).then_some(())
    }

    /// Bytes up to the first that is not `wanted`.
    pub fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> Option<&'a str> {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        self.steps += (self.at - start) as u32 / 16; // it may be read many times
        self.text.get(start..self.at)
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
        let name = self.text.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        (len > 0).then_some(name)
    }

    /// Counts one rule. None when there were too many.
    pub fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= MOST_STEPS).then_some(())
    }

    /// One level deeper. None when that is too deep.
    pub fn nest<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.step()?;
        if self.nested >= MOST_NESTED {
            self.steps = MOST_STEPS; // another reading of it will not help
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

    /// Remembers a node for those that refer to it.
    pub fn substitutable(&mut self, node: NodeId) -> NodeId {
        self.substitutions.push(node);
        node
    }

    /// `S_`, `S0_`, `SA_`: what was seen before, in base 36. The `S` has been read.
    pub fn back_reference(&mut self) -> Option<NodeId> {
        let digits = self.take_while(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())?;
        self.expect("_")?;
        let index = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 36).ok()?.checked_add(1)? };
        self.substitutions.get(index as usize).copied()
    }

    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { at: self.at, substitutions: self.substitutions.len(), pending: self.pending.len() }
    }

    pub fn go_back(&mut self, to: Checkpoint) {
        self.at = to.at;
        self.substitutions.truncate(to.substitutions);
        self.pending.truncate(to.pending);
    }

    /// Items up to where `is_end` says so.
    pub fn list(
        &mut self,
        mut is_end: impl FnMut(&mut Self) -> bool,
        mut item: impl FnMut(&mut Self) -> Option<NodeId>,
    ) -> Option<List> {
        let start = self.pending.len();
        while !is_end(self) {
            self.step()?;
            let node = item(self)?;
            self.pending.push(node);
        }
        self.tree.list(self.pending.drain(start..))
    }

    /// Items up to an `E`, which is read.
    pub fn list_to_end(&mut self, item: impl FnMut(&mut Self) -> Option<NodeId>) -> Option<List> {
        self.list(|parser| parser.eat("E"), item)
    }

    /// A rule with another meaning of `T_` for as long as it lasts.
    pub fn with_scope<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let outer = (self.scope, std::mem::take(&mut self.is_conversion));
        self.scope = self.tree.add_scope();
        let read = rule(self);
        (self.scope, self.is_conversion) = outer;
        read
    }
}
