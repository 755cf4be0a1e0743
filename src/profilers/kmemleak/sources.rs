//! The events that show allocations and frees: those of `--alloc` and `--free`, or of a preset.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::cli::usage;
use crate::event::{ALLOCATION_ATTRS, BoundEvent, Selector, SelectorHead, selector};
use crate::expr::Program;
use crate::perf::EventId;
use crate::perf::evlist::Evlist;
use crate::perf::evsel::Binding;
use crate::perf::target::Tasks;
use crate::profiler::Setup;
use crate::sys;
use crate::tep::EventError;
use crate::tep::drift::ALLOCATED_BYTES;
use crate::tep::filter::Filter;
use crate::tep::format::Format;
use crate::tep::format::field::{Field, LocatedText};

/// Allocators whose events are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// The kernel's kmalloc and its caches
    Slab,
    /// Pages of the kernel's page allocator
    Page,
    /// The kernel's per-CPU memory
    Percpu,
    /// Ranges of the kernel's virtual memory
    Vmalloc,
    /// The C library of the programs that are watched, with -p and the like, or a command
    Malloc,
}

/// The role of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Alloc,
    Free,
    /// A call begins, whose return is the other event of the pair.
    Enter(u16),
    Leave(u16),
}

/// An event as the user or a preset gives it.
#[derive(Clone, Debug)]
pub struct WantedSource {
    selector: Selector,
    role: Role,
    /// See [`AllocatorEvent::result_in_memory`].
    result_in_memory: bool,
    /// The event is skipped where the kernel, or the file, lacks it.
    optional: bool,
    /// The text of the error if the event is missing.
    needs: &'static str,
}

/// An argument of a call that matters when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallArgument {
    /// The pointer that realloc replaces.
    Old,
    /// The address at which posix_memalign stores its result.
    Result,
}

/// An event that is open.
#[derive(Debug)]
pub struct AllocatorEvent {
    pub event: EventId,
    pub format: Arc<Format>,
    pub role: Role,
    /// Addresses of the event belong to the current process.
    pub user: bool,
    pub ptr: Option<Program>,
    /// Events are paired by a key of the user, for which 0 is a valid value.
    pub is_keyed: bool,
    pub size: Option<Program>,
    pub argument: Option<(CallArgument, Program)>,
    /// The result is stored in the caller's memory, and `ptr` is the errno of the call, 0 on success.
    pub result_in_memory: bool,
    pub stacks: bool,
    /// The calling function, where there is no callchain.
    pub call_site: Option<Field>,
    /// The name of the kernel cache that the object is from.
    pub cache: Option<LocatedText>,
    pub filter: Option<Filter>,
}

/// The allocators of the C library: function, arguments, size, and another argument that is needed.
const MALLOC: [(&str, &str, &str, Option<CallArgument>); 8] = [
    ("malloc", "size=$arg1", "size", None),
    ("calloc", "count=$arg1 size=$arg2", "count*size", None),
    ("realloc", "old=$arg1 size=$arg2", "size", Some(CallArgument::Old)),
    ("posix_memalign", "result=$arg1 size=$arg3", "size", Some(CallArgument::Result)),
    ("aligned_alloc", "size=$arg2", "size", None),
    ("memalign", "size=$arg2", "size", None),
    ("valloc", "size=$arg1", "size", None),
    ("pvalloc", "size=$arg1", "size", None),
];
/// Every C library has this function. The other ones are watched where the library has them.
const NEEDED: [&str; 1] = ["malloc"];
/// Bytes of the caller's stack that are copied to find a result: a local variable of the caller, or of its callers.
const RESULT_WITHIN_BYTES: u32 = 2048;

/// On older kernels the functions can be probed, but names and inlining differ between kernels.
const NEEDS_VMALLOC: &str =
    "the preset vmalloc needs the events of Linux 6.3, and newer; on older ones put kprobes into --alloc and --free";

impl CallArgument {
    const ALL: [CallArgument; 2] = [CallArgument::Old, CallArgument::Result];

    fn name(self) -> &'static str {
        match self {
            CallArgument::Old => "old",
            CallArgument::Result => "result",
        }
    }
}

impl Preset {
    /// The events that allocate, and those that free. `?` marks an event that not all kernels have.
    fn lists(self) -> [String; 2] {
        let page = sys::page_size();
        let lists: [&str; 2] = match self {
            // The pfn of a page that does not exist is -1: plus 1 it is 0, which stands for no address.
            Preset::Page => {
                return [
                    format!("kmem:mm_page_alloc//ptr=pfn+1/size={page}<<order/"),
                    "kmem:mm_page_free//ptr=pfn+1/".to_owned(),
                ];
            }
            Preset::Slab => [
                "kmem:kmalloc,kmem:kmem_cache_alloc,?kmem:kmalloc_node,?kmem:kmem_cache_alloc_node",
                "kmem:kfree,kmem:kmem_cache_free",
            ],
            Preset::Malloc => ["", "uprobe:free//args='ptr=$arg1'/"],
            Preset::Percpu => ["percpu:percpu_alloc_percpu", "percpu:percpu_free_percpu"],
            Preset::Vmalloc => {
                ["vmalloc:alloc_vmap_area//ptr=(failed?0:addr)/", "vmalloc:free_vmap_area_noflush//ptr=va_start/"]
            }
        };
        lists.map(str::to_owned)
    }

    /// Whether the events of the preset are user probes: each process that runs the probed code pays for them.
    pub fn is_in_programs(self) -> bool {
        self == Preset::Malloc
    }

    /// The events of the preset.
    ///
    /// # Errors
    /// None in practice: the lists are constants.
    fn wanted(self) -> Result<Vec<WantedSource>> {
        let [alloc, free] = self.lists();
        let mut wanted = if self == Preset::Malloc { calls()? } else { Vec::new() };
        for (list, is_alloc) in [(alloc, true), (free, false)] {
            for text in list.split(',').filter(|text| !text.is_empty()) {
                let name = text.trim_start_matches('?');
                let first = wanted.len();
                wanted.extend(if is_alloc { allocs(name)? } else { frees(name)? });
                for wanted in &mut wanted[first..] {
                    wanted.optional = name != text;
                    wanted.needs = if self == Preset::Vmalloc { NEEDS_VMALLOC } else { "" };
                }
            }
        }
        Ok(wanted)
    }
}

/// The events of a preset, or of `--alloc` and `--free`.
///
/// # Errors
/// None was named, or a text does not parse.
pub fn wanted(preset: Option<Preset>, alloc: &[String], free: &[String]) -> Result<Vec<WantedSource>> {
    let mut wanted = preset.map_or_else(|| Ok(Vec::new()), Preset::wanted)?;
    for list in alloc {
        wanted.extend(allocs(list)?);
    }
    for list in free {
        wanted.extend(frees(list)?);
    }
    if wanted.is_empty() {
        return Err(usage(
            "what to watch is missing: a preset, as in `kmemleak slab`, or events with --alloc and --free",
        ));
    }
    Ok(wanted)
}

/// Entries and returns of the C library's allocators.
fn calls() -> Result<Vec<WantedSource>> {
    let mut wanted = Vec::new();
    for (function, args, size, argument) in MALLOC {
        let beside = argument.map_or(String::new(), |argument| format!("{0}={0}/", argument.name()));
        let list = format!(
            "uprobe:{function}//args='{args}'/size=({size})/{beside},uretprobe:{function}//args='ptr=$retval'/"
        );
        let mut pair = parsed("--alloc", &list, &["ptr=EXPR", "size=EXPR", "old=EXPR", "result=EXPR"], Role::Alloc)?;
        for wanted in &mut pair {
            wanted.optional = !NEEDED.contains(&function);
            let returns = matches!(&wanted.selector.head, SelectorHead::Uprobe(place, _) if place.ret);
            wanted.result_in_memory = returns && argument == Some(CallArgument::Result);
        }
        wanted.extend(pair);
    }
    Ok(wanted)
}

/// The events of `--alloc`. An event without an address passes its size to the next event: they are the entry of a
/// function and its return.
///
/// # Errors
/// Text that does not parse.
fn allocs(list: &str) -> Result<Vec<WantedSource>> {
    parsed("--alloc", list, &ALLOCATION_ATTRS, Role::Alloc)
}

/// The events of `--free`.
///
/// # Errors
/// Text that does not parse.
fn frees(list: &str) -> Result<Vec<WantedSource>> {
    parsed("--free", list, &["ptr=EXPR", "key=EXPR"], Role::Free)
}

fn parsed(option: &str, list: &str, attrs: &[&str], role: Role) -> Result<Vec<WantedSource>> {
    let selectors = selector::parse_with(list, attrs).map_err(|err| usage(format!("{option}: {err}")))?;
    let wanted = |selector: Selector| -> Result<WantedSource> {
        let has = |name: &str| selector.attrs.expressions.iter().any(|(given, _)| given == name);
        if has("ptr") && has("key") {
            return Err(usage(format!(
                "{option}: {} has ptr= and key=, and is paired by one of them: leave out the other",
                selector.head
            )));
        }
        if selector.has_wildcard() {
            return Err(usage(format!("{option}: {} has a wildcard: name each event in full", selector.head)));
        }
        Ok(WantedSource { selector, role, result_in_memory: false, optional: false, needs: "" })
    };
    selectors.into_iter().map(wanted).collect()
}

fn is_absent(err: &anyhow::Error) -> bool {
    matches!(err.downcast_ref(), Some(EventError::NotFound { .. }))
}

/// Adds the events to the list.
///
/// # Errors
/// An event or field that this kernel lacks.
pub fn open(wanted: &[WantedSource], evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Vec<AllocatorEvent>> {
    let in_full = |wanted: &WantedSource| -> Result<WantedSource> {
        Ok(WantedSource { selector: setup.with_full_name(&wanted.selector)?.into_owned(), ..wanted.clone() })
    };
    let wanted: Vec<WantedSource> = wanted.iter().map(in_full).collect::<Result<_>>()?;
    let mut sources: Vec<AllocatorEvent> = Vec::new();
    // The sources of each wanted event: a function may be in several files.
    let mut groups: Vec<(&WantedSource, Range<usize>)> = Vec::new();
    setup.find_functions(wanted.iter().map(|wanted| (&wanted.selector, !wanted.optional)))?;
    for wanted in &wanted {
        let twin = |(other, _): &&(&WantedSource, Range<usize>)| {
            let (one, other) = (&wanted.selector, (&other.selector, other.role));
            (other.1, &other.0.head, &other.0.filter) == (wanted.role, &one.head, &one.filter)
        };
        if let Some((twin, _)) = groups.iter().find(twin) {
            bail!("{} is given twice: each of its events would count double", twin.selector.head);
        }
        let events = match setup.bind(&wanted.selector, None) {
            Err(_) if wanted.optional => continue,
            Err(err) if !wanted.needs.is_empty() && is_absent(&err) => bail!("{}", wanted.needs),
            events => events?,
        };
        let first = sources.len();
        for bound in events {
            sources.push(source(wanted, bound, evlist, setup)?);
        }
        groups.push((wanted, first..sources.len()));
    }
    pair(&mut sources, &groups)?;
    Ok(sources)
}

/// The error about an event that has no address.
fn no_address(format: &Format) -> anyhow::Error {
    let fields: Vec<&str> = format.user_fields().map(|field| field.name.as_str()).collect();
    anyhow!(
        "{} has no field `ptr`: say what the address is, as in {}//ptr=EXPR/; its fields are {}",
        format.full_name(),
        format.full_name(),
        if fields.is_empty() { "none".to_owned() } else { fields.join(", ") }
    )
}

fn source(
    wanted: &WantedSource,
    mut bound: BoundEvent,
    evlist: &mut Evlist,
    setup: &Setup<'_>,
) -> Result<AllocatorEvent> {
    let (format, filter) = (bound.format.clone(), bound.filter.clone());
    let value = |name: &str, fields: &[&str]| {
        bound.value(name, fields).map_err(|err| usage(format!("{name} of {}: {err}", format.full_name())))
    };
    let key = value("key", &[])?;
    let is_keyed = key.is_some();
    let ptr = if is_keyed { key } else { value("ptr", &["ptr"])? };
    let size = value("size", &ALLOCATED_BYTES)?;
    let is_free = wanted.role == Role::Free;
    if ptr.is_none() && (is_free || size.is_none()) {
        return Err(no_address(&format));
    }
    if filter.as_ref().is_some_and(Filter::tests_limited_text) {
        bail!("{}: the kernel has no filter for text with a length", format.full_name());
    }
    let mut argument = None;
    for what in CallArgument::ALL {
        argument = argument.or(value(what.name(), &[])?.map(|program| (what, program)));
    }
    let user = is_user(&wanted.selector.head, setup)?;
    let stacks = !is_free && ptr.is_some() && (setup.stacks || bound.attributes.stack);
    // Any task may free kernel memory; only the process itself frees its memory.
    let anybody = is_free && !(user && matches!(setup.target.tasks, Tasks::Processes(_) | Tasks::Workload(_)));
    if bound.attributes.cpus.is_none() && !is_free {
        bound.attributes.cpus.clone_from(&setup.target.wanted);
    }
    let mut evsel = bound.into_evsel(stacks).binding(if anybody { Binding::Cpu } else { Binding::Task }).small_copies();
    // For a whole machine the place in the kernel matters, not which of many programs made the call.
    if stacks && !user && setup.watched.is_all() {
        evsel = evsel.kernel_callchain();
    }
    let result_in_memory = wanted.result_in_memory;
    if result_in_memory {
        evsel = evsel.user_stack(RESULT_WITHIN_BYTES);
    }
    let call_site = format.field("call_site").filter(|field| !stacks && !user && field.size == 8).cloned();
    let event = evlist.add(evsel)?;
    let cache = cache_name(&format);
    Ok(AllocatorEvent {
        event,
        format,
        role: wanted.role,
        user,
        ptr,
        is_keyed,
        size,
        argument,
        result_in_memory,
        stacks,
        call_site,
        cache,
        filter,
    })
}

/// The field with the name of a kernel cache: kmem_cache_alloc has one on Linux 6.18, and none on 6.12.
fn cache_name(format: &Format) -> Option<LocatedText> {
    let is_of_cache = format.system == "kmem" && format.name.starts_with("kmem_cache_alloc");
    format.field("name").filter(|_| is_of_cache)?.located_text().ok()
}

/// Makes a pair of each event without an address and the event after it: one pair per file.
fn pair(sources: &mut [AllocatorEvent], groups: &[(&WantedSource, Range<usize>)]) -> Result<()> {
    for (at, (wanted, entries)) in groups.iter().enumerate() {
        let is_entry = |index: &usize| {
            sources.get(*index).is_some_and(|source| source.role == Role::Alloc && source.ptr.is_none())
        };
        if !entries.clone().any(|index| is_entry(&index)) {
            continue;
        }
        let is_return =
            |index: usize| sources.get(index).is_some_and(|source| source.role == Role::Alloc && source.ptr.is_some());
        let returns = groups.get(at + 1).map(|(_, returns)| returns.clone());
        let Some(returns) = returns.filter(|returns| returns.len() == entries.len() && returns.clone().all(is_return))
        else {
            bail!(
                "{} has no `ptr`, so it is a function's entry: the return, which has the address, must come next in --alloc",
                wanted.selector.head
            )
        };
        for (entry, leaving) in entries.clone().zip(returns) {
            let number = u16::try_from(entry).context("too many events")?;
            sources[entry].role = Role::Enter(number);
            sources[leaving].role = Role::Leave(number);
        }
    }
    Ok(())
}

/// True for an event whose addresses belong to the process in which it happens.
fn is_user(head: &SelectorHead, setup: &Setup<'_>) -> Result<bool> {
    Ok(match head {
        SelectorHead::Uprobe(..) => true,
        SelectorHead::Kprobe(_) | SelectorHead::Bare(_) => false, // such a name was already replaced by a full name
        SelectorHead::Tracepoint { system, .. } if system == "syscalls" || system == "raw_syscalls" => true,
        SelectorHead::Tracepoint { system, name } => setup.tracefs.get()?.is_uprobe(system, name),
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn presets_are_written_right() {
        for preset in Preset::value_variants() {
            let wanted = preset.wanted().unwrap();
            let is = |role| wanted.iter().any(|wanted| wanted.role == role && !wanted.optional);
            assert!(is(Role::Alloc) && is(Role::Free), "{preset:?}");
        }
    }

    #[test]
    fn faults_in_lists_are_told() {
        let cases = [
            (allocs("kmem:kmalloc//ptr=1+/"), "ptr of kmem:kmalloc: a field or a number is missing"),
            (allocs("kmem:*"), "wildcard"),
            (allocs("kmem:kmalloc//pointer=x/"), "unknown attribute \"pointer\"; known:"),
            (frees("kmem:kfree//size=1/"), "attribute size is for --alloc of kmemleak"),
            (frees("k*e"), "--free: `k*e` is not an event"),
        ];
        for (result, want) in cases {
            let err = result.unwrap_err();
            assert!(err.is::<crate::cli::UsageError>() && err.to_string().contains(want), "{err}");
        }
    }
}
