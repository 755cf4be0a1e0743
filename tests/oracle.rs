//! Our text of an event against the kernel's own: an instance of tracefs and `trace` watch the same load, and what we print
//! must be what the kernel prints.
//!
//! Known exceptions: those of `common/kernel_text.rs`, and `syscalls:*`, for which the kernel prints a form of its own.
//!
//! Not among the events: `writeback:writeback_single_inode*`, which show an age at the moment of printing;
//! `fib:fib_table_lookup` and `fib6`'s, of which the kernel leaves bytes unset, so that two records of one event differ.

#[macro_use]
mod common;
#[path = "common/kernel_text.rs"]
mod kernel_text;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{GUARD, Load, example, run, start, stay_visible};
use kernel_text::Texts;
use perf_prof::sys::mount::{PrivateTracefs, private_tracefs};

/// Fewer would prove little.
const LEAST_EVENTS: usize = 25;

/// What the load does itself.
const OF_THE_LOAD: &str = "
    block:block_bio_queue block:block_dirty_buffer block:block_getrq block:block_io_done block:block_io_start
    block:block_plug block:block_rq_complete block:block_rq_insert block:block_rq_issue block:block_touch_buffer
    block:block_unplug capability:cap_capable cgroup:cgroup_mkdir cgroup:cgroup_rmdir exceptions:page_fault_user
    ext4:ext4_allocate_blocks ext4:ext4_allocate_inode ext4:ext4_da_write_begin ext4:ext4_da_write_end
    ext4:ext4_drop_inode ext4:ext4_es_insert_extent ext4:ext4_es_lookup_extent_exit ext4:ext4_evict_inode
    ext4:ext4_ext_map_blocks_exit ext4:ext4_free_blocks ext4:ext4_journal_start_inode ext4:ext4_mark_inode_dirty
    ext4:ext4_mballoc_alloc ext4:ext4_request_blocks ext4:ext4_sync_file_enter ext4:ext4_truncate_enter
    ext4:ext4_unlink_enter ext4:ext4_writepages ext4:ext4_writepages_result
    filelock:flock_lock_inode filelock:locks_get_lock_context filemap:mm_filemap_add_to_page_cache
    filemap:mm_filemap_delete_from_page_cache filemap:mm_filemap_fault icmp:icmp_send irq:irq_handler_entry
    irq:irq_handler_exit irq:softirq_entry irq:softirq_exit irq:softirq_raise kmem:kfree kmem:kmalloc
    kmem:kmem_cache_alloc kmem:kmem_cache_free kmem:mm_page_alloc kmem:mm_page_free kmem:rss_stat maple_tree:ma_write
    mmap:exit_mmap mmap:vm_unmapped_area mmap_lock:mmap_lock_acquire_returned napi:napi_poll net:net_dev_queue
    net:net_dev_start_xmit net:net_dev_xmit net:netif_receive_skb net:netif_rx net:netif_rx_entry
    oom:oom_score_adj_update pagemap:mm_lru_insertion percpu:percpu_alloc_percpu raw_syscalls:sys_enter
    raw_syscalls:sys_exit rcu:rcu_utilization sched:sched_prepare_exec sched:sched_process_exec
    sched:sched_process_exit sched:sched_process_fork sched:sched_process_wait
    sched:sched_switch sched:sched_wakeup sched:sched_wakeup_new sched:sched_waking signal:signal_deliver
    signal:signal_generate skb:consume_skb skb:kfree_skb skb:skb_copy_datagram_iovec sock:inet_sock_set_state
    sock:sk_data_ready sock:sock_recv_length sock:sock_send_length task:task_newtask task:task_rename
    tcp:tcp_destroy_sock tcp:tcp_probe tcp:tcp_rcv_space_adjust timer:hrtimer_cancel timer:hrtimer_init
    timer:hrtimer_setup timer:hrtimer_start timer:itimer_state timer:timer_cancel timer:timer_init timer:timer_start
    tlb:tlb_flush workqueue:workqueue_activate_work workqueue:workqueue_queue_work
    writeback:global_dirty_state writeback:sb_mark_inode_writeback writeback:writeback_dirty_folio
    writeback:writeback_dirty_inode writeback:writeback_mark_inode_dirty writeback:writeback_write_inode
    x86_fpu:x86_fpu_regs_activated";

/// What comes of it in kernel threads, interrupts and idle tasks.
const OF_THE_CPU: &str = "
    block:block_rq_complete block:block_rq_issue ipi:ipi_raise irq_vectors:local_timer_entry
    irq_vectors:reschedule_entry jbd2:jbd2_commit_flushing jbd2:jbd2_end_commit jbd2:jbd2_start_commit
    power:cpu_idle rcu:rcu_utilization sched:sched_migrate_task sched:sched_stat_runtime sched:sched_switch timer:hrtimer_expire_entry
    timer:hrtimer_expire_exit timer:tick_stop timer:timer_expire_entry timer:timer_expire_exit
    workqueue:workqueue_execute_end workqueue:workqueue_execute_start writeback:writeback_exec
    writeback:writeback_pages_written writeback:writeback_queue writeback:writeback_start writeback:writeback_written";

/// An instance of tracefs: buffers of its own, gone with this.
struct Instance {
    path: PathBuf,
    _tracefs: PrivateTracefs,
}

impl Instance {
    fn new() -> Instance {
        let tracefs = private_tracefs().expect("tracefs");
        let path = tracefs.root().join("instances").join(format!("perf-prof-oracle-{}", std::process::id()));
        fs::create_dir(&path).expect("an instance");
        let instance = Instance { path, _tracefs: tracefs };
        instance.set("options/hash-ptr", "0");
        instance.set("buffer_size_kb", "16384");
        instance
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.path.join(file), text).unwrap_or_else(|err| panic!("{file}: {err}"));
    }

    fn enable(&self, events: &[&str]) {
        for event in events {
            self.set(&format!("events/{}/enable", event.replace(':', "/")), "1");
        }
    }

    /// The texts by event and CPU, in order, as they are compared.
    fn texts(&self) -> Texts {
        for cpu in fs::read_dir(self.path.join("per_cpu")).expect("per_cpu").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("stats");
            assert!(stats.lines().any(|line| line == "overrun: 0"), "the instance lost events: {stats}");
        }
        kernel_text::texts(&fs::read(self.path.join("trace")).expect("trace"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.path); // removes what is in it, too
    }
}

/// Runs `rounds` of the load under both, and compares. Returns the events that were compared.
fn compare(wanted: &str, rounds: usize, set_up: impl Fn(&Instance, &Load) -> Vec<String>) -> BTreeSet<String> {
    stay_visible();
    let known = run(&["list"]).code(0).out;
    let events: Vec<&str> = wanted.split_whitespace().filter(|event| known.iter().any(|name| name == event)).collect();
    let mut load = Load::start(Command::new(example("many_events")));
    let instance = Instance::new();
    let narrow = set_up(&instance, &load);
    instance.enable(&events);

    let dir = tempfile::tempdir().expect("a directory");
    let output = dir.path().join("events.json");
    let mut args = vec!["trace", "--json", "-m", "8M", "-o", output.to_str().expect("UTF-8")];
    let list = events.join(",");
    args.extend(["-e", &list]);
    args.extend(narrow.iter().map(String::as_str));
    let ours = start(&args);
    let mut round = || {
        load.tell("go");
        assert_eq!(load.says(), "done");
    };
    println!("events on");
    let until = Instant::now() + GUARD;
    while !has_event(&output) {
        round(); // not on yet, or not written yet
        assert!(Instant::now() < until, "nothing traced");
        std::thread::sleep(Duration::from_millis(10));
    }
    (0..rounds).for_each(|_| round());
    ours.interrupt().code(0);
    instance.set("tracing_on", "0");
    let theirs = instance.texts();
    drop(instance);
    kernel_text::compare(&fs::read_to_string(&output).expect("our events"), theirs)
}

fn has_event(output: &Path) -> bool {
    fs::metadata(output).is_ok_and(|file| file.len() > 0) // the first line is one
}

#[test]
fn our_text_is_the_kernels() {
    need_events!();
    let mut compared = compare(OF_THE_LOAD, 2, |instance, load| {
        let pid = load.pid().to_string();
        instance.set("options/event-fork", "1");
        instance.set("set_event_pid", &pid);
        vec!["-p".to_owned(), pid]
    });
    let of_the_load = compared.len();
    compared.append(&mut compare(OF_THE_CPU, 5, |_, _| Vec::new()));
    println!("{} different events, {of_the_load} of them of the load itself: {compared:?}", compared.len());
    assert!(compared.len() >= LEAST_EVENTS, "only {compared:?}");
}
