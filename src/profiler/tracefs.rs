//! Finds tracefs, and says why a tracepoint is refused.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::event::SelectorHead;
use crate::host::Host;
use crate::perf::no_tracefs::{Lockdown, NoTracefs, unreadable};
use crate::perf::refusal::{Reason, Refused};
use crate::profiler::code::CodeLocation;
use crate::sys::mount::{PrivateTracefs, private_tracefs};
use crate::sys::mounts::mounts;
use crate::tep::EventError;
use crate::tep::format::Format;
use crate::tep::probe::Probes;
use crate::tep::tracefs::{STANDARD_ROOTS, Tracefs, mount_points};

/// Finds tracefs when it is first needed: at its usual mount points, else through a private mount, else at any mount
/// point.
#[derive(Debug, Default)]
pub struct TracefsFinder {
    /// The probes of the run. Fields are dropped in this order: the probes must be removed before `found`, whose
    /// tracefs that needs.
    pub(super) probes: OnceCell<Probes>,
    /// The formats of these probes.
    pub(super) formats: RefCell<Vec<Arc<Format>>>,
    /// The locations of user functions, or the error of their search, until their probes are defined.
    pub(super) locations: RefCell<Vec<(SelectorHead, Result<Vec<CodeLocation>>)>>,
    found: OnceCell<(Tracefs, Option<PrivateTracefs>)>,
}

impl TracefsFinder {
    /// A finder with a known tracefs, such as a test directory.
    pub fn at(tracefs: Tracefs) -> TracefsFinder {
        TracefsFinder { found: (tracefs, None).into(), ..TracefsFinder::default() }
    }

    /// # Errors
    /// tracefs is mounted nowhere and cannot be mounted.
    pub fn get(&self) -> Result<&Tracefs> {
        if self.found.get().is_none() {
            let found = match Tracefs::find_mounted(STANDARD_ROOTS) {
                Some(tracefs) => (tracefs, None),
                None => {
                    let host = Host::default();
                    let elsewhere = || mount_points(mounts(&host.proc));
                    own_tracefs().or_else(|err| match Tracefs::find_mounted(elsewhere()) {
                        Some(tracefs) => Ok((tracefs, None)),
                        None => Err(NoTracefs::new(err, &host)),
                    })?
                }
            };
            let _ = self.found.set(found);
        }
        self.found.get().map(|(tracefs, _)| tracefs).context("tracefs vanished")
    }

    /// Why an event is refused, and the cure.
    pub fn reason(&self, err: &anyhow::Error) -> Reason {
        let denied = |err: &EventError| match err {
            EventError::Permission { path } => Some(unreadable(path, self.get().ok()?.root(), &Lockdown::now())),
            _ => None,
        };
        let known = |cause: &(dyn std::error::Error + 'static)| {
            let refused = cause.downcast_ref::<Refused>().map(|refused| refused.reason.clone());
            let none = || cause.downcast_ref::<NoTracefs>().map(|none| none.reason.clone());
            refused.or_else(none).or_else(|| cause.downcast_ref().and_then(denied))
        };
        err.chain().find_map(known).unwrap_or_else(|| Reason::incurable(format!("{err:#}")))
    }

    /// As [`TracefsFinder::get`], for something that only root may do. `why`: the reason in the message.
    ///
    /// # Errors
    /// As [`TracefsFinder::get`], with `why` in the message.
    pub fn get_as_root(&self, why: &str) -> Result<&Tracefs> {
        self.get().map_err(|err| match err.downcast::<NoTracefs>() {
            Ok(none) => none.and_root_only(why).into(),
            Err(err) => err,
        })
    }

    /// Where tracefs was found, for `-v`.
    pub fn describe(&self) -> Option<String> {
        self.found.get().map(|(tracefs, private)| match private {
            Some(_) => "tracefs: a private mount of our own".to_owned(),
            None => format!("tracefs: {}", tracefs.root().display()),
        })
    }
}

/// A private tracefs.
fn own_tracefs() -> io::Result<(Tracefs, Option<PrivateTracefs>)> {
    let mount = private_tracefs()?;
    let tracefs = Tracefs::at(mount.root());
    match tracefs.list() {
        // The files belong to root: a process may be allowed to mount tracefs, but not to read it.
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => Err(err),
        _ => Ok((tracefs, Some(mount))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_keeps_its_cure_apart() {
        let nowhere = Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() };
        let none = NoTracefs::new(io::Error::from_raw_os_error(libc::EPERM), &nowhere);
        let reason = TracefsFinder::default().reason(&anyhow::Error::from(none).context("no second witness"));
        assert!(reason.why.contains("tracefs") && !reason.why.contains("cure"), "{reason}");
        assert!(reason.cure.is_some(), "{reason}");
        let other = TracefsFinder::default().reason(&anyhow::anyhow!("b").context("a"));
        assert_eq!(other, Reason::incurable("a: b"));
    }
}
