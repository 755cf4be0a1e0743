//! What an errno of perf_event_open(2) means.

use std::io;

use crate::perf::attr::Attr;
use crate::perf::refusal::Refused;
use crate::sys::perf::Watch;

/// The task has exited.
pub(super) fn is_gone(err: &io::Error) -> bool {
    err.raw_os_error() == Some(libc::ESRCH)
}

/// The kernel refused the event for lack of privileges.
pub fn is_refused(err: &io::Error) -> bool {
    matches!(err.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

pub(super) fn watch_error(err: io::Error, event: &str, attr: &Attr, watch: Watch) -> anyhow::Error {
    match (watch, err.raw_os_error()) {
        // css_tryget_online_from_dir, kernel/cgroup/cgroup.c
        (Watch::Cgroup { .. }, Some(libc::ENOENT | libc::EBADF)) => anyhow::Error::new(err).context(
            "perf events cannot follow this cgroup: the perf_event controller is in another hierarchy (see /proc/cgroups), name the cgroup there",
        ),
        _ => Refused::event(err, event, attr, watch).into(),
    }
}
