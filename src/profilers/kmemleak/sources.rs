//! Where allocations and frees are seen: the events of `--alloc` and `--free`, or those that a preset stands for.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::cli::usage;
use crate::event::selector::{self, Head, Selector};
use crate::expr::{Expr, Program};
use crate::perf::evlist::Evlist;
use crate::perf::evsel::{Binding, EventId, Evsel};
use crate::perf::target::Tasks;
use crate::profiler::Setup;
use crate::sys;
use crate::tep::drift::ALLOCATED_BYTES;
use crate::tep::field::Field;
use crate::tep::filter::Filter;
use crate::tep::format::Format;

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
}

/// What an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Alloc,
    Free,
    /// A call begins that returns as the pair's other event.
    Enter(u16),
    Leave(u16),
}

/// An event as it is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    selector: Selector,
    role: Role,
    ptr: Option<Expr>,
    size: Option<Expr>,
    /// Left out where the kernel has no such event.
    optional: bool,
}

/// An event that is open.
#[derive(Debug)]
pub struct Source {
    pub event: EventId,
    pub role: Role,
    /// Its addresses are those of the current process.
    pub user: bool,
    pub ptr: Option<Program>,
    pub size: Option<Program>,
    pub stacks: bool,
    /// Who called, where there is no callchain.
    pub call_site: Option<Field>,
    pub filter: Option<Filter>,
}

impl Preset {
    /// The events of both lists. `?` in front: older or newer kernels do without.
    fn lists(self) -> [String; 2] {
        let page = sys::page_size();
        let lists: [&str; 2] = match self {
            // A number of a page that does not exist is -1, and 0 is an address that is none.
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
            Preset::Percpu => ["percpu:percpu_alloc_percpu", "percpu:percpu_free_percpu"],
            Preset::Vmalloc => {
                ["vmalloc:alloc_vmap_area//ptr=(failed?0:addr)/", "vmalloc:free_vmap_area_noflush//ptr=va_start/"]
            }
        };
        lists.map(str::to_owned)
    }

    /// The events that it stands for.
    ///
    /// # Errors
    /// None: the lists are ours.
    pub fn wanted(self) -> Result<Vec<Wanted>> {
        let [alloc, free] = self.lists();
        let mut wanted = Vec::new();
        for (list, is_alloc) in [(alloc, true), (free, false)] {
            for text in list.split(',') {
                let name = text.trim_start_matches('?');
                let first = wanted.len();
                wanted.extend(if is_alloc { allocs(name)? } else { frees(name)? });
                wanted[first..].iter_mut().for_each(|wanted| wanted.optional = name != text);
            }
        }
        Ok(wanted)
    }
}

/// The events of `--alloc`. One that gives no address gives its size to the next one: they are a function's entry and
/// its return.
///
/// # Errors
/// Text that does not parse.
pub fn allocs(list: &str) -> Result<Vec<Wanted>> {
    parsed("--alloc", list, &["ptr=EXPR", "size=EXPR"], Role::Alloc)
}

/// The events of `--free`.
///
/// # Errors
/// Text that does not parse.
pub fn frees(list: &str) -> Result<Vec<Wanted>> {
    parsed("--free", list, &["ptr=EXPR"], Role::Free)
}

fn parsed(option: &str, list: &str, attrs: &[&str], role: Role) -> Result<Vec<Wanted>> {
    let selectors = selector::parse_with(list, attrs).map_err(|err| usage(format!("{option}: {err}")))?;
    let wanted = |selector: Selector| -> Result<Wanted> {
        if selector.has_wildcard() {
            return Err(usage(format!("{option}: {} has a wildcard: name each event in full", selector.head)));
        }
        let expr = |name: &str| -> Result<Option<Expr>> {
            let expr = selector.attrs.other(name).map(Expr::parse).transpose();
            expr.map_err(|err| usage(format!("{option}: {name} of {}: {err}", selector.head)))
        };
        let (ptr, size) = (expr("ptr")?, expr("size")?);
        Ok(Wanted { selector, role, ptr, size, optional: false })
    };
    selectors.into_iter().map(wanted).collect()
}

/// An event that exists.
struct Found {
    wanted: Wanted,
    evsel: Evsel,
    format: Arc<Format>,
}

/// Puts the events into the list.
///
/// # Errors
/// An event or field that this kernel lacks.
pub fn open(wanted: &[Wanted], evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Vec<Source>> {
    let mut found: Vec<Found> = Vec::new();
    for wanted in wanted {
        if wanted.optional && setup.tracefs.get()?.matching(&wanted.selector.head.to_string())?.is_empty() {
            continue;
        }
        let twin = |other: &&Found| {
            other.wanted.role == wanted.role
                && other.wanted.selector.head == wanted.selector.head
                && other.wanted.selector.filter == wanted.selector.filter
        };
        if let Some(twin) = found.iter().find(twin) {
            bail!("{} is given twice: each of its events would count double", twin.wanted.selector.head);
        }
        let (evsel, format) = setup.event(&wanted.selector)?;
        found.push(Found { wanted: wanted.clone(), evsel, format });
    }
    let heads: Vec<Head> = found.iter().map(|found| found.wanted.selector.head.clone()).collect();
    let mut sources = Vec::new();
    for found in found {
        sources.push(source(found, evlist, setup)?);
    }
    pair(&mut sources, &heads)?;
    Ok(sources)
}

fn source(found: Found, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<Source> {
    let Found { wanted, evsel, format } = found;
    let field = |name: &str| format.field(name).map(|field| field.name.clone());
    let ptr = program(wanted.ptr.as_ref(), field("ptr"), &format)?;
    let size = program(wanted.size.as_ref(), ALLOCATED_BYTES.into_iter().find_map(field), &format)?;
    let is_free = wanted.role == Role::Free;
    if ptr.is_none() && (is_free || size.is_none()) {
        let has: Vec<&str> = format.user_fields().map(|field| field.name.as_str()).collect();
        bail!(
            "{} has no field `ptr`: say what the address is, as in {}//ptr=EXPR/; its fields are {}",
            format.full_name(),
            format.full_name(),
            if has.is_empty() { "none".to_owned() } else { has.join(", ") }
        );
    }
    let attrs = &wanted.selector.attrs;
    let user = is_user(&wanted.selector.head, setup)?;
    let stacks = !is_free && ptr.is_some() && (setup.stacks || attrs.stack);
    // Who frees may be anybody, unless only a process can free what is its own.
    let anybody = is_free && !(user && matches!(setup.target.tasks, Tasks::Processes(_) | Tasks::Workload(_)));
    let mut evsel = evsel
        .once()
        .binding(if anybody { Binding::Cpu } else { Binding::Task })
        .cpus(attrs.cpus.clone().or_else(|| setup.target.wanted.clone().filter(|_| !is_free)));
    if stacks {
        evsel = evsel.callchain(attrs.max_stack.unwrap_or(0));
        // Of a whole machine, it matters where in the kernel, not in which of many programs.
        if !user && setup.watched.is_all() {
            evsel = evsel.kernel_callchain();
        }
    }
    let call_site = format.field("call_site").filter(|field| !stacks && !user && field.size == 8).cloned();
    let filter = wanted.selector.filter.as_deref().map(|text| Filter::parse(text, &format)).transpose();
    let filter = filter.map_err(|err| setup.filter_error(err, &format))?;
    let event = evlist.add(evsel)?;
    Ok(Source { event, role: wanted.role, user, ptr, size, stacks, call_site, filter })
}

/// What is asked for, or else a field.
fn program(expr: Option<&Expr>, field: Option<String>, format: &Format) -> Result<Option<Program>> {
    let of_field = field.as_deref().map(Expr::parse).transpose()?;
    let Some(expr) = expr.or(of_field.as_ref()) else { return Ok(None) };
    match expr.compile(format) {
        Ok(program) => Ok(Some(program)),
        Err(err) if err.is_unknown_field() => Err(anyhow::Error::new(err)),
        Err(err) => Err(usage(err)),
    }
}

/// Turns each event without an address, and the one behind it, into a pair.
fn pair(sources: &mut [Source], heads: &[Head]) -> Result<()> {
    let is_entry = |source: &Source| source.role == Role::Alloc && source.ptr.is_none();
    for index in (0..sources.len()).filter(|index| is_entry(&sources[*index])).collect::<Vec<_>>() {
        let number = u16::try_from(index).context("too many events")?;
        let entry = &heads[index];
        match sources.get_mut(index + 1) {
            Some(other) if other.role == Role::Alloc && other.ptr.is_some() => other.role = Role::Leave(number),
            _ => bail!(
                "{entry} has no `ptr`, so it is a function's entry: the return, which has the address, must come next in --alloc"
            ),
        }
        sources[index].role = Role::Enter(number);
    }
    Ok(())
}

/// True for an event whose addresses are those of the process that it happens in.
fn is_user(head: &Head, setup: &Setup<'_>) -> Result<bool> {
    Ok(match head {
        Head::Uprobe { .. } => true,
        Head::Kprobe { .. } => false,
        Head::Tracepoint { system, .. } if system == "syscalls" || system == "raw_syscalls" => true,
        Head::Tracepoint { system, name } => setup.tracefs.get()?.is_uprobe(system, name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_written_right() {
        for preset in [Preset::Slab, Preset::Page, Preset::Percpu, Preset::Vmalloc] {
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
            (frees("kmem:kfree//size=1/"), "unknown attribute \"size\""),
            (frees("kfree"), "--free: `kfree` is not an event"),
        ];
        for (result, want) in cases {
            let err = result.unwrap_err();
            assert!(err.is::<crate::cli::Usage>() && err.to_string().contains(want), "{err}");
        }
    }
}
