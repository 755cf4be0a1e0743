//! The search for the functions that a `uprobe:` selects, as a question to a worker: reading files of other programs
//! may hang.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::escape::escape;
use crate::event::head::ProbePoint;
use crate::host::Host;
use crate::outside::{self, NoAnswer, Question, Unanswered, WorkerContext};
use crate::profiler::code::{self, CodeLocation, SearchScope, WantedFunctions};
use crate::symbol::functions::binary::{BinaryFile, FileStamp};
use crate::symbol::functions::search::{MAX_OF_FILE_BYTES, MAX_OF_TARGET_BYTES, Search};
use crate::symbol::opening::place_of;
use crate::sys::packets::MAX_DESCRIPTORS;
use crate::tep::probe::Machine;

/// Limit of the processes that are searched: the budget of bytes is used up before.
const MAX_PROCESSES: usize = 8192;
/// Limit of the files that come with an answer, see [`WorkerContext::give`].
const MAX_FILES_FOUND: usize = MAX_DESCRIPTORS - 1;

/// The searched functions, and where to search.
#[derive(Debug, Serialize, Deserialize)]
pub struct FunctionSearch {
    place: ProbePoint,
    most: u16,
    scope: SearchScope,
    /// The directory for relative paths: a worker has another one.
    directory: OsString,
}

/// The locations of the functions. O_PATH descriptors of their files come with the answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FoundCode {
    /// Path and stamp of each file.
    files: Vec<(String, Option<FileStamp>)>,
    functions: Vec<FoundFunction>,
    left_out: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FoundFunction {
    /// Index of the location's file.
    file: usize,
    offset: u64,
    machine: Machine,
    name: Option<String>,
}

/// Why nothing was found.
#[derive(Debug, Serialize, Deserialize)]
pub struct SearchFault {
    text: String,
    /// The errno of the system call that failed.
    errno: Option<i32>,
}

impl Question for FunctionSearch {
    type Answer = Result<FoundCode, SearchFault>;

    fn answer(&self, context: &mut WorkerContext) -> Result<FoundCode, SearchFault> {
        let is_file = matches!(self.scope, SearchScope::File(_));
        let search = Search::within(if is_file { MAX_OF_FILE_BYTES } else { MAX_OF_TARGET_BYTES })
            .in_worker(context.place(), PathBuf::from(&self.directory));
        let wanted = WantedFunctions { place: &self.place, most: self.most };
        let locations = code::find(wanted, &self.scope, &context.host, &search)?;
        let mut found = FoundCode { left_out: search.left_out(), ..FoundCode::default() };
        let mut files: Vec<Arc<BinaryFile>> = Vec::new();
        for CodeLocation { file, offset, machine, function } in locations {
            let known = files.iter().position(|known| Arc::ptr_eq(known, &file));
            let index = known.unwrap_or(files.len());
            if known.is_none() {
                files.push(file);
            }
            found.functions.push(FoundFunction { file: index, offset, machine, name: function });
        }
        if files.len() > MAX_FILES_FOUND {
            let name = escape(self.place.function.as_bytes());
            Err(anyhow!("`{name}` is in {} files, more than {MAX_FILES_FOUND}: name fewer processes", files.len()))?;
        }
        for file in files {
            context.give(place_of(&file.file).map_err(anyhow::Error::new)?);
            found.files.push((file.path.clone(), file.stamp));
        }
        Ok(found)
    }
}

impl From<anyhow::Error> for SearchFault {
    fn from(err: anyhow::Error) -> SearchFault {
        let io_error = err.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
        let texts = err.chain().filter(|cause| !cause.is::<std::io::Error>()).map(ToString::to_string);
        SearchFault {
            text: texts.collect::<Vec<_>>().join(": "),
            errno: io_error.and_then(std::io::Error::raw_os_error),
        }
    }
}

impl From<SearchFault> for anyhow::Error {
    fn from(fault: SearchFault) -> anyhow::Error {
        match fault.errno.map(std::io::Error::from_raw_os_error) {
            Some(err) => anyhow::Error::new(err).context(fault.text),
            None => anyhow::Error::msg(fault.text),
        }
    }
}

impl FunctionSearch {
    pub fn new(place: &ProbePoint, most: u16, scope: SearchScope) -> FunctionSearch {
        // If the directory was removed, there are no files below it either.
        let directory = std::env::current_dir().unwrap_or_default().into_os_string();
        FunctionSearch { place: place.clone(), most, scope, directory }
    }

    /// Has the functions searched by a worker. Returns their locations, and the message on files that were not
    /// searched.
    ///
    /// # Errors
    /// As [`code::find`]; a process or file does not answer; this process is told to end.
    pub fn ask(&self, host: &Host) -> Result<(Vec<CodeLocation>, Option<String>)> {
        if let SearchScope::Processes(pids) = &self.scope {
            if pids.len() > MAX_PROCESSES {
                bail!("these are {} processes, more than are searched: name the file", pids.len());
            }
            let askable = outside::askable(host, pids.clone());
            // `askable` has the pids in the same order, without those that did not answer before.
            if let Some((_, pid)) = pids.iter().enumerate().find(|(index, pid)| askable.get(*index) != Some(pid)) {
                return Err(no_answer_of(*pid));
            }
        }
        let answered = outside::ask_long(host, self).map_err(no_answer)?;
        let found = answered.value?;
        let file =
            |(file, (path, stamp)): (File, (String, Option<FileStamp>))| Arc::new(BinaryFile { file, path, stamp });
        let files: Vec<Arc<BinaryFile>> = answered.files.into_iter().zip(found.files).map(file).collect();
        let location = |FoundFunction { file, offset, machine, name }| {
            let file = files.get(file).ok_or_else(|| anyhow!("too many files are open"))?.clone();
            Ok(CodeLocation { file, offset, machine, function: name })
        };
        Ok((found.functions.into_iter().map(location).collect::<Result<_>>()?, found.left_out))
    }
}

fn no_answer(Unanswered { why, path }: Unanswered) -> anyhow::Error {
    let path = escape(path.as_os_str().as_encoded_bytes());
    match why {
        NoAnswer::ToldToEnd => anyhow!("told to end before the function was found"),
        NoAnswer::Late(0) => anyhow!("no answer from {path}: a read of this file hangs"),
        NoAnswer::Late(pid) if path.is_empty() => no_answer_of(pid),
        NoAnswer::Late(pid) => {
            anyhow!("no answer from {path}, which process {pid} has mapped: name the file to be searched")
        }
        _ => anyhow::Error::new(why).context("the function cannot be looked for"),
    }
}

fn no_answer_of(pid: i32) -> anyhow::Error {
    anyhow!("process {pid} does not answer what it has mapped: name the file")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn search(function: &str, scope: SearchScope) -> Result<(Vec<CodeLocation>, Option<String>)> {
        let place = ProbePoint { function: function.to_owned(), offset: 0, ret: false };
        FunctionSearch::new(&place, 1000, scope).ask(&Host::default())
    }

    #[test]
    fn files_come_as_places() {
        let own = std::process::id() as i32;
        let (mut found, left_out) = search("*place_of*", SearchScope::Processes(vec![own])).unwrap();
        assert_eq!(left_out, None);
        let first = found.remove(0);
        assert!(found.iter().all(|other| Arc::ptr_eq(&other.file, &first.file)), "one file, once");
        let mut file = &first.file.file;
        assert_eq!(file.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EBADF), "it cannot be read");
        assert_eq!(first.file.path, std::env::current_exe().unwrap().to_str().unwrap());
        assert!(first.file.identity().is_some() && first.function.is_some_and(|name| name.contains("place_of")));
    }

    #[test]
    fn errors_are_those_of_the_search() {
        let fault = |path: &str| search("main", SearchScope::File(path.to_owned())).unwrap_err();
        let missing = fault("/nonexistent/x");
        assert_eq!(format!("{missing:#}"), "cannot open /nonexistent/x: No such file or directory (os error 2)");
        assert_eq!(format!("{:#}", fault("/proc")), "/proc is no regular file");
        let many = SearchScope::Processes(vec![1; MAX_PROCESSES + 1]);
        assert!(search("main", many).unwrap_err().to_string().starts_with("these are 8193 processes"));
    }
}
