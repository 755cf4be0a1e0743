//! The shortest way, for allocators of the kernel whose events tell address and size as they are.

use crate::perf::Sample;
use crate::perf::evsel::EventId;
use crate::perf::record::ChainForm;
use crate::perf::short::{Place, Short};
use crate::profiler::{Context, Samples, Use};
use crate::profilers::kmemleak::ledger::Space;
use crate::profilers::kmemleak::sources::{Role, Source};
use crate::profilers::kmemleak::{Kmemleak, Who};

/// What is asked of a short sample of a [`Source`].
#[derive(Clone, Copy, Debug)]
pub struct ShortSource {
    /// It frees; else it allocates.
    frees: bool,
    stacks: bool,
    ptr: Place,
    size: Option<Place>,
    /// Up to the end of these.
    bytes: usize,
    chain_form: ChainForm,
}

impl ShortSource {
    /// None: more must be asked.
    pub fn new(source: &Source, chain_form: ChainForm) -> Option<ShortSource> {
        let frees = match source.role {
            Role::Alloc => false,
            Role::Free => true,
            Role::Enter(_) | Role::Leave(_) => return None,
        };
        if source.user || !frees && !source.stacks && source.call_site.is_some() {
            return None;
        }
        let ptr = source.ptr.as_ref()?.word()?;
        let size = match source.size.as_ref().filter(|_| !frees) {
            Some(size) => Some(size.word()?),
            None => None,
        };
        Some(ShortSource {
            frees,
            stacks: source.stacks,
            ptr: Place::new(ptr.offset())?,
            size: match size {
                Some(size) => Some(Place::new(size.offset())?),
                None => None,
            },
            bytes: ptr.end().max(size.map_or(0, |size| size.end())),
            chain_form,
        })
    }
}

impl Kmemleak {
    /// The samples at the start of `samples`: short ones, and one that may be something else.
    pub(super) fn pair_up(&mut self, samples: &mut Samples<'_, '_>, ctx: &mut Context) {
        samples.each_short::<true>(ctx, |event, sample, ctx| self.on_short(event, sample, ctx));
        samples.one(ctx, |event, sample, ctx| self.on_long(event, sample, ctx));
    }

    /// Not in line a second time.
    #[inline(never)]
    fn on_long(&mut self, event: EventId, sample: &Sample<'_>, ctx: &mut Context) -> anyhow::Result<Use> {
        self.on_event(event, sample, ctx)
    }

    #[inline(always)]
    fn on_short(&mut self, event: EventId, sample: Short<'_>, ctx: &mut Context) -> Use {
        let at = event.index().wrapping_sub(self.first);
        let Some(&source) = self.short.get(at) else { return Use::Malformed };
        if sample.raw_bytes() < source.bytes {
            return Use::Malformed;
        }
        let ptr = sample.word(source.ptr);
        if ptr == 0 {
            return Use::Relevant; // an allocation that failed; kfree(NULL)
        }
        if source.frees {
            return self.freed(Space::Kernel, ptr, sample.time(), sample.tid(), sample.cpu(), ctx);
        }
        let bytes = source.size.map_or(0, |place| sample.word(place));
        let chain = sample.callchain();
        let stack = if source.stacks {
            ctx.stacks.intern(chain, source.chain_form, sample.pid(), &mut ctx.spaces)
        } else {
            None
        };
        let who = Who { pid: sample.pid(), tid: sample.tid(), time: sample.time() };
        self.take_down(Space::Kernel, ptr, bytes, stack, who, ctx)
    }
}
