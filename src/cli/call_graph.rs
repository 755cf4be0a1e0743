//! `-g`: how the callchains of programs are found.

use crate::cli::values;

/// How the callchains of programs are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallGraph {
    /// By unwind tables, if the events are rare enough for copies of stacks; else by frame pointers.
    #[default]
    Auto,
    /// By frame pointers, in the kernel.
    FramePointers,
    /// By unwind tables, from stack copies of this many bytes. None: the size depends on how often the event comes.
    Dwarf(Option<u32>),
}

impl CallGraph {
    /// `auto`, `fp`, `dwarf`, `dwarf,BYTES`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<CallGraph, String> {
        match text.split_once(',').map_or((text, None), |(how, bytes)| (how, Some(bytes))) {
            ("auto", None) => Ok(CallGraph::Auto),
            ("fp", None) => Ok(CallGraph::FramePointers),
            ("dwarf", None) => Ok(CallGraph::Dwarf(None)),
            ("dwarf", Some(bytes)) => CallGraph::window(bytes).map(|bytes| CallGraph::Dwarf(Some(bytes))),
            _ => Err("one of auto, fp, dwarf, dwarf,BYTES".to_owned()),
        }
    }

    fn window(text: &str) -> Result<u32, String> {
        const LEAST: u32 = 256; // fewer bytes hold hardly a frame
        const LIMIT: u32 = 65_528; // a record has less than 64 KiB, and its parts are whole words
        let bytes = match text.parse() {
            Ok(bytes) => bytes,
            Err(_) => values::bytes(text)?,
        };
        match u32::try_from(bytes) {
            Ok(0x1_0000) => Ok(LIMIT),
            Ok(bytes) if (LEAST..=LIMIT).contains(&bytes) => Ok(bytes),
            _ => Err(format!("a copy of a stack has {LEAST} bytes to 64K")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_sizes() {
        let cases = [
            ("auto", Some(CallGraph::Auto)),
            ("fp", Some(CallGraph::FramePointers)),
            ("dwarf", Some(CallGraph::Dwarf(None))),
            ("dwarf,8192", Some(CallGraph::Dwarf(Some(8192)))),
            ("dwarf,16K", Some(CallGraph::Dwarf(Some(16_384)))),
            ("dwarf,64K", Some(CallGraph::Dwarf(Some(65_528)))),
            ("dwarf,128K", None),
            ("dwarf,8", None),
            ("dwarf,", None),
            ("fp,8", None),
            ("lbr", None),
            ("", None),
        ];
        for (text, want) in cases {
            assert_eq!(CallGraph::parse(text).ok(), want, "{text:?}");
        }
    }
}
