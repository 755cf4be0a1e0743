//! The file of a drawing: tried before the run, always replaced as a whole, and rewritten now and then.

pub mod flame;
pub mod heatmap;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::output::sink::{PRIVATE, SinkProgress};
use crate::sys::shared_dir::is_of_stranger;

/// Writes before the end of the run take at most 1/SPARE of the time.
const SPARE: u32 = 20;

/// The subject of a drawing, for its title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawingSubject {
    pub profiler: &'static str,
    /// The tasks that the drawing is about: `all tasks`.
    pub subject: String,
    pub events: String,
}

/// A file that a drawing is written to, again and again.
#[derive(Debug)]
pub struct DrawingFile {
    path: PathBuf,
    /// The name of the drawing in messages: `flame graph`.
    what: &'static str,
    /// Earliest time of the next write before the end of the run.
    next: Option<Instant>,
}

/// A drawing that could not be written, with the file's name.
#[derive(Debug)]
pub struct DrawingWriteError(String);

impl fmt::Display for DrawingWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DrawingWriteError {}

impl DrawingFile {
    pub fn new(path: &Path, what: &'static str) -> DrawingFile {
        DrawingFile { path: path.to_owned(), what, next: None }
    }

    /// Checks before the run that the file can be written at its end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn check(path: &Path, what: &str) -> Result<()> {
        if fs::metadata(path).is_ok_and(|old| !old.is_file()) {
            bail!("cannot write the {what} to {}: it is no regular file", path.display());
        }
        if is_of_stranger(path) {
            let why = "somebody else has put it there, where everybody may create files";
            bail!("cannot write the {what} to {}: {why}", path.display());
        }
        let beside = beside(path);
        let tried = create(&beside);
        tried.with_context(|| format!("cannot write the {what} to {}", path.display()))?;
        fs::remove_file(&beside).with_context(|| format!("cannot remove {}", beside.display()))
    }

    /// True when enough time has passed for a write before the end of the run.
    pub fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Writes what `draw` makes of what `prepare` returns. `waits` shows the reading thread that `draw` or the write is
    /// in progress.
    ///
    /// # Errors
    /// A [`DrawingWriteError`]: the file cannot be written.
    pub fn write<T>(
        &mut self,
        waits: &SinkProgress,
        prepare: impl FnOnce() -> T,
        draw: impl FnOnce(T) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let began = Instant::now();
        let prepared = prepare();
        let result = waits.during(|| draw(prepared).and_then(|bytes| replace(&self.path, &bytes)));
        let took = began.elapsed();
        self.next =
            began.checked_add(took.saturating_mul(SPARE)).or_else(|| began.checked_add(Duration::from_secs(60)));
        let (what, name) = (self.what, self.path.display());
        result.map_err(|err| io::Error::other(DrawingWriteError(format!("cannot write the {what} to {name}: {err}"))))
    }
}

/// The name under which the new file is written before it replaces `path`, so that `path` is always a whole file.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// Creates a file that only its owner can read.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)
}

/// Writes the file under another name, then renames it to `path`, with the permissions of the file that it replaces.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    // The permissions of a file that another user has put there would let that user read the new file.
    let before = if is_of_stranger(path) { None } else { fs::metadata(path).map(|old| old.permissions()).ok() };
    let written = create(&beside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            before.map_or(Ok(()), |rights| file.set_permissions(rights))
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
