//! The content of the screen, set by the output thread and drawn by the screen thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use crate::output::screen::model::{PageKey, ScreenModel, ScreenTable};
use crate::sys;
use crate::sys::poll::Waker;

/// If the names of a table take longer than this, it is shown without them.
const SLOW_NS: u64 = 200_000_000;

/// The content of the screen, shared by the threads of the run.
#[derive(Debug)]
pub struct ScreenBoard {
    content: Mutex<BoardContent>,
    /// The content has changed since it was drawn.
    is_changed: AtomicBool,
    /// The screen thread must end.
    is_over: AtomicBool,
    waker: Waker,
}

#[derive(Debug, Default)]
pub struct BoardContent {
    pub model: ScreenModel,
    /// A table whose names are being looked up, and since when.
    unnamed: Option<(PageKey, ScreenTable, u64)>,
    /// Results go to the screen by now.
    pub is_started: bool,
    /// The error after which nothing can be drawn.
    pub failure: Option<io::Error>,
}

impl ScreenBoard {
    /// # Errors
    /// EMFILE: no descriptor is left.
    pub fn new() -> Result<ScreenBoard> {
        Ok(ScreenBoard {
            content: Mutex::default(),
            is_changed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            waker: Waker::new()?,
        })
    }

    /// The content. The lock is held no longer than drawing takes, never while the terminal is written to.
    pub fn content(&self) -> MutexGuard<'_, BoardContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the content. The screen thread draws it soon.
    pub fn change<T>(&self, change: impl FnOnce(&mut BoardContent) -> T) -> T {
        let result = change(&mut self.content());
        self.look();
        result
    }

    /// Makes the screen thread look at the terminal, whose content or size has changed.
    pub fn look(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Acquire)
    }

    /// Clears the mark of changes: the caller is about to draw all of them.
    pub fn take_changes(&self) {
        self.is_changed.store(false, Ordering::Release);
    }

    /// Ends the screen thread.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub fn clear_waker(&self) {
        self.waker.clear();
    }
}

impl AsFd for ScreenBoard {
    /// A descriptor that is readable after a change.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl BoardContent {
    /// Shows a table, or replaces one that is shown with fewer names.
    pub fn table(&mut self, key: PageKey, table: ScreenTable) {
        self.unnamed = None;
        self.model.add(key, table);
    }

    /// Shows a table before its names are looked up, if its page shows nothing yet. Otherwise the table waits for
    /// [`BoardContent::show_slow`], since the table that is shown has names.
    pub fn preview(&mut self, key: PageKey, table: ScreenTable) {
        if self.model.pages.iter().any(|page| page.key == key) {
            self.unnamed = Some((key, table, sys::monotonic_ns()));
        } else {
            self.table(key, table);
        }
    }

    /// When the waiting table must be shown without names, CLOCK_MONOTONIC in ns.
    pub fn slow_ns(&self) -> u64 {
        self.unnamed.as_ref().map_or(u64::MAX, |(.., since_ns)| since_ns + SLOW_NS)
    }

    /// Shows the waiting table without names, if the lookup takes too long.
    pub fn show_slow(&mut self) {
        let is_slow = self.slow_ns() <= sys::monotonic_ns();
        if let Some((key, table, _)) = self.unnamed.take_if(|_| is_slow) {
            self.model.add(key, table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::screen::model::model_tests::{PAGE, table};

    fn rows(content: &BoardContent) -> usize {
        content.model.table().map_or(0, |table| table.rows.len())
    }

    #[test]
    fn a_table_waits_for_its_names_where_another_is_shown() {
        let mut content = BoardContent::default();
        content.preview(PAGE, table(1, &[("a", 1)]));
        assert_eq!((rows(&content), content.slow_ns()), (1, u64::MAX), "the first is shown at once");
        content.table(PAGE, table(1, &[("a", 1)]));
        content.preview(PAGE, table(2, &[("a", 1), ("b", 2)]));
        content.show_slow();
        assert_eq!(rows(&content), 1, "its names may come soon");
        content.unnamed.iter_mut().for_each(|(.., since_ns)| *since_ns -= SLOW_NS);
        content.show_slow();
        assert_eq!((rows(&content), content.slow_ns()), (2, u64::MAX));
        content.preview(PAGE, table(3, &[]));
        content.table(PAGE, table(3, &[("a", 1), ("b", 2), ("c", 3)]));
        assert_eq!((rows(&content), content.slow_ns()), (3, u64::MAX));
    }
}
