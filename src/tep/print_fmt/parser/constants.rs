//! Constants whose names the kernel leaves in its formats, and their values.
//!
//! A kernel puts numbers in place of the names that a `TRACE_DEFINE_ENUM` of its own lists. The rest stand in the
//! format as names, so these values can only come from here. A name is listed when its value is fixed by a standard or
//! by the user space ABI, or is the same in every kernel whose formats were seen to hold it as a name; where values
//! moved, [`ConstantGroup::required_names`] tells the kernels apart. Others are not guessed: their bits show as hex.

/// Constants of one subject.
struct ConstantGroup {
    /// Names that stand in the same `print fmt` on the kernels whose constants have these values.
    required_names: &'static [&'static str],
    names: &'static [(&'static str, u64)],
}

/// The value of `name` in the format with this `print fmt`.
pub fn value(name: &str, print_fmt: &str) -> Option<u64> {
    let groups = GROUPS.iter().filter(|group| group.required_names.iter().all(|name| print_fmt.contains(name)));
    groups.flat_map(|group| group.names).find(|(known, _)| *known == name).map(|(_, value)| *value)
}

const fn plain(names: &'static [(&'static str, u64)]) -> ConstantGroup {
    ConstantGroup { required_names: &[], names }
}

pub const DUMP_PREFIX_ADDRESS: u64 = 1;
pub const DUMP_PREFIX_OFFSET: u64 = 2;

const GROUPS: [ConstantGroup; 32] = [
    // include/linux/printk.h
    plain(&[
        ("DUMP_PREFIX_NONE", 0),
        ("DUMP_PREFIX_ADDRESS", DUMP_PREFIX_ADDRESS),
        ("DUMP_PREFIX_OFFSET", DUMP_PREFIX_OFFSET),
    ]),
    // TRACE_TYPE_HANDLED, include/linux/trace_events.h: a format that forgot `REC->` prints a variable of the code
    // around it, include/trace/stages/stage3_trace_output.h.
    plain(&[("ret", 1)]),
    // include/uapi/linux/ioprio.h
    plain(&[
        ("IOPRIO_CLASS_NONE", 0),
        ("IOPRIO_CLASS_RT", 1),
        ("IOPRIO_CLASS_BE", 2),
        ("IOPRIO_CLASS_IDLE", 3),
        ("IOPRIO_CLASS_INVALID", 7),
    ]),
    // include/net/tcp_states.h; the ABI through enum BPF_TCP_* in include/uapi/linux/bpf.h
    plain(&[
        ("TCP_ESTABLISHED", 1),
        ("TCP_SYN_SENT", 2),
        ("TCP_SYN_RECV", 3),
        ("TCP_FIN_WAIT1", 4),
        ("TCP_FIN_WAIT2", 5),
        ("TCP_TIME_WAIT", 6),
        ("TCP_CLOSE", 7),
        ("TCP_CLOSE_WAIT", 8),
        ("TCP_LAST_ACK", 9),
        ("TCP_LISTEN", 10),
        ("TCP_CLOSING", 11),
        ("TCP_NEW_SYN_RECV", 12),
    ]),
    // include/uapi/linux/l2tp.h
    plain(&[
        ("L2TP_ENCAPTYPE_UDP", 0),
        ("L2TP_ENCAPTYPE_IP", 1),
        ("L2TP_PWTYPE_ETH_VLAN", 4),
        ("L2TP_PWTYPE_ETH", 5),
        ("L2TP_PWTYPE_PPP", 7),
        ("L2TP_PWTYPE_PPP_AC", 8),
        ("L2TP_PWTYPE_IP", 11),
    ]),
    // include/uapi/linux/nl80211.h
    plain(&[("NL80211_BAND_2GHZ", 0), ("NL80211_BAND_5GHZ", 1), ("NL80211_BAND_60GHZ", 2), ("NL80211_BAND_6GHZ", 3)]),
    // enum netdev_cmd, include/linux/netdevice.h, since NETDEV_PRE_CHANGEADDR; the event that prints them is no older
    plain(&[
        ("NETDEV_UP", 1),
        ("NETDEV_CHANGE", 4),
        ("NETDEV_UNREGISTER", 6),
        ("NETDEV_CHANGEMTU", 7),
        ("NETDEV_CHANGEADDR", 8),
        ("NETDEV_GOING_DOWN", 10),
        ("NETDEV_CHANGENAME", 11),
    ]),
    // enum fault_flag, include/linux/mm_types.h (once macros of the same values in mm.h)
    plain(&[
        ("FAULT_FLAG_WRITE", 1 << 0),
        ("FAULT_FLAG_MKWRITE", 1 << 1),
        ("FAULT_FLAG_ALLOW_RETRY", 1 << 2),
        ("FAULT_FLAG_RETRY_NOWAIT", 1 << 3),
        ("FAULT_FLAG_KILLABLE", 1 << 4),
        ("FAULT_FLAG_TRIED", 1 << 5),
        ("FAULT_FLAG_USER", 1 << 6),
        ("FAULT_FLAG_REMOTE", 1 << 7),
        ("FAULT_FLAG_INSTRUCTION", 1 << 8),
        ("FAULT_FLAG_INTERRUPTIBLE", 1 << 9),
        ("FAULT_FLAG_UNSHARE", 1 << 10),
        ("FAULT_FLAG_ORIG_PTE_VALID", 1 << 11),
        ("FAULT_FLAG_VMA_LOCK", 1 << 12),
    ]),
    // enum vm_fault_reason, include/linux/mm_types.h
    plain(&[
        ("VM_FAULT_OOM", 0x1),
        ("VM_FAULT_SIGBUS", 0x2),
        ("VM_FAULT_MAJOR", 0x4),
        ("VM_FAULT_WRITE", 0x8),
        ("VM_FAULT_HWPOISON", 0x10),
        ("VM_FAULT_HWPOISON_LARGE", 0x20),
        ("VM_FAULT_SIGSEGV", 0x40),
        ("VM_FAULT_NOPAGE", 0x100),
        ("VM_FAULT_LOCKED", 0x200),
        ("VM_FAULT_RETRY", 0x400),
        ("VM_FAULT_FALLBACK", 0x800),
        ("VM_FAULT_DONE_COW", 0x1000),
        ("VM_FAULT_NEEDDSYNC", 0x2000),
        ("VM_FAULT_COMPLETED", 0x4000),
    ]),
    // enum vmscan_throttle_state, include/linux/mmzone.h
    plain(&[
        ("VMSCAN_THROTTLE_WRITEBACK", 0),
        ("VMSCAN_THROTTLE_ISOLATED", 1),
        ("VMSCAN_THROTTLE_NOPROGRESS", 2),
        ("VMSCAN_THROTTLE_CONGESTED", 3),
    ]),
    // enum migrate_mode and migrate_reason, include/linux/migrate_mode.h, from the time before TRACE_DEFINE_ENUM
    plain(&[
        ("MIGRATE_ASYNC", 0),
        ("MIGRATE_SYNC_LIGHT", 1),
        ("MIGRATE_SYNC", 2),
        ("MR_COMPACTION", 0),
        ("MR_MEMORY_FAILURE", 1),
        ("MR_MEMORY_HOTPLUG", 2),
        ("MR_SYSCALL", 3),
        ("MR_MEMPOLICY_MBIND", 4),
        ("MR_CMA", 6),
    ]),
    // include/linux/interrupt.h; today's formats hold numbers
    plain(&[
        ("HI_SOFTIRQ", 0),
        ("TIMER_SOFTIRQ", 1),
        ("NET_TX_SOFTIRQ", 2),
        ("NET_RX_SOFTIRQ", 3),
        ("BLOCK_SOFTIRQ", 4),
        ("BLOCK_IOPOLL_SOFTIRQ", 5),
        ("TASKLET_SOFTIRQ", 6),
        ("SCHED_SOFTIRQ", 7),
        ("HRTIMER_SOFTIRQ", 8),
        ("RCU_SOFTIRQ", 9),
    ]),
    // enum hrtimer_mode, include/linux/hrtimer.h
    plain(&[
        ("HRTIMER_MODE_ABS", 0),
        ("HRTIMER_MODE_REL", 1),
        ("HRTIMER_MODE_ABS_PINNED", 2),
        ("HRTIMER_MODE_REL_PINNED", 3),
        ("HRTIMER_MODE_ABS_SOFT", 4),
        ("HRTIMER_MODE_REL_SOFT", 5),
        ("HRTIMER_MODE_ABS_PINNED_SOFT", 6),
        ("HRTIMER_MODE_REL_PINNED_SOFT", 7),
        ("HRTIMER_MODE_ABS_HARD", 8),
        ("HRTIMER_MODE_REL_HARD", 9),
        ("HRTIMER_MODE_ABS_PINNED_HARD", 10),
        ("HRTIMER_MODE_REL_PINNED_HARD", 11),
    ]),
    // enum wb_reason of kernels that had this one, fs/fs-writeback.h; later ones hold numbers
    ConstantGroup {
        required_names: &["WB_REASON_FREE_MORE_MEM"],
        names: &[
            ("WB_REASON_BACKGROUND", 0),
            ("WB_REASON_TRY_TO_FREE_PAGES", 1),
            ("WB_REASON_SYNC", 2),
            ("WB_REASON_PERIODIC", 3),
            ("WB_REASON_LAPTOP_TIMER", 4),
            ("WB_REASON_FREE_MORE_MEM", 5),
            ("WB_REASON_FS_FREE_SPACE", 6),
            ("WB_REASON_FORKER_THREAD", 7),
        ],
    },
    // enum inode_state_flags_enum, include/linux/fs.h of Linux 6.18; before, they were macros and thus numbers here
    ConstantGroup {
        required_names: &["{I_WILL_FREE,", "{I_DONTCACHE,", "{I_PINNING_NETFS_WB,", "{I_LRU_ISOLATING,"],
        names: &[
            ("I_NEW", 1 << 0),
            ("I_SYNC", 1 << 1),
            ("I_LRU_ISOLATING", 1 << 2),
            ("I_DIRTY_SYNC", 1 << 4),
            ("I_DIRTY_DATASYNC", 1 << 5),
            ("I_DIRTY_PAGES", 1 << 6),
            ("I_WILL_FREE", 1 << 7),
            ("I_FREEING", 1 << 8),
            ("I_CLEAR", 1 << 9),
            ("I_REFERENCED", 1 << 10),
            ("I_LINKABLE", 1 << 11),
            ("I_DIRTY_TIME", 1 << 12),
            ("I_WB_SWITCH", 1 << 13),
            ("I_OVL_INUSE", 1 << 14),
            ("I_CREATING", 1 << 15),
            ("I_DONTCACHE", 1 << 16),
            ("I_SYNC_QUEUED", 1 << 17),
            ("I_PINNING_NETFS_WB", 1 << 18),
        ],
    },
    // fs/ext4/extents_status.h
    plain(&[("ES_WRITTEN_B", 0), ("ES_UNWRITTEN_B", 1), ("ES_DELAYED_B", 2), ("ES_HOLE_B", 3)]),
    // fs/btrfs/delayed-ref.h
    plain(&[
        ("BTRFS_ADD_DELAYED_REF", 1),
        ("BTRFS_DROP_DELAYED_REF", 2),
        ("BTRFS_ADD_DELAYED_EXTENT", 3),
        ("BTRFS_UPDATE_DELAYED_HEAD", 4),
    ]),
    // fs/btrfs/qgroup.h
    plain(&[("QGROUP_RESERVE", 1 << 0), ("QGROUP_RELEASE", 1 << 1), ("QGROUP_FREE", 1 << 2)]),
    // fs/btrfs/ordered-data.h; their order was another before there were these two
    ConstantGroup {
        required_names: &["BTRFS_ORDERED_REGULAR", "BTRFS_ORDERED_DIRECT"],
        names: &[
            ("BTRFS_ORDERED_REGULAR", 0),
            ("BTRFS_ORDERED_NOCOW", 1),
            ("BTRFS_ORDERED_PREALLOC", 2),
            ("BTRFS_ORDERED_COMPRESSED", 3),
            ("BTRFS_ORDERED_DIRECT", 4),
            ("BTRFS_ORDERED_IO_DONE", 5),
            ("BTRFS_ORDERED_COMPLETE", 6),
            ("BTRFS_ORDERED_IOERR", 7),
            ("BTRFS_ORDERED_TRUNCATED", 8),
        ],
    },
    // enum page_type, fs/f2fs/f2fs.h, from the time before TRACE_DEFINE_ENUM
    ConstantGroup {
        required_names: &["META_FLUSH"],
        names: &[("DATA", 0), ("NODE", 1), ("META", 2), ("META_FLUSH", 4)],
    },
    // enum scsi_prot_operations, include/scsi/scsi_cmnd.h
    plain(&[
        ("SCSI_PROT_NORMAL", 0),
        ("SCSI_PROT_READ_INSERT", 1),
        ("SCSI_PROT_WRITE_STRIP", 2),
        ("SCSI_PROT_READ_STRIP", 3),
        ("SCSI_PROT_WRITE_INSERT", 4),
        ("SCSI_PROT_READ_PASS", 5),
        ("SCSI_PROT_WRITE_PASS", 6),
    ]),
    // include/linux/nvme.h; the NVM Express specifications
    plain(&[
        ("nvme_cmd_flush", 0x00),
        ("nvme_cmd_write", 0x01),
        ("nvme_cmd_read", 0x02),
        ("nvme_cmd_write_uncor", 0x04),
        ("nvme_cmd_compare", 0x05),
        ("nvme_cmd_write_zeroes", 0x08),
        ("nvme_cmd_dsm", 0x09),
        ("nvme_cmd_verify", 0x0c),
        ("nvme_cmd_resv_register", 0x0d),
        ("nvme_cmd_resv_report", 0x0e),
        ("nvme_cmd_resv_acquire", 0x11),
        ("nvme_cmd_resv_release", 0x15),
        ("nvme_cmd_zone_mgmt_send", 0x79),
        ("nvme_cmd_zone_mgmt_recv", 0x7a),
        ("nvme_cmd_zone_append", 0x7d),
        ("nvme_fabrics_command", 0x7f),
        ("nvme_fabrics_type_property_set", 0x00),
        ("nvme_fabrics_type_connect", 0x01),
        ("nvme_fabrics_type_property_get", 0x04),
        ("nvme_fabrics_type_auth_send", 0x05),
        ("nvme_fabrics_type_auth_receive", 0x06),
        ("nvme_admin_delete_sq", 0x00),
        ("nvme_admin_create_sq", 0x01),
        ("nvme_admin_get_log_page", 0x02),
        ("nvme_admin_delete_cq", 0x04),
        ("nvme_admin_create_cq", 0x05),
        ("nvme_admin_identify", 0x06),
        ("nvme_admin_abort_cmd", 0x08),
        ("nvme_admin_set_features", 0x09),
        ("nvme_admin_get_features", 0x0a),
        ("nvme_admin_async_event", 0x0c),
        ("nvme_admin_ns_mgmt", 0x0d),
        ("nvme_admin_activate_fw", 0x10),
        ("nvme_admin_download_fw", 0x11),
        ("nvme_admin_dev_self_test", 0x14),
        ("nvme_admin_ns_attach", 0x15),
        ("nvme_admin_keep_alive", 0x18),
        ("nvme_admin_directive_send", 0x19),
        ("nvme_admin_directive_recv", 0x1a),
        ("nvme_admin_virtual_mgmt", 0x1c),
        ("nvme_admin_nvme_mi_send", 0x1d),
        ("nvme_admin_nvme_mi_recv", 0x1e),
        ("nvme_admin_dbbuf", 0x7c),
        ("nvme_admin_format_nvm", 0x80),
        ("nvme_admin_security_send", 0x81),
        ("nvme_admin_security_recv", 0x82),
        ("nvme_admin_sanitize_nvm", 0x84),
        ("nvme_admin_get_lba_status", 0x86),
        ("NVME_AER_ERROR", 0),
        ("NVME_AER_SMART", 1),
        ("NVME_AER_NOTICE", 2),
        ("NVME_AER_CSS", 6),
        ("NVME_AER_VS", 7),
    ]),
    // enum cxl_event_log_type; the CXL specification, Get Event Records
    plain(&[
        ("CXL_EVENT_TYPE_INFO", 0),
        ("CXL_EVENT_TYPE_WARN", 1),
        ("CXL_EVENT_TYPE_FAIL", 2),
        ("CXL_EVENT_TYPE_FATAL", 3),
    ]),
    // include/ufs/ufs.h and ufshcd.h (once in drivers/scsi/ufs)
    plain(&[
        ("UFS_ACTIVE_PWR_MODE", 1),
        ("UFS_SLEEP_PWR_MODE", 2),
        ("UFS_POWERDOWN_PWR_MODE", 3),
        ("UIC_LINK_OFF_STATE", 0),
        ("UIC_LINK_ACTIVE_STATE", 1),
        ("UIC_LINK_HIBERN8_STATE", 2),
        ("CLKS_OFF", 0),
        ("CLKS_ON", 1),
        ("REQ_CLKS_OFF", 2),
        ("REQ_CLKS_ON", 3),
    ]),
    // enum pm_qos_req_action, include/linux/pm_qos.h; DEV_PM_QOS_FLAGS was 3 before it was 5
    plain(&[
        ("PM_QOS_ADD_REQ", 0),
        ("PM_QOS_UPDATE_REQ", 1),
        ("PM_QOS_REMOVE_REQ", 2),
        ("DEV_PM_QOS_RESUME_LATENCY", 1),
        // the classes there were until Linux 5.6
        ("PM_QOS_CPU_DMA_LATENCY", 1),
        ("PM_QOS_NETWORK_LATENCY", 2),
        ("PM_QOS_NETWORK_THROUGHPUT", 3),
    ]),
    // include/sound/soc-dapm.h
    plain(&[("SND_SOC_DAPM_DIR_IN", 0), ("SND_SOC_DAPM_DIR_OUT", 1)]),
    // include/soc/qcom/tcs.h
    plain(&[("RPMH_SLEEP_STATE", 0), ("RPMH_WAKE_ONLY_STATE", 1), ("RPMH_ACTIVE_ONLY_STATE", 2)]),
    // arch/x86/include/asm/xen/trace_types.h
    plain(&[
        ("XEN_MC_FL_NONE", 0),
        ("XEN_MC_FL_BATCH", 1),
        ("XEN_MC_FL_ARGS", 2),
        ("XEN_MC_FL_CALLBACK", 3),
        ("XEN_MC_XE_OK", 0),
        ("XEN_MC_XE_BAD_OP", 1),
        ("XEN_MC_XE_NO_SPACE", 2),
    ]),
    // arch/x86/include/asm/paravirt_types.h, later include/xen/xen-ops.h
    plain(&[("PARAVIRT_LAZY_MMU", 1), ("PARAVIRT_LAZY_CPU", 2), ("XEN_LAZY_MMU", 1), ("XEN_LAZY_CPU", 2)]),
    // include/vdso/clocksource.h and arch/x86/include/asm/vdso/clocksource.h
    plain(&[("VDSO_CLOCKMODE_NONE", 0), ("VDSO_CLOCKMODE_TSC", 1)]),
    // arch/x86/include/asm/vmx.h; the processor's manual, VM-instruction error numbers
    plain(&[
        ("VMXERR_VMLAUNCH_NONCLEAR_VMCS", 4),
        ("VMXERR_VMRESUME_NONLAUNCHED_VMCS", 5),
        ("VMXERR_VMRESUME_AFTER_VMXOFF", 6),
        ("VMXERR_ENTRY_INVALID_CONTROL_FIELD", 7),
        ("VMXERR_ENTRY_INVALID_HOST_STATE_FIELD", 8),
        ("VMXERR_ENTRY_EVENTS_BLOCKED_BY_MOV_SS", 26),
    ]),
    // arch/arm64/include/asm/ptrace.h; the offsets of the architecture's vectors
    plain(&[
        ("except_type_sync", 0),
        ("except_type_irq", 0x80),
        ("except_type_fiq", 0x100),
        ("except_type_serror", 0x180),
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_has_two_values() {
        let mut names: Vec<&str> = GROUPS.iter().flat_map(|group| group.names).map(|(name, _)| *name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_group_needs_its_required_names() {
        assert_eq!(value("TCP_LISTEN", ""), Some(10));
        assert_eq!(value("WB_REASON_FS_FREE_SPACE", "{ WB_REASON_FS_FREE_SPACE, \"x\" }"), None);
        assert_eq!(value("WB_REASON_FS_FREE_SPACE", "{ WB_REASON_FREE_MORE_MEM, \"x\" }"), Some(6));
        assert_eq!(value("DEV_PM_QOS_FLAGS", ""), None);
    }
}
