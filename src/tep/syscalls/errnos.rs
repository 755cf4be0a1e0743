//! Names of error numbers, as `<errno.h>` has them, and of those that never leave the kernel.

macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as u32)),*] };
}

/// Source: include/uapi/asm-generic/errno.h.
#[rustfmt::skip]
pub const ERRNOS: &[(&str, u32)] = of_libc![
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN EWOULDBLOCK ENOMEM EACCES EFAULT ENOTBLK EBUSY
    EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM
    ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH
    ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE
    ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD
    ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT
    EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH
    ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN
    EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE
    ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON
];
/// Errors inside of the kernel, which traces show. Source: include/linux/errno.h.
#[rustfmt::skip]
pub const KERNEL_ERRNOS: &[(&str, u32)] = &[
    ("ERESTARTSYS", 512), ("ERESTARTNOINTR", 513), ("ERESTARTNOHAND", 514), ("ENOIOCTLCMD", 515),
    ("ERESTART_RESTARTBLOCK", 516), ("EPROBE_DEFER", 517), ("ENOTSUPP", 524),
];

/// The name of an error. Of two names the one that programs use: EAGAIN, not EWOULDBLOCK.
pub fn name(errno: u32) -> Option<&'static str> {
    [ERRNOS, KERNEL_ERRNOS].into_iter().flatten().find(|(_, number)| *number == errno).map(|(name, _)| *name)
}

/// The error that the return value of a system call stands for. None: it succeeded.
#[inline]
pub fn of_return(ret: i64) -> Option<u32> {
    const MAX_ERRNO: i64 = 4095; // include/linux/err.h
    if (-MAX_ERRNO..0).contains(&ret) { Some(-ret as u32) } else { None }
}

/// A signal interrupted the call, and the kernel makes it once more, or returns EINTR, when the signal was handled.
#[inline]
pub fn is_restart(errno: u32) -> bool {
    matches!(errno, 512 | 513 | 514 | 516)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_values_of_calls() {
        let cases = [
            (0, None),
            (3, None),
            (i64::MIN, None),
            (-4096, None),
            (-1, Some("EPERM")),
            (-2, Some("ENOENT")),
            (-11, Some("EAGAIN")),
            (-512, Some("ERESTARTSYS")),
        ];
        for (ret, want) in cases {
            assert_eq!(of_return(ret).and_then(name), want, "{ret}");
        }
        assert_eq!(of_return(-4095), Some(4095));
        assert_eq!(name(4095), None);
        assert!(is_restart(512) && !is_restart(515) && !is_restart(4));
    }
}
