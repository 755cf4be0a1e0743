//! Kernel allocators whose events have address and size as plain fields.
//!
//! Measured by `benches/replay.rs`: an event of `kmemleak slab -g` takes 322 instructions. It took 87 more with the
//! general path, which runs the expressions of the source and makes the checks that other sources need.

use anyhow::Result;

use crate::perf::Sample;
use crate::perf::record::ChainForm;
use crate::profiler::{Context, Use};
use crate::profilers::kmemleak::flows::CacheTag;
use crate::profilers::kmemleak::ledger::PointerSpace;
use crate::profilers::kmemleak::sources::{AllocatorEvent, Role};
use crate::profilers::kmemleak::{Kmemleak, NewAllocation};
use crate::tep::Int64;
use crate::tep::format::field::LocatedText;

/// An [`AllocatorEvent`] whose address and size are fields: the offsets of these fields, and what else its samples
/// need.
#[derive(Clone, Copy, Debug)]
pub struct FieldSource {
    /// The event frees; otherwise it allocates.
    frees: bool,
    stacks: bool,
    ptr: Int64,
    size: Option<Int64>,
    cache: Option<LocatedText>,
    chain_form: ChainForm,
}

impl FieldSource {
    /// None: the source needs the general path.
    pub fn new(source: &AllocatorEvent, chain_form: ChainForm) -> Option<FieldSource> {
        let frees = match source.role {
            Role::Alloc => false,
            Role::Free => true,
            Role::Enter(_) | Role::Leave(_) => return None,
        };
        if source.user || source.is_keyed || !frees && !source.stacks && source.call_site.is_some() {
            return None;
        }
        let size = match source.size.as_ref().filter(|_| !frees) {
            Some(size) => Some(size.single_load()?),
            None => None,
        };
        let (stacks, cache) = (source.stacks, source.cache);
        Some(FieldSource { frees, stacks, ptr: source.ptr.as_ref()?.single_load()?, size, cache, chain_form })
    }
}

impl Kmemleak {
    #[inline(always)]
    pub(super) fn on_field_event(
        &mut self,
        source: FieldSource,
        sample: &Sample<'_>,
        ctx: &mut Context,
    ) -> Result<Use> {
        let ptr = source.ptr.read(sample.raw)?;
        if ptr == 0 {
            return Ok(Use::Relevant); // an allocation that failed; kfree(NULL)
        }
        if source.frees {
            return Ok(self.freed(PointerSpace::Kernel, ptr, sample.time, sample.tid, sample.cpu, ctx));
        }
        let bytes = source.size.map_or(Ok(0), |size| size.read(sample.raw))?;
        let stack = match source.stacks {
            // A clone of the sample: only this rare call needs the sample in memory.
            true if ctx.user_stacks.is_on() => ctx.stack(&sample.clone()),
            // Like `ctx.stack`, with properties of the event that are already known.
            true => ctx.stacks.intern(sample.callchain, source.chain_form, sample.pid, &mut ctx.spaces),
            false => None,
        };
        let cache = source.cache.map_or_else(CacheTag::default, |name| CacheTag::of(name, bytes, sample.raw));
        Ok(self.record_alloc(PointerSpace::Kernel, NewAllocation { ptr, bytes, stack, cache }, sample, ctx))
    }
}
