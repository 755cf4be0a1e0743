//! Tests of the table of stacks: single cases, and random steps compared with a plain map.

use proptest::prelude::*;

use super::*;
use crate::host::Host;
use crate::perf::Record;
use crate::perf::record::UserPart;
use crate::symbol::AddressSpaces;
use crate::symbol::stacks::chain_words::{innermost_user, without_end_marker};
use crate::symbol::stacks::frame::StackCut;
use crate::symbol::unnamed::{NO_ADDRESS, UnnamedReason};

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn chain(bytes: &[u8]) -> Callchain<'_> {
    Callchain::from_bytes(bytes)
}

fn form(depth: u16) -> ChainForm {
    ChainForm { depth, ..ChainForm::default() }
}

const FORM: ChainForm = ChainForm { depth: 0, innermost: Innermost::Executed, user: UserPart::FramePointers };

fn frames(stacks: &mut Stacks) -> Vec<Vec<Frame>> {
    let mut spaces = AddressSpaces::new(Host { proc: "/nonexistent".into(), cpu: "/nonexistent".into() });
    let frames = |news| match news {
        SymbolUpdate::Stack(stack) => stack.frames(&mut spaces),
        _ => Vec::new(),
    };
    stacks.take_updates().map(frames).collect()
}

#[test]
fn the_zero_at_the_end_is_no_frame() {
    assert_eq!(without_end_marker(&[PERF_CONTEXT_USER, 5, 6, 0]), [PERF_CONTEXT_USER, 5, 6]);
    for words in [&[PERF_CONTEXT_USER, 0][..], &[PERF_CONTEXT_USER, 0, 6], &[0], &[]] {
        assert_eq!(without_end_marker(words), words, "the only word, or not the last one");
    }
}

/// A word that a process may put on its stack to pass for a marker or a kernel address.
fn forged() -> impl Strategy<Value = u64> {
    let marker = prop::sample::select(vec![PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_MAX, u64::MAX]);
    prop_oneof![marker, 0xffff_ffff_8000_0000..PERF_CONTEXT_MAX, any::<u64>()]
}

proptest! {
    #[test]
    fn nothing_on_the_stack_of_a_process_becomes_a_frame_of_the_kernel(
        kernel in prop::collection::vec(1 << 63..PERF_CONTEXT_MAX, 0..6),
        user in prop::collection::vec(forged(), 1..8),
        most in 1_usize..12,
    ) {
        let mut words = Vec::new();
        if !kernel.is_empty() {
            words.push(PERF_CONTEXT_KERNEL);
            words.extend(&kernel);
        }
        words.push(PERF_CONTEXT_USER);
        words.extend(&user);
        let (mut stacks, mut keys) = (Stacks::new(1 << 20, most), SpaceKeys::default());
        stacks.intern(chain(&bytes(&words)), FORM, 5, &mut keys);
        let frames = frames(&mut stacks).pop().unwrap();
        let mut want: Vec<u64> = kernel.clone();
        want.extend(&user);
        let ends_with_mark = matches!(user[..], [.., before, 0] if before < PERF_CONTEXT_MAX);
        want.truncate(want.len() - usize::from(ends_with_mark));
        let is_cut = kernel.len() + user.len() >= most;
        prop_assert_eq!(matches!(frames.last(), Some(Frame::Truncated(StackCut::DepthLimit))), is_cut);
        prop_assert_eq!(frames.len(), want.len() + usize::from(is_cut));
        for (at, (frame, want)) in frames.iter().zip(&want).enumerate() {
            match frame {
                Frame::Kernel { addr, .. } => prop_assert!(at < kernel.len() && addr == want),
                Frame::User { addr, place, .. } => {
                    prop_assert!(at >= kernel.len() && addr == want);
                    prop_assert!(*addr < 1 << 57 || place.as_ref().err() == Some(&NO_ADDRESS));
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}

#[test]
fn a_forged_marker_is_no_address() {
    let words =
        [PERF_CONTEXT_KERNEL, 1 << 63, PERF_CONTEXT_USER, 0x40_1000, PERF_CONTEXT_KERNEL, 0xffff_ffff_8100_0000];
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    stacks.intern(chain(&bytes(&words)), FORM, 5, &mut keys);
    let frames = frames(&mut stacks).pop().unwrap();
    let place = |frame: &Frame| match frame {
        Frame::User { addr, place: Err(reason), .. } => (*addr, *reason),
        other => panic!("{other:?}"),
    };
    let user: Vec<(u64, UnnamedReason)> = frames[1..].iter().map(place).collect();
    let want = [(0x40_1000, "exited"), (PERF_CONTEXT_KERNEL, NO_ADDRESS), (0xffff_ffff_8100_0000, NO_ADDRESS)];
    assert_eq!(user, want);
}

#[test]
fn the_address_at_which_a_chain_leaves_the_process() {
    let cases: [(&[u64], Option<u64>); 6] = [
        (&[PERF_CONTEXT_USER, 7], Some(7)),
        (&[PERF_CONTEXT_KERNEL, 1, 2, PERF_CONTEXT_USER, 7, 8], Some(7)),
        (&[], None),
        (&[PERF_CONTEXT_USER], None),
        (&[PERF_CONTEXT_KERNEL, 1], None),
        (&[PERF_CONTEXT_USER, PERF_CONTEXT_KERNEL], None),
    ];
    for (words, want) in cases {
        assert_eq!(innermost_user(chain(&bytes(words))), want, "{words:?}");
    }
}

#[test]
fn equal_stacks_share_an_id() {
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    let kernel = bytes(&[PERF_CONTEXT_KERNEL, 1, 2]);
    let user = bytes(&[PERF_CONTEXT_KERNEL, 1, PERF_CONTEXT_USER, 2]);
    let first = stacks.intern(chain(&kernel), FORM, 5, &mut keys);
    assert_eq!(first, stacks.intern(chain(&kernel), FORM, 6, &mut keys), "kernel stacks are the same in every process");
    let in_5 = stacks.intern(chain(&user), FORM, 5, &mut keys);
    assert_ne!(in_5, stacks.intern(chain(&user), FORM, 6, &mut keys), "user stacks are not");
    assert_eq!(in_5, stacks.intern(chain(&user), FORM, 5, &mut keys));
    assert_eq!(frames(&mut stacks).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(stacks.intern(chain(&[]), FORM, 5, &mut keys), None);
}

#[test]
fn one_address_is_a_stack() {
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 1), SpaceKeys::default());
    let kernel = stacks.intern_address(7, false, Innermost::Executed, 5, &mut keys);
    assert_eq!(kernel, stacks.intern_address(7, false, Innermost::Executed, 6, &mut keys));
    assert_ne!(kernel, stacks.intern_address(7, true, Innermost::Executed, 5, &mut keys));
    let frames = frames(&mut stacks);
    assert!(matches!(frames[0][..], [Frame::Kernel { addr: 7, behind_call: false }]), "{frames:?}");
    assert!(matches!(frames[1][..], [Frame::User { addr: 7, .. }]), "{frames:?}");
}

#[test]
fn forgetting_makes_room() {
    let (mut stacks, mut keys) = (Stacks::new(2_000_000, 127), SpaceKeys::default());
    let mut intern =
        |stacks: &mut Stacks, n| stacks.intern(chain(&bytes(&[PERF_CONTEXT_KERNEL, n])), FORM, 5, &mut keys).unwrap();
    let held = intern(&mut stacks, 1);
    let (mut forgot, mut taken) = (0, 0);
    for n in 2..30_000 {
        intern(&mut stacks, n);
        if stacks.should_forget() {
            let news = stacks.forget([held].into_iter().collect());
            let [SymbolUpdate::StackCounts { stacks: some, .. }, SymbolUpdate::Forget { last, kept }] = &news[..]
            else {
                panic!()
            };
            assert!(*last > held && kept.contains(&held) && stacks.sizes.len() == 1);
            taken += some.iter().map(|(_, taken)| taken).sum::<u64>();
            forgot += 1;
        }
    }
    assert!(forgot > 5 && stacks.refused() == 0, "{forgot}");
    assert_eq!(intern(&mut stacks, 1), held, "it was kept");
    let SymbolUpdate::StackCounts { stacks: last, empty: 0 } = stacks.take_counts() else { panic!() };
    assert_eq!(taken + last.iter().map(|(_, taken)| taken).sum::<u64>(), 30_000, "each was counted once");
    assert_eq!(last.iter().find(|(id, _)| *id == held), Some(&(held, 1)), "since the last time");
    assert!(stacks.words.len() < 4 * 30_000, "the words of the others are gone");
}

/// Stacks that recur are kept as long as they do.
#[test]
fn what_is_frequent_is_not_forgotten() {
    let (mut stacks, mut keys) = (Stacks::new(16 << 20, 127), SpaceKeys::default());
    let mut intern =
        |stacks: &mut Stacks, n| stacks.intern(chain(&bytes(&[PERF_CONTEXT_KERNEL, n])), FORM, 5, &mut keys).unwrap();
    let look = |stacks: &mut Stacks| drop(stacks.forget(FxHashSet::default()));
    let often: Vec<StackId> = (0..100).map(|n| intern(&mut stacks, n)).collect();
    let once = intern(&mut stacks, 1000);
    (0..100).for_each(|n| assert_eq!(intern(&mut stacks, n), often[n as usize]));
    look(&mut stacks);
    assert_ne!(intern(&mut stacks, 1000), once, "it is forgotten");
    (0..50).for_each(|n| assert_eq!(intern(&mut stacks, n), often[n as usize]));
    look(&mut stacks);
    assert_ne!(intern(&mut stacks, 70), often[70], "it did not come again");
    assert_ne!(intern(&mut stacks, 20), often[20], "once is not often");
    // Frequent stacks have a limit.
    let (most, bytes) = (stacks.limit_bytes / FREQUENT_SHARE, stacks.bytes / stacks.sizes.len());
    for _ in 0..2 {
        (0..30_000).for_each(|n| _ = intern(&mut stacks, n));
    }
    look(&mut stacks);
    assert!(stacks.bytes <= most && stacks.bytes > most - 2 * bytes, "{} of {most} bytes", stacks.bytes);
}

#[test]
fn what_others_take_leaves_a_part() {
    const LIMIT: usize = 8 << 20;
    let whole = Budget::halved(2 * LIMIT as u64);
    let (mut stacks, mut spaces) = (Stacks::new(LIMIT, 127).within(&whole), SpaceKeys::default());
    let mut number = 0;
    let mut fill = |stacks: &mut Stacks| {
        let before = stacks.refused();
        while stacks.refused() == before {
            number += 1;
            stacks.intern_address(number, false, Innermost::Executed, 5, &mut spaces);
        }
        stacks.bytes
    };
    assert!(fill(&mut stacks) > LIMIT - 1024);
    assert_eq!(whole.room(&[ROOT]), LIMIT as u64);
    stacks.forget(FxHashSet::default());
    assert_eq!(whole.room(&[ROOT]), (2 * LIMIT - LIMIT / KEPT_SHARE) as u64, "given back");
    let of_others = whole.take((2 * LIMIT - LIMIT / KEPT_SHARE - SHARE_STEP_BYTES) as u64, &[ROOT]).unwrap();
    let (bytes, want) = (fill(&mut stacks), LIMIT / KEPT_SHARE + SHARE_STEP_BYTES);
    assert!((want - 1024..=want).contains(&bytes), "{bytes}");
    assert!(stacks.should_forget(), "though it has not grown as far as it may");
    drop(of_others);
    stacks.forget(FxHashSet::default());
    assert!(fill(&mut stacks) > LIMIT - 1024);
}

#[test]
fn a_full_table_counts() {
    let (mut stacks, mut keys) = (Stacks::new(2000, 127), SpaceKeys::default());
    for n in 0..100 {
        stacks.intern(chain(&bytes(&[PERF_CONTEXT_KERNEL, n])), FORM, 5, &mut keys);
    }
    assert!(stacks.refused() > 50 && stacks.refused() < 100, "{}", stacks.refused());
}

#[test]
fn a_cut_stack_says_so() {
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 3), SpaceKeys::default());
    for (depth, addresses, want) in [(0, 3, true), (0, 2, false), (2, 2, true), (7, 3, false)] {
        let words: Vec<u64> = [PERF_CONTEXT_KERNEL].into_iter().chain(depth..depth + addresses).collect();
        stacks.intern(chain(&bytes(&words)), form(depth as u16), 5, &mut keys);
        let cut = matches!(frames(&mut stacks)[0].last(), Some(Frame::Truncated(StackCut::DepthLimit)));
        assert_eq!(cut, want, "{addresses} of {depth}");
    }
}

#[test]
fn a_cut_stack_is_no_complete_one() {
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    let words = bytes(&[PERF_CONTEXT_KERNEL, 1, 2]);
    let ids = [2, 0, 2, 3].map(|depth| stacks.intern(chain(&words), form(depth), 5, &mut keys));
    assert!(ids[0] != ids[1] && ids[0] == ids[2] && ids[1] == ids[3], "{ids:?}");
    assert_eq!(frames(&mut stacks).iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn return_addresses_are_told_from_others() {
    let (mut stacks, mut keys) = (Stacks::new(1 << 20, 127), SpaceKeys::default());
    let both = bytes(&[PERF_CONTEXT_KERNEL, 1, 2, PERF_CONTEXT_USER, 3, 4]);
    let user = bytes(&[PERF_CONTEXT_USER, 3, 4]);
    let cases = [
        (&both, Innermost::Executed, [false, true, false, true].as_slice()),
        (&both, Innermost::BehindTracepoint, &[true, true, false, true]),
        (&both, Innermost::BehindCall, &[true, true, false, true]),
        (&user, Innermost::Executed, &[false, true]),
        (&user, Innermost::BehindTracepoint, &[false, true]),
        (&user, Innermost::BehindCall, &[true, true]),
    ];
    let mut ids = FxHashSet::default();
    for (words, innermost, want) in cases {
        ids.extend(stacks.intern(chain(words), ChainForm { innermost, ..FORM }, 5, &mut keys));
        let behind_call = |frame: &Frame| match frame {
            Frame::Kernel { behind_call, .. } | Frame::User { behind_call, .. } => *behind_call,
            _ => unreachable!("{frame:?}"),
        };
        let found: Vec<bool> = frames(&mut stacks)[0].iter().map(behind_call).collect();
        assert_eq!(found, want, "{innermost:?}");
    }
    assert_eq!(ids.len(), cases.len(), "the same words mean something else");
}

/// More distinct chains than the cache of recent stacks holds, many of them alike.
fn some_chain(number: u64) -> Vec<u8> {
    let ip = number / 4;
    match number % 4 {
        0 => bytes(&[PERF_CONTEXT_KERNEL, 1, 2, ip]),
        1 => bytes(&[PERF_CONTEXT_KERNEL, 1, ip, PERF_CONTEXT_USER, 2]),
        2 => bytes(&[PERF_CONTEXT_USER, ip]),
        _ => bytes(&[PERF_CONTEXT_USER, ip, 3, 4, 5, 6, 7]),
    }
}

fn taken(news: &SymbolUpdate) -> FxHashMap<StackId, u64> {
    match news {
        SymbolUpdate::StackCounts { stacks, .. } => stacks.iter().copied().collect(),
        _ => unreachable!("{news:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A stack keeps one id per address space until it is forgotten, and all its samples are counted.
    #[test]
    fn does_what_a_map_does(
        steps in prop::collection::vec((0..200_u8, 0_u64..2400, 1..4_i32, prop::sample::select(vec![0_u16, 2])), 0..4000)
    ) {
        let (mut stacks, mut keys) = (Stacks::new(16 << 20, 127), SpaceKeys::default());
        let (mut model, mut counts) = (FxHashMap::default(), FxHashMap::<StackId, u64>::default());
        let (mut last, mut unsure) = (None, FxHashSet::default());
        for (step, number, pid, depth) in steps {
            match step {
                0 => prop_assert_eq!(taken(&stacks.take_counts()), std::mem::take(&mut counts)),
                1 => {
                    let ids = || model.values().copied();
                    let kept: FxHashSet<StackId> = ids().filter(|id: &StackId| id.0.get().is_multiple_of(3)).collect();
                    unsure = ids().filter(|id| !kept.contains(id)).collect();
                    prop_assert_eq!(taken(&stacks.forget(kept)[0]), std::mem::take(&mut counts));
                }
                2 => drop(keys.apply(&Record::Comm { pid, tid: pid, comm: b"x", exec: true }, 1)),
                _ => {
                    let words = some_chain(number % if step < 100 { 40 } else { 2400 });
                    let chain = chain(&words);
                    let is_user = chain.iter().any(|word| word == PERF_CONTEXT_USER);
                    let addresses = chain.iter().filter(|word| *word < PERF_CONTEXT_MAX).count();
                    let key = (words.clone(), if is_user { keys.key(pid) } else { 0 }, depth == 2 && addresses >= 2);
                    let id = stacks.intern(chain, form(depth), pid, &mut keys).unwrap();
                    match model.insert(key, id) {
                        Some(known) if known == id => {
                            unsure.remove(&known);
                        }
                        known => {
                            prop_assert!(known.is_none_or(|known| unsure.contains(&known)));
                            prop_assert!(last < Some(id), "a new one");
                        }
                    }
                    last = last.max(Some(id));
                    *counts.entry(id).or_default() += 1;
                }
            }
        }
    }
}
