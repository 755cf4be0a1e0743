//! Sets of CPUs in a filter, `CPUS{0-3,8}`.

/// Limit of CPU numbers, above that of any kernel (`CONFIG_NR_CPUS` is at most 8192).
const MAX_CPUS: u32 = 1 << 14;

const WORDS: usize = MAX_CPUS as usize / 64;

/// A set of CPUs: one bit for each, so that its size does not depend on the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet(Box<[u64; WORDS]>);

impl CpuSet {
    /// Parses `0-3,8`; also with a stride, `0-31:2/8`, as the kernel does. None: any other text, or an empty set.
    pub fn parse(text: &str) -> Option<CpuSet> {
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|cpu| *cpu < MAX_CPUS);
        let mut set = CpuSet(Box::new([0; WORDS]));
        for part in text.split(',').map(str::trim) {
            let (range, group) = match part.split_once(':') {
                Some((range, group)) => (range, Some(group.split_once('/')?)),
                None => (part, None),
            };
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high) = (number(low)?, number(high)?);
            let (used, size) = match group {
                None => (1, 1),
                Some((used, size)) => (number(used)?, number(size)?),
            };
            if low > high || used == 0 || used > size {
                return None;
            }
            (low..=high).filter(|cpu| (cpu - low) % size < used).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }

    fn insert(&mut self, cpu: u32) {
        if let Some(word) = self.0.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.get(cpu as usize / 64).is_some_and(|word| word & 1 << (cpu % 64) != 0)
    }

    fn is_only(&self, cpu: u32) -> bool {
        self.contains(cpu) && self.0.iter().map(|word| word.count_ones()).sum::<u32>() == 1
    }

    /// `cpu == set`: only a set of a single CPU can equal a CPU number.
    pub fn equals_cpu(&self, cpu: Option<u32>) -> bool {
        cpu.is_some_and(|cpu| self.is_only(cpu))
    }

    /// Whether a mask, in native `unsigned long` words, has a CPU of the set.
    pub fn intersects(&self, mask: &[u8]) -> bool {
        (0..bits(mask)).any(|cpu| bit(mask, cpu) && self.contains(cpu))
    }

    /// Whether a mask is exactly this set.
    pub fn equals_mask(&self, mask: &[u8]) -> bool {
        let end = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| (last as u32 + 1) * 64);
        (0..bits(mask).max(end)).all(|cpu| bit(mask, cpu) == self.contains(cpu))
    }
}

fn bits(mask: &[u8]) -> u32 {
    (mask.len() as u32).saturating_mul(8).min(MAX_CPUS)
}

fn bit(mask: &[u8], cpu: u32) -> bool {
    let byte = cpu as usize / 8;
    let byte = if cfg!(target_endian = "big") { byte ^ 7 } else { byte };
    mask.get(byte).is_some_and(|bits| bits & (1 << (cpu % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cpu_sets() {
        let cases: [(&str, Option<&[u32]>); 12] = [
            ("0", Some(&[0])),
            ("0-2,5", Some(&[0, 1, 2, 5])),
            (" 1 - 2 ", Some(&[1, 2])),
            ("0-7:2/4", Some(&[0, 1, 4, 5])),
            ("2-0", None),
            ("", None),
            ("0,", None),
            ("x", None),
            ("99999", None),
            ("0-4:0/2", None),
            ("0-4:3/2", None),
            ("0-4:2", None),
        ];
        for (text, want) in cases {
            let got = CpuSet::parse(text).map(|set| (0..64).filter(|&cpu| set.contains(cpu)).collect::<Vec<_>>());
            assert_eq!(got.as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn the_size_does_not_depend_on_the_text() {
        let many = CpuSet::parse(&vec!["0-16383:1/2"; 1000].join(",")).unwrap();
        assert!(many == CpuSet::parse("0-16383:1/2").unwrap() && many.contains(16382) && !many.contains(16383));
        assert!(size_of_val(&*many.0) <= 2048 && !many.contains(u32::MAX));
    }

    #[test]
    fn compares_masks() {
        let set = CpuSet::parse("0-1,9").unwrap();
        let mask = |bits: u64| bits.to_ne_bytes();
        assert!(set.equals_mask(&mask(0x203)));
        assert!(!set.equals_mask(&mask(0x3)));
        assert!(!set.equals_mask(&[3]));
        assert!(set.intersects(&mask(0x200)));
        assert!(!set.intersects(&mask(0x100)));
        assert!(CpuSet::parse("3").unwrap().equals_cpu(Some(3)));
        assert!(!set.equals_cpu(Some(1)));
    }
}
