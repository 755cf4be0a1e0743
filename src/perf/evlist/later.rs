//! Threads that are watched later than the target's first threads: those created while events are being opened, and
//! those of processes that start during the run.

use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};

use crate::host::{Host, threads};
use crate::perf::cpu_events::EventFd;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Binding;
use crate::perf::plan::BoundTo;
use crate::perf::target::{Target, Tasks};
use crate::sys;
use crate::sys::perf::{self, Watch};

impl Evlist {
    /// Opens the events of threads that appeared since the plan was made, in processes of the target. A thread created
    /// later inherits its creator's events; a thread created between the plan and the opening of its creator's events
    /// does not.
    ///
    /// # Errors
    /// As [`Evlist::open_cpu`].
    pub fn open_new_threads(&mut self, target: &Target, host: &Host) -> Result<()> {
        match &target.tasks {
            Tasks::Processes(pids) => self.open_threads_of(pids, host),
            _ => Ok(()),
        }
    }

    /// Opens and starts the events of a process that was started during the run.
    ///
    /// Events of ended processes stay open, since children may have inherited them; their number is bounded.
    ///
    /// # Errors
    /// As [`Evlist::open_cpu`]; too many descriptors.
    pub fn join_process(&mut self, pid: i32, host: &Host) -> Result<()> {
        const LIMIT: usize = 1 << 16;
        let of_tasks = self.evsels.iter().filter(|evsel| evsel.is_opened() && evsel.binding == Binding::Task).count();
        let need = if matches!(self.plan.bound, Some(BoundTo::Threads(_))) {
            threads(host, pid).len() * (of_tasks + 1) * self.cpus.len()
        } else {
            0
        };
        let open: usize = self.cpus.iter().map(|cpu| cpu.side.len() + cpu.events.len()).sum();
        let most = LIMIT.min(sys::open_files().0 as usize / 2);
        if need > 0 && open + need > most {
            bail!("{open} file descriptors are open for events, it needs {need}, and {most} are the most in mid-run");
        }
        let before: Vec<[usize; 2]> = self.cpus.iter().map(|cpu| [cpu.side.len(), cpu.events.len()]).collect();
        self.strings.add_process(pid).context("its strings cannot be copied")?;
        self.open_threads_of(&[pid], host)?;
        for (cpu, [side, events]) in self.cpus.iter_mut().zip(before) {
            let side = cpu.side.iter().skip(side).map(|side| &side.fd);
            cpu.events.iter_mut().skip(events).for_each(EventFd::begin);
            for fd in side.chain(cpu.events.iter().skip(events).map(|event| &event.fd)) {
                perf::enable(fd.as_fd()).context("cannot enable the events")?;
            }
        }
        Ok(())
    }

    fn open_threads_of(&mut self, pids: &[i32], host: &Host) -> Result<()> {
        const ROUNDS: usize = 5; // the threads of a faster process inherit their creators' events
        for _ in 0..ROUNDS {
            let Some(BoundTo::Threads(known)) = &mut self.plan.bound else { return Ok(()) };
            let now = pids.iter().flat_map(|&pid| threads(host, pid));
            let new: Vec<i32> = now.filter(|tid| !known.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            known.extend(&new);
            self.guard_apart(&new)?;
            let mut cpus = std::mem::take(&mut self.cpus);
            let joined: Result<()> = cpus.iter_mut().try_for_each(|cpu| {
                let watches: Vec<Watch> = new.iter().map(|&tid| Watch::Task { tid, cpu: cpu.cpu }).collect();
                self.join_side(cpu, &watches)?;
                self.join(cpu, &watches, false)
            });
            self.cpus = cpus;
            joined?;
        }
        Ok(())
    }

    /// Sets the threads for which events are opened on a CPU that comes online: since the start threads were created,
    /// and others exited, whose tids may have been reused. None: the threads known at the start.
    pub fn bind(&mut self, threads: Option<Vec<i32>>) {
        if let (Some(BoundTo::Threads(bound)), Some(threads)) = (&mut self.plan.bound, threads) {
            *bound = threads;
        }
    }
}
