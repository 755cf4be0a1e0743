//! Allocators of the kernel whose events tell address and size as they are.
//!
//! Measured: an event of `kmemleak slab -g` takes 70 instructions more where its source's programs are run, and everything is
//! asked that only other sources need.

use anyhow::Result;

use crate::perf::Sample;
use crate::perf::record::ChainForm;
use crate::profiler::{Context, Use};
use crate::profilers::kmemleak::ledger::Space;
use crate::profilers::kmemleak::sources::{Role, Source};
use crate::profilers::kmemleak::{Kmemleak, Who};
use crate::tep::Int64;

/// All that is asked of a sample of such a [`Source`].
#[derive(Clone, Copy, Debug)]
pub struct UsualSource {
    /// It frees; else it allocates.
    frees: bool,
    stacks: bool,
    ptr: Int64,
    size: Option<Int64>,
    chain_form: ChainForm,
}

impl UsualSource {
    /// None: more must be asked.
    pub fn new(source: &Source, chain_form: ChainForm) -> Option<UsualSource> {
        let frees = match source.role {
            Role::Alloc => false,
            Role::Free => true,
            Role::Enter(_) | Role::Leave(_) => return None,
        };
        if source.user || !frees && !source.stacks && source.call_site.is_some() {
            return None;
        }
        let size = match source.size.as_ref().filter(|_| !frees) {
            Some(size) => Some(size.word()?),
            None => None,
        };
        Some(UsualSource { frees, stacks: source.stacks, ptr: source.ptr.as_ref()?.word()?, size, chain_form })
    }
}

impl Kmemleak {
    #[inline(always)]
    pub(super) fn on_usual(&mut self, source: UsualSource, sample: &Sample<'_>, ctx: &mut Context) -> Result<Use> {
        let ptr = source.ptr.read(sample.raw)?;
        if ptr == 0 {
            return Ok(Use::Relevant); // an allocation that failed; kfree(NULL)
        }
        if source.frees {
            return Ok(self.freed(Space::Kernel, ptr, sample.time, sample.tid, sample.cpu, ctx));
        }
        let bytes = source.size.map_or(Ok(0), |size| size.read(sample.raw))?;
        let stack = if source.stacks && ctx.user_stacks.is_on() {
            ctx.stack(sample)
        } else if source.stacks {
            ctx.stacks.intern(sample.callchain, source.chain_form, sample.pid, &mut ctx.spaces)
        } else {
            None
        };
        let who = Who { pid: sample.pid, tid: sample.tid, time: sample.time };
        Ok(self.record_alloc(Space::Kernel, ptr, bytes, stack, who, ctx))
    }
}
