//! The script that an interpreter executes: the process is named after the interpreter, while users know it by the name
//! of the script.

use crate::host::Host;
use crate::task::{Comm, procfs};

/// An interpreter, by its name without a version.
struct Interpreter {
    name: &'static str,
    /// Options that take the next word.
    with_value: &'static [&'static str],
    /// Options whose next word is the script, or names it, as a module does.
    with_script: &'static [&'static str],
    /// Options that are followed by code instead of a script.
    with_code: &'static [&'static str],
}

const SHELL_VALUES: &[&str] = &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

const fn shell(name: &'static str) -> Interpreter {
    Interpreter { name, with_value: SHELL_VALUES, with_script: &[], with_code: &["-c", "-s"] }
}

const fn python(name: &'static str) -> Interpreter {
    Interpreter { name, with_value: &["-W", "-X", "-Q"], with_script: &["-m"], with_code: &["-c"] }
}

const fn node(name: &'static str) -> Interpreter {
    const CODE: &[&str] = &["-e", "-p", "--eval", "--print", "-i"];
    Interpreter { name, with_value: &["-r", "--require", "--import", "-C"], with_script: &[], with_code: CODE }
}

const fn other(name: &'static str) -> Interpreter {
    Interpreter { name, with_value: &["-I", "-r", "-d", "-c"], with_script: &["-f"], with_code: &["-e", "-E"] }
}

const INTERPRETERS: &[Interpreter] = &[
    python("python"),
    python("pypy"),
    shell("sh"),
    shell("bash"),
    shell("dash"),
    shell("ash"),
    shell("ksh"),
    shell("zsh"),
    node("node"),
    node("nodejs"),
    other("perl"),
    other("ruby"),
    other("php"),
    other("lua"),
    other("tclsh"),
    other("Rscript"),
    Interpreter {
        name: "java",
        with_value: &["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "-m", "--module"],
        with_script: &["-jar"],
        with_code: &[],
    },
];

/// The name of the script that a process executes, without its directory, from the arguments of its interpreter. None:
/// the process, whose name is `comm`, is no known interpreter, or has no script.
pub fn script_of(host: &Host, pid: i32, comm: Comm) -> Option<Vec<u8>> {
    let interpreter = interpreter_of(comm.as_bytes())?;
    script_in(&procfs::command_words(host, pid)?, interpreter).map(<[u8]>::to_vec)
}

/// `python3.11` counts as `python`.
fn interpreter_of(name: &[u8]) -> Option<&'static Interpreter> {
    let is_version = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let end = name.iter().rposition(|byte| !is_version(byte)).map_or(0, |last| last + 1);
    INTERPRETERS.iter().find(|interpreter| interpreter.name.as_bytes() == &name[..end])
}

/// The script among the words of a command line.
fn script_in<'w>(words: &'w [Vec<u8>], interpreter: &Interpreter) -> Option<&'w [u8]> {
    let is_one = |options: &[&str], word: &[u8]| options.iter().any(|option| option.as_bytes() == word);
    let mut words = words.iter().skip(1).map(Vec::as_slice);
    loop {
        let word = words.next()?;
        if is_one(interpreter.with_code, word) {
            return None;
        }
        let script = match word {
            _ if is_one(interpreter.with_script, word) => words.next()?,
            _ if is_one(interpreter.with_value, word) => {
                words.next()?;
                continue;
            }
            b"--" => words.next()?,
            [b'-' | b'+', _, ..] => continue,
            _ => word,
        };
        return script.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty() && *name != b"-");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::fixture::FixtureProcess;

    #[test]
    fn scripts_are_told_from_options() {
        let cases: [(&str, &str, Option<&str>); 18] = [
            ("python3", "python3 /srv/jobd.py --once", Some("jobd.py")),
            ("python3.11", "/usr/bin/python3.11 -u -W ignore jobd.py", Some("jobd.py")),
            ("python3", "python3 -m http.server", Some("http.server")),
            ("python3", "python3 -c print() x.py", None),
            ("python3", "python3", None),
            ("python3", "python3 -", None),
            ("sh", "sh /opt/nightly", Some("nightly")),
            ("sh", "sh -e -u ./nightly", Some("nightly")),
            ("sh", "sh -c ls x", None),
            ("bash", "bash -o pipefail -- nightly.sh", Some("nightly.sh")),
            ("java", "java -Xmx1g -cp a.jar:b.jar -jar /opt/shop.jar", Some("shop.jar")),
            ("java", "java -cp a.jar org.shop.Main", Some("org.shop.Main")),
            ("node", "node --inspect -r dotenv/config server.js", Some("server.js")),
            ("perl", "perl -w -I lib job.pl", Some("job.pl")),
            ("perl", "perl -e 1 job.pl", None),
            ("vim", "vim jobd.py", None),
            ("shred", "shred jobd.py", None),
            ("", "", None),
        ];
        for (comm, line, want) in cases {
            let process = FixtureProcess::new(5);
            process.write("cmdline", &format!("{}\0", line.replace(' ', "\0")));
            let got = script_of(&process.host(), 5, Comm::new(comm.as_bytes()));
            assert_eq!(got.as_deref(), want.map(str::as_bytes), "{line}");
        }
    }
}
