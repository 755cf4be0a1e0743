//! Unit tests of [`Evlist`].

use super::*;

#[test]
fn counts_descriptors() {
    let mut evlist = Evlist::new();
    evlist.add(Evsel::new("a:b", Attr::tracepoint(1))).unwrap();
    evlist.add(Evsel::new("a:c", Attr::tracepoint(2)).binding(Binding::Cpu)).unwrap();
    evlist.add(Evsel::new("a:d", Attr::tracepoint(3)).unopened()).unwrap();
    let threads = Bound::Threads(vec![1, 2, 3]);
    evlist.plan.rings = 1;
    assert_eq!(evlist.descriptors(None, 4, 0), 64 + (2 + 1 + 2) * 4);
    evlist.watch_idle(EventId(0));
    assert_eq!(evlist.descriptors(None, 4, 0), 64 + (2 + 1 + 2 + 2) * 4);
    evlist.count_too();
    assert_eq!(evlist.descriptors(None, 4, 0), 64 + (2 + 1 + 2) * 4, "a forecast does without");
    assert_eq!(evlist.descriptors(Some(&threads), 4, 0), 64 + (3 + 1 + 1 + 3 + 1) * 4);
    assert_eq!(evlist.descriptors(Some(&threads), 1, 3), 64 + (3 + 1 + 1 + 3 + 1) + (3 + 1) * 3);
}

#[test]
fn refuses_filters_that_are_too_long() {
    let mut evlist = Evlist::new();
    let event = evlist.add(Evsel::new("a:b", Attr::tracepoint(1))).unwrap();
    assert!(evlist.set_filter(event, "x".repeat(FILTER_MAX + 1)).is_err());
    assert!(evlist.set_filter(event, "pid==1".into()).is_ok());
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
    evlist.plan.bound = Some(Bound::Threads(vec![7]));
    evlist.bind(None);
    assert_eq!(tids(&evlist), [7]);
    evlist.bind(Some(vec![8, 9]));
    assert_eq!(tids(&evlist), [8, 9]);
}
