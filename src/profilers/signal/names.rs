//! The names of signals, of the codes that come with them, and what happens by default.
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

/// SIGTERM, SIGRTMIN+3.
pub fn signal(signo: u8) -> &'static str {
    NAMES.get(usize::from(signo)).copied().unwrap_or("?")
}

/// Of `KILL`, `SIGKILL`, `sigkill`, `9`, `RTMIN+3`.
pub fn number(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (1..=LAST).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = NAMES.iter().skip(1).position(|known| known.strip_prefix("SIG") == Some(name))?;
    u8::try_from(found + 1).ok()
}

/// Of its kind only one waits at a time. Timers have their own entries in the queue, so they come on top of another one of
/// the same number.
pub fn waits_alone(signo: u8, code: i32) -> bool {
    !is_real_time(signo) && code != SI_TIMER
}

/// What no program can block, ignore or take.
pub fn is_absolute(signo: u8) -> bool {
    matches!(signo, SIGKILL | SIGSTOP)
}

/// Each one that is sent waits on its own; of others at most one waits.
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

/// Who has made a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// With kill, tgkill, sigqueue and the like.
    Task,
    Kernel,
    /// One of timer_create(2).
    Timer,
}

impl Origin {
    pub fn of(code: i32) -> Origin {
        match code {
            SI_TIMER => Origin::Timer,
            SI_MESGQ | SI_ASYNCIO | SI_SIGIO | SI_DETHREAD | SI_ASYNCNL => Origin::Kernel,
            _ if code > 0 => Origin::Kernel, // SI_FROMKERNEL
            _ => Origin::Task,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Origin::Task => "task",
            Origin::Kernel => "kernel",
            Origin::Timer => "timer",
        }
    }
}

pub const SI_TIMER: i32 = -2;
const SI_MESGQ: i32 = -3;
const SI_ASYNCIO: i32 = -4;
const SI_SIGIO: i32 = -5;
const SI_DETHREAD: i32 = -7;
const SI_ASYNCNL: i32 = -60;

/// The codes from 1 on.
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

/// The name of a code. None: it has none, as those that a task may choose for itself.
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
            (libc::SIGTERM, 0, Some("SI_USER"), Origin::Task),
            (libc::SIGUSR1, -6, Some("SI_TKILL"), Origin::Task),
            (40, -1, Some("SI_QUEUE"), Origin::Task),
            (40, 1, Some("POLL_IN"), Origin::Kernel),
            (libc::SIGALRM, 0x80, Some("SI_KERNEL"), Origin::Kernel),
            (libc::SIGALRM, -2, Some("SI_TIMER"), Origin::Timer),
            (libc::SIGSEGV, 1, Some("SEGV_MAPERR"), Origin::Kernel),
            (libc::SIGFPE, 1, Some("FPE_INTDIV"), Origin::Kernel),
            (libc::SIGFPE, 14, Some("FPE_FLTUNK"), Origin::Kernel),
            (libc::SIGCHLD, 2, Some("CLD_KILLED"), Origin::Kernel),
            (libc::SIGTERM, 1, None, Origin::Kernel),
            (libc::SIGUSR1, -77, None, Origin::Task),
            (libc::SIGCHLD, 7, None, Origin::Kernel),
            (libc::SIGCHLD, i32::MIN, None, Origin::Task),
            (libc::SIGCHLD, i32::MAX, None, Origin::Kernel),
        ];
        for (number, value, name, from) in cases {
            assert_eq!((code(signo(number), value), Origin::of(value)), (name, from), "{number} {value}");
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
