//! perf-prof as another user, with few capabilities.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

use super::{Done, Prog};

pub const NOBODY: u32 = 65534;
/// Arguments of setpriv(1) that give CAP_PERFMON.
pub const PERFMON: [&str; 4] = ["--inh-caps", "+perfmon", "--ambient-caps", "+perfmon"];

/// A copy of perf-prof that everybody may execute, for one user.
pub struct Copy {
    dir: tempfile::TempDir,
    uid: u32,
}

impl Copy {
    pub fn of(uid: u32) -> Copy {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        super::copy_program(env!("CARGO_BIN_EXE_perf-prof"), dir.path().join("perf-prof"));
        Copy { dir, uid }
    }

    /// A file beside it, which everybody may read and execute.
    pub fn with_file(&self, name: &str, from: &str) -> String {
        let to = self.dir.path().join(name);
        super::copy_program(from, &to);
        to.into_os_string().into_string().expect("UTF-8")
    }

    /// The command line of setpriv.
    fn words(&self, capabilities: &[&str], before: &[&str], args: &[&str]) -> Vec<String> {
        let program = self.dir.path().join("perf-prof").into_os_string().into_string().expect("UTF-8");
        let id = self.uid.to_string();
        let user = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
        let words = [&user, capabilities, before, &[&program], args].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// With the machine's own tracefs: for root alone, if it is mounted at all.
    pub fn run(&self, _turn: &Turn, capabilities: &[&str], args: &[&str]) -> Done {
        let words = self.words(capabilities, &[], args);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Prog::spawn(command).finish()
    }

    /// In a mount namespace whose tracefs the user's group may read.
    pub fn with_tracefs(&self, turn: &Turn, capabilities: &[&str], args: &[&str]) -> Done {
        self.with_tracefs_behind(turn, capabilities, &[], args)
    }

    /// The same, started by the words `before` it. All mounts of tracefs share their options, so they are put back.
    pub fn with_tracefs_behind(&self, _turn: &Turn, capabilities: &[&str], before: &[&str], args: &[&str]) -> Done {
        let script = format!(
            "at=/sys/kernel/tracing; before=gid=0,mode=700
            if grep -q \" $at tracefs \" /proc/self/mounts; then before=$(stat -c gid=%g,mode=%a $at)
            else mount -t tracefs nodev $at || exit 99; fi
            mount -o remount,gid={},mode=755 $at || exit 99
            \"$@\"; code=$?; mount -o remount,$before $at; exit $code",
            self.uid
        );
        behind_mounts(&script, &self.words(capabilities, before, args))
    }

    /// In a mount namespace that has tracefs in this directory alone.
    pub fn with_tracefs_at(&self, dir: &str, capabilities: &[&str], args: &[&str]) -> Done {
        let script = format!(
            "for at in /sys/kernel/tracing /sys/kernel/debug; do
            [ ! -d $at ] || mount -t tmpfs none $at || exit 99; done
            mount -t tracefs nodev {dir} || exit 99
            exec \"$@\""
        );
        behind_mounts(&script, &self.words(capabilities, &[], args))
    }
}

/// Runs a script with these words in a mount namespace of its own.
fn behind_mounts(script: &str, words: &[String]) -> Done {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).args(words);
    Prog::spawn(command).finish()
}

/// Only one test at a time changes the options of tracefs, of all that run on this machine.
pub struct Turn(#[expect(dead_code, reason = "held")] Flock<File>);

pub fn turn() -> Turn {
    let path = std::env::temp_dir().join("perf-prof-tests-tracefs.lock");
    let file = File::create(path).expect("a file");
    Turn(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, err)| err).expect("the lock"))
}
