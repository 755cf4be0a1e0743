//! The events that tell of the page cache: reads that it does not serve, pages that are read into it, faults of
//! mappings, and writers that are held back. All fire in the task that makes the call or takes the fault.

use anyhow::Result;

use crate::file::InodeKey;
use crate::host::BlockDevice;
use crate::perf::{EventId, Evlist, Sample};
use crate::profiler::Setup;
use crate::tep::{Field, ReadError, drift};

/// What an event tells of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheStep {
    /// A read finds a page missing, and starts readahead.
    Misses,
    /// Pages were added, 2 to the power of the order.
    Adds(u64),
    /// A fault of a mapping that the pages mapped around it did not spare.
    Faults,
    /// A writer sleeps, ns, until fewer pages are dirty.
    HeldBack(u64),
    /// A page is waited for that is being written back.
    AwaitsWriteback,
}

/// A number that the event has besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepKind {
    Misses,
    Adds,
    Faults,
    HeldBack,
    AwaitsWriteback,
}

/// The events, and whether each is read without `--cache`: those with a record per page, or per fault, are not.
const EVENTS: [(&str, StepKind, bool); 5] = [
    ("readahead:page_cache_sync_ra", StepKind::Misses, true),
    ("filemap:mm_filemap_add_to_page_cache", StepKind::Adds, false),
    ("filemap:mm_filemap_fault", StepKind::Faults, false),
    ("writeback:balance_dirty_pages", StepKind::HeldBack, true),
    ("writeback:folio_wait_writeback", StepKind::AwaitsWriteback, true),
];

#[derive(Debug)]
struct CacheEvent {
    event: EventId,
    kind: StepKind,
    /// Device and inode.
    file: Option<(Field, Field)>,
    number: Option<Field>,
}

/// The events that are open.
#[derive(Debug, Default)]
pub struct CacheEvents {
    events: Vec<CacheEvent>,
    /// What tells that a read misses.
    misses: Option<StepKind>,
}

impl CacheEvents {
    /// # Errors
    /// An event lacks a field.
    pub fn open(with_pages: bool, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<CacheEvents> {
        let mut all = CacheEvents::default();
        for (name, kind, _) in EVENTS.into_iter().filter(|(.., by_default)| *by_default || with_pages) {
            let Ok((evsel, format)) = setup.tracepoint(name) else { continue };
            let field = |name: &str| format.field(name).cloned();
            let number = match kind {
                StepKind::Adds => field("order"),
                StepKind::HeldBack => Some(drift::require(&format, "pause")?.clone()),
                _ => None,
            };
            let file = field("s_dev").zip(field("i_ino"));
            all.events.push(CacheEvent { event: evlist.add(evsel)?, kind, file, number });
        }
        let is_open = |kind: &StepKind| all.events.iter().any(|event| event.kind == *kind);
        // Without readahead's own event, a page that is added during a read was missing.
        all.misses = [StepKind::Misses, StepKind::Adds].into_iter().find(is_open);
        if all.misses.is_none() {
            setup.warn("this kernel tells with --cache only which reads the page cache served".to_owned());
        }
        Ok(all)
    }

    /// Whether it is known which reads miss.
    pub fn tell_misses(&self) -> bool {
        self.misses.is_some()
    }

    /// Whether an event during a read shows that the read misses.
    pub fn is_miss(&self, step: CacheStep) -> bool {
        match self.misses {
            Some(StepKind::Misses) => step == CacheStep::Misses,
            _ => matches!(step, CacheStep::Adds(_)),
        }
    }

    /// What a sample of one of these events tells, and of which file, if it has that.
    ///
    /// # Errors
    /// The record ends before its fields do.
    pub fn read(
        &self,
        event: EventId,
        sample: &Sample<'_>,
    ) -> Result<Option<(CacheStep, Option<InodeKey>)>, ReadError> {
        const NS_PER_MS: u64 = 1_000_000;
        let Some(of) = self.events.iter().find(|of| of.event == event) else { return Ok(None) };
        let step = match (of.kind, &of.number) {
            (StepKind::Misses, _) => CacheStep::Misses,
            // Older kernels add single pages.
            (StepKind::Adds, None) => CacheStep::Adds(1),
            (StepKind::Adds, Some(order)) => CacheStep::Adds(1 << order.read_u64(sample.raw)?.min(32)),
            (StepKind::Faults, _) => CacheStep::Faults,
            (StepKind::HeldBack, pause) => {
                let pause_ms = pause.as_ref().map_or(Ok(0), |pause| pause.read_i64(sample.raw))?;
                CacheStep::HeldBack(u64::try_from(pause_ms).unwrap_or(0).saturating_mul(NS_PER_MS))
            }
            (StepKind::AwaitsWriteback, _) => CacheStep::AwaitsWriteback,
        };
        let Some((device, inode)) = &of.file else { return Ok(Some((step, None))) };
        let (device, inode) = (BlockDevice(device.read_u64(sample.raw)? as u32), inode.read_u64(sample.raw)?);
        Ok(Some((step, Some(InodeKey { device, inode }))))
    }
}
