//! Names of signals and of their codes, and default actions.
//!
//! The numbers are those of asm-generic/signal.h and asm-generic/siginfo.h, which x86 and arm64 share.

pub const SIGKILL: u8 = 9;
const SIGCONT: u8 = 18;
const SIGSTOP: u8 = 19;
/// The kernel's first real-time signal; glibc keeps two for itself, so its SIGRTMIN is 34 (musl's is 35).
const FIRST_REAL_TIME: u8 = 32;
pub const LAST: u8 = 64;

const NAMES: [&str; LAST as usize + 1] = [
    "0",
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
    "SIG32",
    "SIG33",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+16",
    "SIGRTMIN+17",
    "SIGRTMIN+18",
    "SIGRTMIN+19",
    "SIGRTMIN+20",
    "SIGRTMIN+21",
    "SIGRTMIN+22",
    "SIGRTMIN+23",
    "SIGRTMIN+24",
    "SIGRTMIN+25",
    "SIGRTMIN+26",
    "SIGRTMIN+27",
    "SIGRTMIN+28",
    "SIGRTMIN+29",
    "SIGRTMIN+30",
];

/// The name of a signal: `SIGTERM`, `SIGRTMIN+3`.
pub fn signal(signo: u8) -> &'static str {
    NAMES.get(usize::from(signo)).copied().unwrap_or("?")
}

/// The number of a signal, from `KILL`, `SIGKILL`, `sigkill`, `9` or `RTMIN+3`.
pub fn number(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (1..=LAST).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = NAMES.iter().skip(1).position(|known| known.strip_prefix("SIG") == Some(name))?;
    u8::try_from(found + 1).ok()
}

/// True if only one signal of this kind is pending at a time. A signal of a timer has its own entry in the queue,
/// besides another signal of the same number.
pub fn waits_alone(signo: u8, code: i32) -> bool {
    !is_real_time(signo) && code != SI_TIMER
}

/// True for the signals that no program can block, ignore or handle.
pub fn is_absolute(signo: u8) -> bool {
    matches!(signo, SIGKILL | SIGSTOP)
}

/// True for the signals that queue; any other is pending at most once.
pub fn is_real_time(signo: u8) -> bool {
    signo >= FIRST_REAL_TIME
}

/// What a signal does to a process that neither handles nor ignores it: signal(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    Terminates,
    DumpsCore,
    Stops,
    Continues,
    Nothing,
}

impl DefaultAction {
    pub fn of(signo: u8) -> DefaultAction {
        match signal(signo) {
            "SIGQUIT" | "SIGILL" | "SIGTRAP" | "SIGABRT" | "SIGBUS" | "SIGFPE" | "SIGSEGV" | "SIGXCPU" | "SIGXFSZ"
            | "SIGSYS" => DefaultAction::DumpsCore,
            "SIGSTOP" | "SIGTSTP" | "SIGTTIN" | "SIGTTOU" => DefaultAction::Stops,
            "SIGCHLD" | "SIGURG" | "SIGWINCH" => DefaultAction::Nothing,
            _ if signo == SIGCONT => DefaultAction::Continues,
            _ => DefaultAction::Terminates,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            DefaultAction::Terminates => "default: ends the process",
            DefaultAction::DumpsCore => "default: ends the process, core dump",
            DefaultAction::Stops => "default: stops the process",
            DefaultAction::Continues => "default: resumes the process",
            DefaultAction::Nothing => "default: nothing happens",
        }
    }
}

/// The origin of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOrigin {
    /// A task, with kill, tgkill, sigqueue and the like.
    Task,
    Kernel,
    /// A timer of timer_create(2).
    Timer,
}

impl SignalOrigin {
    pub fn of(code: i32) -> SignalOrigin {
        match code {
            SI_TIMER => SignalOrigin::Timer,
            SI_MESGQ | SI_ASYNCIO | SI_SIGIO | SI_DETHREAD | SI_ASYNCNL => SignalOrigin::Kernel,
            _ if code > 0 => SignalOrigin::Kernel, // SI_FROMKERNEL
            _ => SignalOrigin::Task,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            SignalOrigin::Task => "task",
            SignalOrigin::Kernel => "kernel",
            SignalOrigin::Timer => "timer",
        }
    }
}

pub const SI_TIMER: i32 = -2;
const SI_MESGQ: i32 = -3;
const SI_ASYNCIO: i32 = -4;
const SI_SIGIO: i32 = -5;
const SI_DETHREAD: i32 = -7;
const SI_ASYNCNL: i32 = -60;

/// Names of the codes from 1 on, by signal.
const ILL: [&str; 11] = [
    "ILL_ILLOPC",
    "ILL_ILLOPN",
    "ILL_ILLADR",
    "ILL_ILLTRP",
    "ILL_PRVOPC",
    "ILL_PRVREG",
    "ILL_COPROC",
    "ILL_BADSTK",
    "ILL_BADIADDR",
    "ILL_BREAK",
    "ILL_BNDMOD",
];
const TRAP: [&str; 6] = ["TRAP_BRKPT", "TRAP_TRACE", "TRAP_BRANCH", "TRAP_HWBKPT", "TRAP_UNK", "TRAP_PERF"];
const BUS: [&str; 5] = ["BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"];
const FPE: [&str; 8] =
    ["FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF", "FPE_FLTUND", "FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB"];
const SEGV: [&str; 10] = [
    "SEGV_MAPERR",
    "SEGV_ACCERR",
    "SEGV_BNDERR",
    "SEGV_PKUERR",
    "SEGV_ACCADI",
    "SEGV_ADIDERR",
    "SEGV_ADIPERR",
    "SEGV_MTEAERR",
    "SEGV_MTESERR",
    "SEGV_CPERR",
];
const CHLD: [&str; 6] = ["CLD_EXITED", "CLD_KILLED", "CLD_DUMPED", "CLD_TRAPPED", "CLD_STOPPED", "CLD_CONTINUED"];
const POLL: [&str; 6] = ["POLL_IN", "POLL_OUT", "POLL_MSG", "POLL_ERR", "POLL_PRI", "POLL_HUP"];
const SYS: [&str; 2] = ["SYS_SECCOMP", "SYS_USER_DISPATCH"];

/// The name of a code. None: the code has no name, like those that a task may choose itself.
pub fn code(signo: u8, code: i32) -> Option<&'static str> {
    let own: &[&'static str] = match signal(signo) {
        "SIGILL" => &ILL,
        "SIGTRAP" => &TRAP,
        "SIGBUS" => &BUS,
        "SIGFPE" => &FPE,
        "SIGSEGV" => &SEGV,
        "SIGCHLD" => &CHLD,
        "SIGSYS" => &SYS,
        "SIGIO" => &POLL,
        _ if is_real_time(signo) => &POLL, // fcntl(F_SETSIG)
        _ => &[],
    };
    match code {
        0 => Some("SI_USER"),
        0x80 => Some("SI_KERNEL"),
        -1 => Some("SI_QUEUE"),
        SI_TIMER => Some("SI_TIMER"),
        SI_MESGQ => Some("SI_MESGQ"),
        SI_ASYNCIO => Some("SI_ASYNCIO"),
        SI_SIGIO => Some("SI_SIGIO"),
        -6 => Some("SI_TKILL"),
        SI_DETHREAD => Some("SI_DETHREAD"),
        SI_ASYNCNL => Some("SI_ASYNCNL"),
        14 if own == FPE => Some("FPE_FLTUNK"),
        15 if own == FPE => Some("FPE_CONDTRAP"),
        _ => own.get(usize::try_from(code.checked_sub(1)?).ok()?).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_libc() {
        let cases = [
            (libc::SIGHUP, "SIGHUP"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGCHLD, "SIGCHLD"),
            (libc::SIGCONT, "SIGCONT"),
            (libc::SIGTTOU, "SIGTTOU"),
            (libc::SIGPROF, "SIGPROF"),
            (libc::SIGIO, "SIGIO"),
            (libc::SIGSYS, "SIGSYS"),
            (34, "SIGRTMIN"),
            (64, "SIGRTMIN+30"),
            (65, "?"),
        ];
        for (signo, name) in cases {
            assert_eq!(signal(signo as u8), name);
        }
        for signo in 1..=31 {
            let known = nix::sys::signal::Signal::try_from(i32::from(signo)).unwrap();
            assert_eq!(signal(signo), known.as_str());
        }
    }

    #[test]
    fn signals_by_any_of_their_names() {
        let cases = [
            ("KILL", Some(9)),
            ("SIGTERM", Some(15)),
            ("sighup", Some(1)),
            ("9", Some(9)),
            ("RTMIN+3", Some(37)),
            ("64", Some(64)),
            ("0", None),
            ("65", None),
            ("", None),
            ("SIG", None),
            ("KIL", None),
        ];
        for (text, want) in cases {
            assert_eq!(number(text), want, "{text:?}");
        }
        (1..=LAST).for_each(|signo| assert_eq!(number(signal(signo)), Some(signo)));
    }

    #[test]
    fn codes_depend_on_the_signal() {
        let signo = |signo: i32| signo as u8;
        let cases = [
            (libc::SIGTERM, 0, Some("SI_USER"), SignalOrigin::Task),
            (libc::SIGUSR1, -6, Some("SI_TKILL"), SignalOrigin::Task),
            (40, -1, Some("SI_QUEUE"), SignalOrigin::Task),
            (40, 1, Some("POLL_IN"), SignalOrigin::Kernel),
            (libc::SIGALRM, 0x80, Some("SI_KERNEL"), SignalOrigin::Kernel),
            (libc::SIGALRM, -2, Some("SI_TIMER"), SignalOrigin::Timer),
            (libc::SIGSEGV, 1, Some("SEGV_MAPERR"), SignalOrigin::Kernel),
            (libc::SIGFPE, 1, Some("FPE_INTDIV"), SignalOrigin::Kernel),
            (libc::SIGFPE, 14, Some("FPE_FLTUNK"), SignalOrigin::Kernel),
            (libc::SIGCHLD, 2, Some("CLD_KILLED"), SignalOrigin::Kernel),
            (libc::SIGTERM, 1, None, SignalOrigin::Kernel),
            (libc::SIGUSR1, -77, None, SignalOrigin::Task),
            (libc::SIGCHLD, 7, None, SignalOrigin::Kernel),
            (libc::SIGCHLD, i32::MIN, None, SignalOrigin::Task),
            (libc::SIGCHLD, i32::MAX, None, SignalOrigin::Kernel),
        ];
        for (number, value, name, from) in cases {
            assert_eq!((code(signo(number), value), SignalOrigin::of(value)), (name, from), "{number} {value}");
        }
    }

    #[test]
    fn default_actions() {
        let cases = [
            (libc::SIGKILL, DefaultAction::Terminates),
            (libc::SIGSEGV, DefaultAction::DumpsCore),
            (libc::SIGTSTP, DefaultAction::Stops),
            (libc::SIGCHLD, DefaultAction::Nothing),
            (libc::SIGCONT, DefaultAction::Continues),
            (50, DefaultAction::Terminates),
        ];
        for (signo, want) in cases {
            assert_eq!(DefaultAction::of(signo as u8), want, "{signo}");
        }
    }
}
