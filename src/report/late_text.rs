//! Texts of a row that are still in its process: the output thread looks up each text once, soon after the event, since
//! it may change; it is that thread because the look-up may block.

use std::sync::{Arc, OnceLock};

use crate::task::Comm;

/// A text that is looked up before the table of its row is written.
#[derive(Debug)]
pub struct LateText {
    pub tid: i32,
    /// The name of the thread: a different name shows that the tid was reused.
    pub comm: Comm,
    pub source: LateSource,
    found: OnceLock<Option<Arc<[u8]>>>,
}

/// Where a text is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LateSource {
    /// The path of the directory that a descriptor refers to; for `AT_FDCWD` the current directory.
    Directory(i32),
    /// A string at this address of the process's memory.
    String(u64),
}

impl LateText {
    pub fn new(tid: i32, comm: Comm, source: LateSource) -> Arc<LateText> {
        Arc::new(LateText { tid, comm, source, found: OnceLock::new() })
    }

    /// Sets the text, or that none was found. Only the first call counts.
    pub fn set(&self, found: Option<Vec<u8>>) {
        self.found.get_or_init(|| found.map(Arc::from));
    }

    pub fn found(&self) -> Option<&Arc<[u8]>> {
        self.found.get()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_first_stays() {
        let late = || LateText::new(2, Comm::default(), LateSource::Directory(3));
        let text = late();
        assert_eq!(text.found(), None);
        text.set(Some(b"/srv".to_vec()));
        text.set(None);
        assert_eq!(text.found().map(|found| &**found), Some(&b"/srv"[..]));
        let nothing = late();
        nothing.set(None);
        nothing.set(Some(Vec::new()));
        assert_eq!(nothing.found(), None);
    }
}
