//! Probes on other kernels: in the kernel, which the test machine may not allow, and on arm64.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{Done, number};
use lab::{AMD64, Lab, Output};
use serde_json::Value;

/// Shell functions: one stores the defined probes as /out/NAME; one checks that those of the run are gone, which may be
/// somewhat later than the prompt is back.
const FUNCTIONS: &str = r#"
tracing=/sys/kernel/tracing
probes() { cat $tracing/kprobe_events $tracing/uprobe_events >/out/$1; }
gone() { ! grep -q perf_prof_ $tracing/kprobe_events $tracing/uprobe_events; }
"#;

fn run(lab: Lab, script: &str) -> Output {
    lab.example("calls").run(&format!("{FUNCTIONS}\n{script}"))
}

/// The fields of an event's occurrences.
fn fields(done: &Done, name: &str) -> Vec<Value> {
    let events = done.of_type("event").into_iter().filter(|event| event["event"] == name);
    events.map(|event| event["fields"].clone()).collect()
}

const CALLS: &str = r#"
prof opens trace --json -e 'kprobe:do_sys_openat2/path == "/proc/version"/args="dfd=$arg1:s32 path=$arg2:ustring"/' \
    -e 'kretprobe:do_sys_openat2/ret == -2/args="ret=$retval:s32"/' \
    -- sh -c 'i=0; while [ $i -lt 50 ]; do true </proc/version; true </nonexistent; i=$((i + 1)); done 2>/dev/null'
await gone
probes after-opens
prof reads trace --json -e 'kprobe:vfs_read/count == 4097/args="count=$arg3:u64"/' \
    -e 'kretprobe:vfs_read/ret == 4097/args="ret=$retval:s64"/' -- dd if=/dev/zero of=/dev/null bs=4097 count=25
await gone
probes after-reads
prof user trace --json -e 'uprobe:calls_add@"/guest/calls"//args="a=$arg1:u64 b=$arg2:u64"/' \
    -e 'uretprobe:calls_add//args="sum=$retval:u64"/' \
    -e 'uprobe:calls_text//args="text=$arg1:string"/' \
    -e 'uprobe:calls_many//args="$arg1:u64 $arg6:u64 $arg7:u64 $arg8:u64 $arg9:u64 $arg10:u64"/' -- calls 100
await gone
probes after-user
"#;

fn calls(lab: Lab) {
    let version = lab.version();
    let output = run(lab, CALLS);
    let opens = output.results("opens").code(0);
    let paths = fields(&opens, "kprobe:do_sys_openat2");
    let is_right = |fields: &Value| fields["dfd"] == -100 && fields["path"] == "/proc/version";
    assert!(paths.len() == 50 && paths.iter().all(is_right), "{version}: {opens:#?}");
    assert_eq!(fields(&opens, "kretprobe:do_sys_openat2").len(), 50, "{version}: {opens:#?}");
    let reads = output.results("reads").code(0);
    for name in ["kprobe:vfs_read", "kretprobe:vfs_read"] {
        assert_eq!(fields(&reads, name).len(), 25, "{version}: {reads:#?}");
    }
    let user = output.results("user").code(0);
    let [add, sums, texts, many] =
        ["uprobe:calls_add@\"/guest/calls\"", "uretprobe:calls_add", "uprobe:calls_text", "uprobe:calls_many"]
            .map(|name| fields(&user, name));
    for of in [&add, &sums, &texts, &many] {
        assert_eq!(of.len(), 100, "{version}: {user:#?}");
    }
    for i in 0..100 {
        let at = i as usize;
        assert_eq!((number(&add[at], "a"), number(&add[at], "b"), number(&sums[at], "sum")), (i, 2 * i, 3 * i));
        assert_eq!(texts[at]["text"], format!("word-{i}"));
        let values = ["arg1", "arg6", "arg7", "arg8", "arg9", "arg10"].map(|name| number(&many[at], name));
        assert_eq!(values, [i, 5, 6 * i, 7, 8, 9 * i], "{version}");
    }
    for moment in ["after-opens", "after-reads", "after-user"] {
        assert_eq!(output.file(moment), "", "{version}: {moment}");
    }
}

#[test]
fn calls_and_returns_in_the_kernel() {
    need_lab!();
    AMD64.into_iter().for_each(|series| calls(Lab::new(series)));
}

#[test]
fn calls_and_returns_on_arm64() {
    need_lab!();
    calls(Lab::arm64("6.12"));
}

const CHILDREN: &str = r#"
prof own trace --json -e 'uprobe:calls_add@"/guest/calls"' -- sisters calls 10
sleep 1000 | calls 1 --wait >/tmp/other &
await grep -q ready /tmp/other
prof shared trace --json -e 'uprobe:calls_add@"/guest/calls"' -- sisters calls 10
"#;

/// 6.1 swaps the events of two children whatever is open beside them.
#[test]
fn children_are_seen_or_marked() {
    need_lab!();
    for (series, verdict, in_doubt) in [("6.1", "lower_bound", 2), ("6.12", "exact", 0)] {
        let output = run(Lab::new(series).example("sisters"), CHILDREN);
        let own = output.results("own").code(0);
        assert_eq!(own.of_type("event").len(), 10, "{series}: {own:#?}");
        assert_eq!((&own.of_type("interval")[0]["verdict"], own.total("children_in_doubt")), (&"exact".into(), 0));
        let shared = output.results("shared").code(0);
        let seen = (&shared.of_type("interval")[0]["verdict"], shared.total("children_in_doubt"));
        assert_eq!(seen, (&verdict.into(), in_doubt), "{series}: {shared:#?}");
        assert!(in_doubt > 0 || shared.of_type("event").len() == 10, "{series}: {shared:#?}");
    }
}

const LIVES: &str = r#"
echo 'p:kprobes/mine vfs_write count=$arg3:u64' >>$tracing/kprobe_events
prof mine trace --json -e 'kprobes:mine/count == 333/' -- sh -c 'dd if=/dev/zero of=/dev/null bs=333 count=9 2>/dev/null'
started killed trace -e 'kprobe:vfs_read,kretprobe:vfs_read'
await grep -q vfs_read_1 $tracing/kprobe_events
kill -9 $(cat /tmp/killed.pid)
probes after-kill
swept() {
    perf-prof trace -e kprobe:vfs_write --for 1ms >/dev/null 2>&1
    ! grep -q vfs_read_ $tracing/kprobe_events
}
await swept
await gone
probes after-sweep
watching living trace -e 'kprobe:vfs_read'
probes while-living
stop living
await gone
probes after-signal
prof wrong trace -e 'kprobe:vfs_read,kprobe:no_such_function' --for 1ms
await gone
probes after-error
"#;

#[test]
fn nothing_is_left_in_the_kernel() {
    need_lab!();
    for series in AMD64 {
        let output = run(Lab::new(series), LIVES);
        assert_eq!(fields(&output.results("mine").code(0), "kprobes:mine").len(), 9, "{series}");
        let mine = |text: &str| text.lines().count() == 1 && text.contains("kprobes/mine");
        assert_eq!(output.file("after-kill").lines().count(), 3, "{series}: nobody was there to remove them");
        assert_eq!(output.file("while-living").lines().count(), 2, "{series}");
        for moment in ["after-sweep", "after-signal", "after-error"] {
            let text = output.file(moment);
            assert!(mine(&text), "{series}: {moment}: {text}");
        }
        output.results("living").code(0);
        output.results("wrong").code(1).says(&["the kernel has no function `no_such_function`"]);
    }
}

const REFUSED: &str = r#"
prof near trace -e kprobe:do_sys_openat3
prof black trace -e kprobe:notify_die
prof inside trace -e kprobe:do_sys_openat2+1
prof behind trace -e kprobe:do_sys_openat2+0x50000
prof symbol trace -e 'kprobe:vfs_read//args="a=@no_such_symbol"/'
prof several trace -e kprobe:t_next
prof works doctor
"#;

#[test]
fn one_sentence_each() {
    need_lab!();
    let cases: [(&str, &[&str]); 6] = [
        ("near", &["the kernel has no function `do_sys_openat3`", "did you mean do_sys_openat2"]),
        ("black", &["does not let `notify_die` be probed", "blacklist"]),
        ("inside", &["no instruction starts at `do_sys_openat2+0x1`"]),
        ("behind", &["is behind its end"]),
        ("symbol", &["no symbol of the name behind an `@`"]),
        ("several", &["functions `t_next`, and probes none of several"]),
    ];
    for series in AMD64 {
        let output = run(Lab::new(series), REFUSED);
        for (name, words) in cases {
            output.results(name).code(1).says(words);
        }
        let doctor = output.results("works");
        let says = |what: &str| doctor.out.iter().any(|line| line.trim().starts_with(what) && line.ends_with(" yes"));
        assert!(says("kprobes") && says("uprobes"), "{series}: {doctor:#?}");
    }
}
