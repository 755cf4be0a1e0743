//! Which CPUs share a core, caches, and a node of memory.

use std::fs;

use crate::host::{Host, parse_cpus};

/// What two CPUs share: the smallest shared unit, in the order of distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuDistance {
    /// The machine does not say what the CPUs share.
    Unknown,
    Core,
    L2,
    /// The last level of cache.
    Llc,
    Node,
    /// No shared cache and no shared node.
    Apart,
}

/// The places of all CPUs.
#[derive(Debug, Default)]
pub struct Topology {
    by_cpu: Vec<Option<CpuPlace>>,
}

/// The units that a CPU shares with others. A unit is identified by the lowest CPU number that shares it.
#[derive(Clone, Copy, Debug, Default)]
struct CpuPlace {
    core: Option<u32>,
    l2: Option<u32>,
    llc: Option<u32>,
    /// The number of the node; machines with one node may have none.
    node: Option<u32>,
}

/// Limit of the caches that are read for a CPU: more than any CPU has.
const MAX_CACHES: u32 = 16;

impl Topology {
    /// Reads the topology of these CPUs below `host`.
    pub fn read(host: &Host, cpus: &[u32]) -> Topology {
        let mut topology = Topology::default();
        for &cpu in cpus {
            let index = cpu as usize;
            topology.by_cpu.resize(topology.by_cpu.len().max(index + 1), None);
            topology.by_cpu[index] = Some(CpuPlace::read(host, cpu));
        }
        topology
    }

    /// The machine says which CPUs share caches.
    pub fn has_caches(&self) -> bool {
        self.by_cpu.iter().flatten().any(|place| place.llc.is_some())
    }

    pub fn distance(&self, one: u32, other: u32) -> CpuDistance {
        let place = |cpu: u32| self.by_cpu.get(cpu as usize).copied().flatten().filter(|place| place.llc.is_some());
        let (Some(one), Some(other)) = (place(one), place(other)) else { return CpuDistance::Unknown };
        let shared = |of: fn(&CpuPlace) -> Option<u32>| of(&one).is_some() && of(&one) == of(&other);
        match () {
            () if shared(|place| place.core) => CpuDistance::Core,
            () if shared(|place| place.l2) => CpuDistance::L2,
            () if shared(|place| place.llc) => CpuDistance::Llc,
            () if one.node == other.node => CpuDistance::Node,
            () => CpuDistance::Apart,
        }
    }
}

impl CpuPlace {
    fn read(host: &Host, cpu: u32) -> CpuPlace {
        let dir = host.cpu.join(format!("cpu{cpu}"));
        let lowest = |path: &str| {
            let text = fs::read_to_string(dir.join(path)).ok()?;
            parse_cpus(text.trim()).ok()?.first().copied()
        };
        let mut place = CpuPlace { core: lowest("topology/thread_siblings_list"), ..CpuPlace::default() };
        let mut last_level = 0;
        for index in 0..MAX_CACHES {
            let read = |name: &str| fs::read_to_string(dir.join(format!("cache/index{index}/{name}"))).ok();
            let Some(level) = read("level").and_then(|level| level.trim().parse::<u32>().ok()) else { break };
            let shared = lowest(&format!("cache/index{index}/shared_cpu_list"));
            if level == 2 {
                place.l2 = shared;
            }
            if level >= last_level {
                (last_level, place.llc) = (level, shared);
            }
        }
        let nodes = fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut nodes = nodes.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok());
        place.node = nodes.next();
        place
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A CPU with the lists of its core, its caches of level 1 to 3, and its node.
    fn add_cpu(root: &Path, cpu: u32, core: &str, caches: &[&str], node: u32) {
        let dir = root.join(format!("cpu{cpu}"));
        fs::create_dir_all(dir.join("topology")).unwrap();
        fs::write(dir.join("topology/thread_siblings_list"), core).unwrap();
        fs::create_dir(dir.join(format!("node{node}"))).unwrap();
        for (index, shared) in caches.iter().enumerate() {
            let cache = dir.join(format!("cache/index{index}"));
            fs::create_dir_all(&cache).unwrap();
            fs::write(cache.join("level"), format!("{}\n", index + 1)).unwrap();
            fs::write(cache.join("shared_cpu_list"), format!("{shared}\n")).unwrap();
        }
    }

    #[test]
    fn cpus_share_what_is_nearest() {
        let dir = tempfile::tempdir().unwrap();
        add_cpu(dir.path(), 0, "0,4\n", &["0,4", "0,1,4", "0-2,4"], 0);
        add_cpu(dir.path(), 4, "0,4\n", &["0,4", "0,1,4", "0-2,4"], 0);
        add_cpu(dir.path(), 1, "1\n", &["1", "0,1,4", "0-2,4"], 0);
        add_cpu(dir.path(), 2, "2\n", &["2", "2", "0-2,4"], 0);
        add_cpu(dir.path(), 3, "3\n", &["3", "3", "3"], 0);
        add_cpu(dir.path(), 5, "5\n", &["5", "5", "5"], 1);
        add_cpu(dir.path(), 6, "6\n", &[], 1);
        let host = Host { cpu: dir.path().to_owned(), ..Host::default() };
        let topology = Topology::read(&host, &[0, 1, 2, 3, 4, 5, 6]);
        let distances = [4, 1, 2, 3, 5, 6, 7, u32::MAX].map(|other| topology.distance(0, other));
        use CpuDistance::{Apart, Core, L2, Llc, Node, Unknown};
        assert_eq!(distances, [Core, L2, Llc, Node, Apart, Unknown, Unknown, Unknown]);
        assert!(topology.has_caches() && !Topology::read(&host, &[6]).has_caches());
    }
}
