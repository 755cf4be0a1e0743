//! Unit tests of [`Evlist`].

use super::*;
use crate::perf::evsel::ProbeKeeping;

#[test]
fn counts_descriptors() {
    let mut evlist = Evlist::new();
    evlist.add(Evsel::new("a:b", Attr::tracepoint(1))).unwrap();
    evlist.add(Evsel::new("a:c", Attr::tracepoint(2)).binding(Binding::Cpu)).unwrap();
    evlist.add(Evsel::new("a:d", Attr::tracepoint(3)).unopened()).unwrap();
    let threads = BoundTo::Threads(vec![1, 2, 3]);
    evlist.plan.rings = 1;
    assert_eq!(evlist.descriptors(None, 4, 0), 64 + (2 + 1 + 2) * 4);
    evlist.watch_idle(EventId(0));
    assert_eq!(evlist.descriptors(None, 4, 0), 64 + (2 + 1 + 2 + 2) * 4);
    evlist.with_counters();
    assert_eq!(evlist.descriptors(None, 4, 0), 64 + (2 + 1 + 2) * 4, "a forecast does without");
    assert_eq!(evlist.descriptors(Some(&threads), 4, 0), 64 + (3 + 1 + 1 + 3 + 1) * 4);
    assert_eq!(evlist.descriptors(Some(&threads), 1, 3), 64 + (3 + 1 + 1 + 3 + 1) + (3 + 1) * 3);
}

#[test]
fn probes_in_programs_are_kept_where_children_go() {
    let mut evlist = Evlist::new();
    let probe =
        |id| Evsel::new(format!("uprobe:f{id}"), Attr::tracepoint(id)).probe(false).in_program(Some(u64::from(id)));
    evlist.add(Evsel::new("a:b", Attr::tracepoint(1))).unwrap();
    evlist.add(probe(2).binding(Binding::Cpu)).unwrap();
    let target = |tasks| Target { wanted: None, tasks };
    let follows = target(Tasks::Processes(vec![7]));
    let threads = BoundTo::Threads(vec![7, 8, 9]);
    assert_eq!(evlist.guard_descriptors(&follows, Some(&threads)), 0, "one that is on whole CPUs is everywhere");
    let events = [3, 4].map(|id| evlist.add(probe(id)).unwrap());
    assert_eq!(evlist.evsels.inherited_probes(&follows), [(events[0], Some(3)), (events[1], Some(4))]);
    assert!(evlist.evsels.inherited_probes(&target(Tasks::Threads(vec![7]))).is_empty(), "nobody inherits them");
    assert_eq!((evlist.guard_descriptors(&follows, Some(&threads)), evlist.guard_descriptors(&follows, None)), (3, 0));
    evlist.evsels.keep(events[0], ProbeKeeping::Everywhere);
    evlist.evsels.keep(events[1], ProbeKeeping::InDoubt);
    assert_eq!(evlist.guard_descriptors(&follows, Some(&threads)), 1);
    assert!(evlist.in_doubt().is_empty(), "whole CPUs are not in doubt");
    (evlist.plan.bound, evlist.plan.inherit) = (Some(threads), true);
    assert_eq!(evlist.in_doubt(), ["uprobe:f4"]);
    assert!(evlist.doubt().is_some_and(|doubt| doubt.contains("calls of uprobe:f4 in processes")));
}

#[test]
fn refuses_filters_that_are_too_long() {
    let mut evlist = Evlist::new();
    let event = evlist.add(Evsel::new("a:b", Attr::tracepoint(1))).unwrap();
    assert!(evlist.set_filter(event, "x".repeat(FILTER_MAX + 1)).is_err());
    assert!(evlist.set_filter(event, "pid==1").is_ok());
    assert_eq!(evlist.evsel(event).filter(), Some("pid==1"));
}

#[test]
fn a_new_cpu_is_opened_for_the_threads_of_now() {
    let tids = |evlist: &Evlist| -> Vec<i32> {
        let of = |watch: &Watch| if let Watch::Task { tid, cpu: 3 } = watch { Some(*tid) } else { None };
        evlist.plan.watches(3).iter().filter_map(of).collect()
    };
    let mut evlist = Evlist::new();
    evlist.bind(Some(vec![7]));
    assert!(matches!(evlist.plan.watches(3)[..], [Watch::Cpu(3)]), "whole CPUs stay whole");
    evlist.plan.bound = Some(BoundTo::Threads(vec![7]));
    evlist.bind(None);
    assert_eq!(tids(&evlist), [7]);
    evlist.bind(Some(vec![8, 9]));
    assert_eq!(tids(&evlist), [8, 9]);
}

#[test]
fn a_ring_belongs_to_all_who_have_events_in_it() {
    let mut evlist = Evlist::new();
    for (owner, id) in [(0, 1), (1, 1), (2, 2)] {
        evlist.adding_for(owner);
        evlist.add(Evsel::new(format!("a:{id}"), Attr::tracepoint(id))).unwrap();
    }
    evlist.evsels.share();
    evlist.plan.classes = vec![0, 0, 1];
    let owners = |class| [0, 1, 2].map(|owner| evlist.is_in(Class::Events(class), owner));
    assert_eq!([owners(0), owners(1)], [[true, true, false], [false, false, true]]);
    assert!(evlist.is_in(Class::Side, 2));
}
