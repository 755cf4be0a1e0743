//! Patterns of task names.

use std::str::FromStr;

use crate::cli::values::list;
use crate::glob::{self, glob};

/// Bytes of a comm, `TASK_COMM_LEN` less the NUL. See `PR_SET_NAME` in prctl(2).
const COMM_BYTES: usize = 15;

/// Names of tasks, `nginx,java*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommList(Vec<CommPattern>);

impl CommList {
    /// `comm` is up to 15 bytes of anything. Bytes behind a NUL are ignored, so the 16-byte field of a record may be
    /// passed.
    pub fn matches(&self, comm: &[u8]) -> bool {
        let comm = comm.split(|&byte| byte == 0).next().unwrap_or_default();
        self.0.iter().any(|pattern| pattern.matches(comm))
    }

    /// The patterns, for building a kernel filter. The kernel's glob knows `[!a]` but not `[^a]` (`lib/glob.c`).
    pub fn iter(&self) -> impl Iterator<Item = &CommPattern> {
        self.0.iter()
    }
}

impl FromStr for CommList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        comm_list(text)
    }
}

/// One element of a [`CommList`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommPattern {
    typed: String,
    used: usize, // length of the prefix of `typed` that is compared; may end inside a character, as in the kernel
    is_glob: bool,
}

impl CommPattern {
    /// A name with `*`, `?` or `[` is a pattern; a plain name is cut to 15 bytes, as the kernel cuts comms.
    pub fn new(typed: String) -> CommPattern {
        let is_glob = glob::is_glob(&typed);
        let used = typed.len().min(if is_glob { usize::MAX } else { COMM_BYTES });
        CommPattern { typed, used, is_glob }
    }

    /// Compares all of `comm`, which must have no NUL.
    pub fn matches(&self, comm: &[u8]) -> bool {
        if self.is_glob { glob(self.bytes(), comm) } else { self.bytes() == comm }
    }

    /// All of `name` is compared, which may be longer than a comm.
    pub fn matches_name(&self, name: &[u8]) -> bool {
        if self.is_glob { self.matches(name) } else { self.typed.as_bytes() == name }
    }

    /// The bytes that a comm is compared with.
    pub fn bytes(&self) -> &[u8] {
        &self.typed.as_bytes()[..self.used]
    }

    /// True when the name holds `*`, `?` or `[`.
    pub fn is_glob(&self) -> bool {
        self.is_glob
    }

    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// True for a plain name over 15 bytes, cut as the kernel cuts comms. Worth a note: other names with the same start
    /// match, too.
    pub fn is_cut(&self) -> bool {
        self.used < self.typed.len()
    }
}

/// Task names, `nginx,java*`. `*`, `?`, `[a-z]` and `[!a]` are patterns, `\` takes the next character as it is.
pub fn comm_list(text: &str) -> Result<CommList, String> {
    let parts = list(text).map_err(|_| "a name is empty, write a list as in nginx,java*")?;
    Ok(CommList(parts.into_iter().map(CommPattern::new).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_comms() {
        let cases: [(&str, &[u8], bool); 24] = [
            ("nginx", b"nginx", true),
            ("nginx", b"nginx\0garbage...", true),
            ("nginx", b"nginx2", false),
            ("a, nginx", b"nginx", true),
            ("java*", b"java", true),
            ("java*", b"java worker", true),
            ("*ava*o*", b"java worker", true),
            ("*ab", b"aab", true),
            ("*ab*abc", b"ababcabc", true),
            ("a?c", b"abc", true),
            ("a?c", b"ac", false),
            ("kworker/[0-3]:*", b"kworker/2:1", true),
            ("kworker/[!0-3]:*", b"kworker/2:1", false),
            ("[^ab]x", b"cx", true),
            ("[]]x", b"]x", true),
            ("[ab", b"[ab", true),
            ("a\\*", b"a*", true),
            ("a\\*", b"ab", false),
            ("*", b"", true),
            ("*", b"\xff\xfe", true),
            ("?", b"\xff", true),
            ("a_very_long_process_name", b"a_very_long_pro", true),
            ("a_very_long_process_*", b"a_very_long_pro", false),
            ("a_multi-byte_ü", b"a_multi-byte_\xc3\xbc", true),
        ];
        for (text, comm, want) in cases {
            assert_eq!(comm_list(text).unwrap().matches(comm), want, "{text:?} {comm:?}");
        }
        let list: CommList = "java*,a_very_long_process_name".parse().unwrap();
        let parts: Vec<_> = list.iter().map(|part| (part.bytes(), part.is_glob(), part.is_cut())).collect();
        assert_eq!(parts, [(&b"java*"[..], true, false), (b"a_very_long_pro", false, true)]);
        for text in ["", ",", "a,,b", "a, "] {
            assert!(comm_list(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn survives_any_text(text: String, comm: Vec<u8>) {
            if let Ok(comms) = comm_list(&text) {
                comms.matches(&comm);
            }
        }
    }
}
