//! kmemleak on other kernels: a module keeps a known number of objects of each allocator.

#[macro_use]
mod common;
#[macro_use]
#[path = "common/lab.rs"]
mod lab;

use common::{Done, number};
use lab::{AMD64, Lab};
use serde_json::Value;

/// Objects and bytes in rows of the last interval with a function of the module; bytes are None if the table has none.
fn kept(done: &Done) -> (u64, Option<u64>) {
    let last = done.total("intervals");
    let of_module = |row: &&Value| {
        let frames = row["stack"].as_array().into_iter().flatten();
        let symbols: Vec<&str> = frames.filter_map(|frame| frame["symbol"].as_str()).collect();
        row["interval"] == last && symbols.contains(&"ppfault_keep")
    };
    let rows = done.of_type("row");
    let rows: Vec<&Value> = rows.iter().filter(of_module).collect();
    let bytes: Option<u64> = rows.iter().map(|row| row["bytes"].as_u64()).sum();
    (rows.iter().map(|row| number(row, "allocs")).sum(), bytes.filter(|_| !rows.is_empty()))
}

/// Arguments of perf-prof, a fault, and the objects and bytes expected.
type Leak<'a> = (&'a str, &'a str, (u64, Option<u64>));

/// One guest: for each case, the outstanding objects are checked while the module keeps them, and after it frees them.
#[track_caller]
fn check(series: &str, before: &str, cases: &[Leak<'_>]) {
    let lab = Lab::new(series);
    let version = lab.version();
    // With a warm cache, the module's bookkeeping for each object needs no new page.
    let mut script = format!("{before}\necho kmalloc 500 8 >/proc/ppfault; echo free >/proc/ppfault\n");
    for (index, (options, fault, _)) in cases.iter().enumerate() {
        script += &format!(
            "
            watching kept{index} kmemleak {options} -g
            watching freed{index} kmemleak {options} -g
            echo {fault} >/proc/ppfault
            stop kept{index}
            echo free >/proc/ppfault
            stop freed{index}"
        );
    }
    let output = lab.ppfault().run(&script);
    for (index, (options, _, want)) in cases.iter().enumerate() {
        let done = output.results(&format!("kept{index}")).code(0);
        println!("{version}: {options}: {:?}", kept(&done));
        assert_eq!(kept(&done), *want, "{version}: {options}: {done:#?}");
        assert_eq!((done.total("lost"), done.total("malformed")), (0, 0), "{version}: {options}");
        let done = output.results(&format!("freed{index}")).code(0);
        assert_eq!(kept(&done).0, 0, "{version}: {options}: {done:#?}");
    }
}

#[test]
fn by_preset() {
    need_lab!();
    for series in AMD64 {
        let cases = [
            ("page -m 4M", "pages 100 2", (100, Some(100 * 4 * 4096))),
            // The size on two CPUs, and 128 bytes of pointers to memory cgroups.
            ("percpu -m 4M", "percpu 300 64", (300, Some(300 * (2 * 64 + 128)))),
            // The module keeps 32 bytes of its own for each object.
            ("slab -m 16M", "kmalloc 500 1000", (1000, Some(500 * (1024 + 32)))),
            // These 32 bytes are from kmalloc, too.
            ("--alloc kmem:kmalloc --free kmem:kfree -m 16M", "kmalloc 5 1000", (10, Some(5 * (1024 + 32)))),
        ];
        check(series, "", &cases);
    }
}

/// Functions of a kernel that allocate: each is called once for each allocation, and returns its address.
struct Functions {
    series: &'static str,
    kmalloc: &'static str,
    pages: &'static str,
    percpu: &'static str,
    vmalloc: &'static str,
}

const FUNCTIONS: [Functions; 2] = [
    Functions {
        series: "6.1",
        kmalloc: "__kmalloc",
        pages: "__alloc_pages",
        percpu: "pcpu_alloc",
        vmalloc: "__vmalloc_node_range",
    },
    Functions {
        series: "6.12",
        kmalloc: "__kmalloc_noprof",
        pages: "__alloc_pages_noprof",
        percpu: "pcpu_alloc_noprof",
        vmalloc: "__vmalloc_node_range_noprof",
    },
];

/// Probes of the run: the size comes from the function's call, the address from its return.
fn probes(alloc: &str, size: &str, free: &str, ring: &str) -> String {
    format!(
        "--alloc \"kprobe:{alloc}//{size}/,kretprobe:{alloc}//args='ptr=\\$retval'/\" \
         --free \"kprobe:{free}//args='ptr=\\$arg1'/\" -m {ring}"
    )
}

/// With kprobes defined by the user, with a ring that holds all events; and with probes of the run.
#[test]
fn by_kprobes() {
    need_lab!();
    const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
    for Functions { series, kmalloc, pages, percpu, vmalloc } in FUNCTIONS {
        let before = format!(
            "echo 'r:alloc_percpu {percpu} ptr=$retval' >>{EVENTS}
             echo 'p:free_percpu free_percpu ptr=%di' >>{EVENTS}
             echo 'r:alloc_virtual {vmalloc} ptr=$retval' >>{EVENTS}
             echo 'p:free_virtual vfree ptr=%di' >>{EVENTS}"
        );
        let size = "args='size=\\$arg1'";
        let of_percpu = probes(percpu, size, "free_percpu", "4M");
        let of_vmalloc = probes(vmalloc, size, "vfree", "4M");
        // The module's own 32 bytes have a constant size, and come from another function.
        let of_kmalloc = probes(kmalloc, size, "kfree", "16M");
        let of_pages = probes(pages, "args='order=\\$arg2'/size=4096<<order", "__free_pages", "4M");
        let cases = [
            ("--alloc kprobes:alloc_percpu --free kprobes:free_percpu -m 8", "percpu 100 64", (100, None)),
            (&of_percpu, "percpu 300 64", (300, Some(300 * 64))),
            ("--alloc kprobes:alloc_virtual --free kprobes:free_virtual -m 8", "vmalloc 40 8192", (40, None)),
            (&of_vmalloc, "vmalloc 50 8192", (50, Some(50 * 8192))),
            (&of_kmalloc, "kmalloc 5 1000", (5, Some(5 * 1000))),
            (&of_pages, "pages 100 2", (100, Some(100 * 4 * 4096))),
        ];
        check(series, &before, &cases);
    }
}

#[test]
fn ranges_of_virtual_memory() {
    need_lab!();
    // A page lies behind each range as a guard.
    check("6.12", "", &[("vmalloc -m 4M", "vmalloc 50 8192", (50, Some(50 * 3 * 4096)))]);
    let output = Lab::new("6.1").run("prof refused kmemleak vmalloc --for 1ms");
    output.results("refused").code(1).says(&["Linux 6.3", "--alloc and --free"]);
}
