//! Modules, which processes map: a file, or memory without one, and where its names come from.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::symbol::budget::Share;
use crate::symbol::perf_map::file::PerfMapFile;
use crate::symbol::spaces::files::FileReach;
use crate::symbol::unnamed::{JIT_NO_MAP, UnnamedReason};
use crate::unwind::{CodeKind, MappedCode};

/// A mapped file, or something that has no file (`[vdso]`, `//anon`).
#[derive(Debug)]
pub struct Module {
    /// The path, as the process sees it.
    pub path: Arc<str>,
    pub content: Content,
    /// What the unwinder knows of its code.
    pub code: Arc<MappedCode>,
    /// How its file is reached, if its path leads elsewhere here.
    pub reach: Option<Arc<FileReach>>,
    /// Users (uids) whose processes have mapped it.
    users: Mutex<Vec<u32>>,
    /// Memory that the module is charged with, given back when it is dropped.
    _paid: Vec<Share>,
}

/// Where the names of a module come from.
#[derive(Debug)]
pub enum Content {
    /// Opened when first mapped: it stays readable after it was replaced or its process exited.
    File(File),
    /// The vdso, which the kernel maps into every process. Its length differs among architectures.
    Vdso { len: u64 },
    /// No symbols, for this reason; a perf map of the process may name code that it generated.
    Unnamed { reason: UnnamedReason, map: Option<Arc<PerfMapFile>> },
}

impl Module {
    pub fn new(path: impl Into<Arc<str>>, content: Content) -> Module {
        let path = path.into();
        let kind = match content {
            Content::File(_) => CodeKind::File,
            Content::Vdso { .. } => CodeKind::Vdso,
            Content::Unnamed { .. } if *path == *UPROBES => CodeKind::Trampoline,
            Content::Unnamed { reason, .. } if reason == JIT_NO_MAP => CodeKind::Anonymous,
            Content::Unnamed { .. } => CodeKind::NoTables,
        };
        let code = Arc::new(MappedCode::new(kind));
        Module { path, content, code, reach: None, users: Mutex::default(), _paid: Vec::new() }
    }

    /// The module, charged with these shares.
    #[must_use]
    pub fn paid(self, shares: Vec<Share>) -> Module {
        Module { _paid: shares, ..self }
    }

    /// The module, whose file is reached in this way.
    #[must_use]
    pub fn reached_by(self, reach: Option<FileReach>) -> Module {
        Module { reach: reach.map(Arc::new), ..self }
    }

    /// A path that leads to the file from here.
    pub fn path_from_here(&self) -> Arc<str> {
        self.reach.as_ref().map_or_else(|| self.path.clone(), |reach| reach.path.as_str().into())
    }

    /// False for memory without a file.
    pub(super) fn has_file(&self) -> bool {
        self.path.starts_with('/') && !is_anonymous(&self.path)
    }

    /// Notes that a process of this user has mapped it.
    pub fn used_by(&self, user: u32) {
        const LIMIT: usize = 16; // one of them is charged for its symbols
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !users.contains(&user) && users.len() < LIMIT {
            users.push(user);
        }
    }

    pub fn users(&self) -> Vec<u32> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }
}

/// Name of the mapping of the kernel's trampoline, to which a function with a return probe returns.
pub(super) const UPROBES: &str = "[uprobes]";

/// True for the names that the kernel and prctl(PR_SET_VMA_ANON_NAME) give to memory without a file.
pub(super) fn is_anonymous(path: &str) -> bool {
    const PREFIXES: [&str; 8] =
        ["//anon", "[anon", "[heap]", "[stack", "/dev/zero", "/SYSV", "/anon_hugepage", "anon_inode:"];
    PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}
