//! The parts of stacks, each stored once and identified by a number: frames inside of other frames, texts, functions.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::stats::weights::Weight;
use crate::symbol::naming::name_cache::FunctionName;

/// Bytes of an entry besides its text or function: its share of the map, and the overhead of the allocator.
const ENTRY_BYTES: usize = 64;
/// Bytes of a node with its entry in a map that is two thirds full.
const NODE_BYTES: usize = size_of::<FrameNode>() + size_of::<(u32, u32, u32)>() * 3 / 2;

/// Frames, each inside of the frame of its caller.
#[derive(Clone, Debug, Default)]
pub struct FrameTree {
    pub nodes: Vec<FrameNode>,
    /// The number of a node, by the number of its caller's node and the number of its text.
    numbers: FxHashMap<(u32, u32), u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct FrameNode {
    /// Number of the node of the caller. For the outermost frame of a program it is [`PROGRAM`] with the number of the
    /// program's text, for the outermost frame of the kernel [`NONE`].
    pub around: u32,
    pub text: u32,
    pub function: u32,
    /// Address in the heaviest stack that has this frame. [`NO_ADDRESS`]: none.
    pub addr: u64,
    /// Offset from the start of the symbol; for a frame that is [`IN_SOURCE`], the line.
    pub offset: u64,
    pub heaviest: u64,
}

/// Stands for no node.
pub const NONE: u32 = u32::MAX;
/// Flag of a number that stands for a program, by the number of its text: functions of different programs may have the
/// same name. Memory is bounded to fewer nodes and texts than this.
pub const PROGRAM: u32 = 1 << 31;
/// Stands for no address. In a callchain this word is a marker, never an address.
pub const NO_ADDRESS: u64 = u64::MAX;
/// Stands for a source line in place of an address.
pub const IN_SOURCE: u64 = NO_ADDRESS - 1;

/// Functions by number, with the weight of each.
#[derive(Clone, Debug, Default)]
pub struct FunctionTable {
    numbers: FxHashMap<Arc<FunctionName>, u32>,
    pub sums: Vec<(Arc<FunctionName>, Weight)>,
}

/// Texts by number.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    numbers: FxHashMap<Arc<str>, u32>,
    pub texts: Vec<Arc<str>>,
}

impl TextTable {
    /// The number of a text, and the bytes that it takes if it is new.
    pub fn number(&mut self, text: &str) -> (u32, usize) {
        if let Some(number) = self.numbers.get(text) {
            return (*number, 0);
        }
        let (text, number) = (Arc::<str>::from(text), self.texts.len() as u32); // memory is bounded to fewer texts
        self.numbers.insert(text.clone(), number);
        self.texts.push(text.clone());
        (number, text.len() + ENTRY_BYTES)
    }

    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }
}

impl FunctionTable {
    /// The number of a function, and the bytes that it takes if it is new.
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

impl FrameTree {
    /// The number of the node with this text inside of the same caller, and the bytes that the node takes if it is new.
    pub fn number(&mut self, node: FrameNode) -> (u32, usize) {
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

    /// A node and all nodes around it, the innermost first.
    pub fn outwards(&self, from: u32) -> impl Iterator<Item = &FrameNode> {
        let at = |number: u32| self.nodes.get(number as usize);
        std::iter::successors(at(from), move |node| at(node.around))
    }
}
