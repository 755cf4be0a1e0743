//! Where probes are put.

/// Where a probe is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAddress {
    Kernel {
        function: String,
        offset: u64,
    },
    /// A byte of a file that this process has open.
    User {
        fd: i32,
        offset: u64,
    },
}
