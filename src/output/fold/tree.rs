//! What stacks are made of, each kept once and named by a number: frames inside of others, their texts, their functions.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::stats::weights::Weight;
use crate::symbol::name_cache::FunctionName;

/// A map's share of an entry, and the allocator's of its parts.
const ENTRY_BYTES: usize = 64;
/// What a node takes, with its entry in a map that is two thirds full.
const NODE_BYTES: usize = size_of::<Node>() + size_of::<(u32, u32, u32)>() * 3 / 2;

/// Frames by those around them.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<Node>,
    /// By what is around it, and its text.
    numbers: FxHashMap<(u32, u32), u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// No node: it is the outermost, of a program ([`PROGRAM`] and its text) or of the kernel ([`NONE`]).
    pub around: u32,
    pub text: u32,
    pub function: u32,
    /// Those of the heaviest that came by. [`NO_ADDRESS`]: none.
    pub addr: u64,
    pub offset: u64,
    pub heaviest: u64,
}

/// No node.
pub const NONE: u32 = u32::MAX;
/// No node either, but a program, by the number of its text: functions of different programs may be called the same.
/// What all may take holds fewer nodes and texts than that.
pub const PROGRAM: u32 = 1 << 31;
/// Such a word is a marker in a callchain.
pub const NO_ADDRESS: u64 = u64::MAX;

/// Functions by number, with what fell on each itself.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    numbers: FxHashMap<Arc<FunctionName>, u32>,
    pub sums: Vec<(Arc<FunctionName>, Weight)>,
}

/// Texts by number.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    numbers: FxHashMap<Arc<str>, u32>,
    pub texts: Vec<Arc<str>>,
}

impl Texts {
    /// The number of a text, and what it takes if it is new.
    pub fn number(&mut self, text: &str) -> (u32, usize) {
        if let Some(number) = self.numbers.get(text) {
            return (*number, 0);
        }
        let (text, number) = (Arc::<str>::from(text), self.texts.len() as u32); // what they may take holds fewer
        self.numbers.insert(text.clone(), number);
        self.texts.push(text.clone());
        (number, text.len() + ENTRY_BYTES)
    }

    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }
}

impl Functions {
    /// The number of a function, and what it takes if it is new.
    pub fn number(&mut self, function: FunctionName) -> (u32, usize) {
        if let Some(number) = self.numbers.get(&function) {
            return (*number, 0);
        }
        let (function, number) = (Arc::new(function), self.sums.len() as u32);
        let name_bytes = function.name.as_ref().map_or(0, |name| name.len());
        self.numbers.insert(function.clone(), number);
        self.sums.push((function, Weight::default()));
        (number, size_of::<FunctionName>() + name_bytes + ENTRY_BYTES)
    }

    pub fn add(&mut self, number: u32, weight: Weight) {
        if let Some((_, sum)) = self.sums.get_mut(number as usize) {
            *sum = sum.and(weight);
        }
    }
}

impl Tree {
    /// The node of a frame with this text inside of another one, and what it takes if it is new.
    pub fn number(&mut self, node: Node) -> (u32, usize) {
        if let Some(&number) = self.numbers.get(&(node.around, node.text)) {
            if let Some(known) = self.nodes.get_mut(number as usize).filter(|known| known.heaviest < node.heaviest) {
                *known = node;
            }
            return (number, 0);
        }
        let number = self.nodes.len() as u32;
        self.numbers.insert((node.around, node.text), number);
        self.nodes.push(node);
        (number, NODE_BYTES)
    }

    /// A node and all around it, the innermost first.
    pub fn outwards(&self, from: u32) -> impl Iterator<Item = &Node> {
        let at = |number: u32| self.nodes.get(number as usize);
        std::iter::successors(at(from), move |node| at(node.around))
    }
}
