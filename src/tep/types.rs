//! C type names as they stand in formats and `print fmt` casts: how many bytes, and signed or not.

/// An integer type of the traced kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntType {
    pub size: usize,
    pub signed: bool,
}

impl IntType {
    pub const INT: IntType = IntType { size: 4, signed: true };
    pub const U64: IntType = IntType { size: 8, signed: false };

    pub const fn unsigned(size: usize) -> Self {
        IntType { size, signed: false }
    }

    pub const fn signed(size: usize) -> Self {
        IntType { size, signed: true }
    }

    /// `bits` cut to this type and extended to 64 bits again, as a C conversion does.
    #[inline]
    pub fn convert(self, bits: u64) -> u64 {
        let drop = 64 - 8 * self.size.clamp(1, 8) as u32;
        if self.signed { ((bits << drop) as i64 >> drop) as u64 } else { bits << drop >> drop }
    }
}

/// The radix of a C literal without its suffix, and its digits.
pub fn radix_and_digits(literal: &str) -> (u32, &str) {
    match literal.strip_prefix("0x").or_else(|| literal.strip_prefix("0X")) {
        Some(hex) => (16, hex),
        None if literal.len() > 1 && literal.starts_with('0') => (8, literal),
        None => (10, literal),
    }
}

/// True for a word that changes neither size nor sign.
pub fn is_qualifier(word: &str) -> bool {
    matches!(word, "const" | "volatile" | "__user" | "__rcu" | "__iomem" | "__percpu" | "__force" | "restrict")
}

/// True for a word of which types of several words, such as `unsigned long int`, are made.
pub fn is_basic(word: &str) -> bool {
    matches!(word, "unsigned" | "signed" | "__signed__" | "long" | "short" | "int" | "char" | "_Bool" | "bool" | "void")
}

/// The integer type written as `words`. `long` is the size of a C `long`: 4 on a 32-bit kernel.
pub fn from_words<'a>(words: impl Iterator<Item = &'a str>, long: usize) -> Option<IntType> {
    let (mut unsigned, mut signed, mut longs, mut base) = (false, false, 0u32, None);
    for word in words.filter(|word| !is_qualifier(word)) {
        match word {
            "unsigned" => unsigned = true,
            "signed" | "__signed__" => signed = true,
            "long" => longs = longs.saturating_add(1),
            "int" if base.is_none() || base == Some("short") => base = base.or(Some("int")),
            "short" => base = Some("short"),
            "enum" => base = Some("enum"),
            _ if base == Some("enum") => {} // the tag of the enum
            word if base.is_none() => base = Some(word),
            _ => return None,
        }
    }
    let made_of_words = matches!(base, None | Some("int" | "short" | "char"));
    if (unsigned || signed || longs > 0) && !made_of_words {
        return None;
    }
    let size = match (base, longs) {
        (None, 0) if !unsigned && !signed => return None,
        (None | Some("int"), 0) => 4,
        (None | Some("int"), 1) => long,
        (None | Some("int"), 2) => 8,
        (Some("short"), 0) => 2,
        // Plain `char` is signed on x86 before 6.2; a format's own `signed:` goes first.
        (Some("char"), 0) => return Some(IntType { size: 1, signed }),
        (Some("enum"), 0) => return Some(IntType::unsigned(4)),
        (Some(name), 0) => return typedef(name, long),
        _ => return None,
    };
    Some(IntType { size, signed: !unsigned })
}

/// Kernel typedefs that are the same size in every kernel, or follow `long`.
fn typedef(name: &str, long: usize) -> Option<IntType> {
    let (size, signed) = match name {
        "u8" | "__u8" | "uint8_t" | "u_int8_t" | "bool" | "_Bool" | "uchar" => (1, false),
        "s8" | "__s8" | "int8_t" => (1, true),
        "u16" | "__u16" | "uint16_t" | "u_int16_t" | "__le16" | "__be16" | "__sum16" | "umode_t" | "ushort"
        | "sa_family_t" => (2, false),
        "s16" | "__s16" | "int16_t" => (2, true),
        "u32" | "__u32" | "uint32_t" | "u_int32_t" | "__le32" | "__be32" | "__wsum" | "dev_t" | "gfp_t" | "fmode_t"
        | "uid_t" | "gid_t" | "uint" | "blk_opf_t" | "req_flags_t" | "slab_flags_t" | "vm_fault_t"
        | "compat_ulong_t" | "blk_status_t" | "ext4_lblk_t" | "tid_t" | "nlink_t" | "xfs_agnumber_t"
        | "xfs_agblock_t" | "xfs_extlen_t" | "xfs_dahash_t" | "qid_t" | "projid_t" => (4, false),
        "s32" | "__s32" | "int32_t" | "pid_t" | "clockid_t" | "key_t" | "timer_t" | "mqd_t" | "key_serial_t"
        | "__kernel_rwf_t" => (4, true),
        "u64" | "__u64" | "uint64_t" | "u_int64_t" | "__le64" | "__be64" | "sector_t" | "blkcnt_t" | "dma_addr_t"
        | "phys_addr_t" | "resource_size_t" | "ext4_fsblk_t" | "xfs_ino_t" | "xfs_fsblock_t" | "xfs_filblks_t"
        | "xfs_fileoff_t" | "gpa_t" | "gfn_t" | "hpa_t" | "hfn_t" | "cputime64_t" => (8, false),
        "s64" | "__s64" | "int64_t" | "loff_t" | "ktime_t" | "xfs_daddr_t" | "xfs_fsize_t" | "xfs_lsn_t"
        | "xfs_off_t" | "time64_t" => (8, true),
        "size_t" | "uintptr_t" | "ino_t" | "gva_t" | "ulong" | "pgoff_t" | "__kernel_size_t" | "__kernel_ulong_t"
        | "kernel_ulong_t" | "aio_context_t" | "pteval_t" | "pmdval_t" | "pudval_t" | "pgdval_t" => (long, false),
        "ssize_t" | "ptrdiff_t" | "intptr_t" | "off_t" | "time_t" | "__kernel_long_t" => (long, true),
        _ => return None,
    };
    Some(IntType { size, signed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_c_integer_types() {
        let cases: [(&str, Option<(usize, bool)>); 12] = [
            ("int", Some((4, true))),
            ("unsigned long long int", Some((8, false))),
            ("const unsigned char", Some((1, false))),
            ("unsigned", Some((4, false))),
            ("long", Some((8, true))),
            ("short int", Some((2, true))),
            ("enum zone_type", Some((4, false))),
            ("gfp_t", Some((4, false))),
            ("size_t", Some((8, false))),
            ("struct page", None),
            ("", None),
            ("long long long", None),
        ];
        for (text, want) in cases {
            let got = from_words(text.split_whitespace(), 8).map(|ty| (ty.size, ty.signed));
            assert_eq!(got, want, "{text:?}");
        }
        assert_eq!(from_words(["unsigned", "long"].into_iter(), 4), Some(IntType::unsigned(4)));
    }

    #[test]
    fn converts_as_c_does() {
        assert_eq!(IntType::signed(1).convert(0x1ff), u64::MAX);
        assert_eq!(IntType::unsigned(1).convert(300), 44);
        assert_eq!(IntType::INT.convert(0xffff_fffe), (-2i64) as u64);
        assert_eq!(IntType::U64.convert(u64::MAX), u64::MAX);
    }
}
