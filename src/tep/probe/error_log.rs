//! Why the kernel refused the definition of a probe: `error_log` in tracefs (since 5.2).
//!
//! ```text
//! [22393.572635] trace_uprobe: error: Invalid register name
//!   Command: p:group/event /bin/true:0x1234 a=%foo
//!                                             ^
//! ```

/// Text in front of the definition: the caret is off by its length. tracing_err_log_seq_show, kernel/trace/trace.c.
const COMMAND: &str = "  Command: ";

/// Why a definition was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedError {
    /// The kernel's message.
    pub what: String,
    /// Byte offset in the definition.
    pub offset: usize,
}

/// The last error about `command`. The log has errors about the definitions of other processes, too.
pub fn last_error(log: &str, command: &str) -> Option<LoggedError> {
    let lines: Vec<&str> = log.lines().collect();
    let about = |line: &str| line.strip_prefix(COMMAND).is_some_and(|text| text.trim_end() == command.trim_end());
    let index = lines.iter().rposition(|line| about(line))?;
    let what = lines.get(index.checked_sub(1)?)?.split_once("error: ")?.1;
    let caret = lines.get(index + 1).and_then(|line| line.find('^')).unwrap_or(0);
    Some(LoggedError { what: what.trim().to_owned(), offset: caret.saturating_sub(COMMAND.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[22393.572635] trace_uprobe: error: Invalid register name
  Command: p:pp/b /bin/true:0x1234 a=%foo
                                     ^
[22393.572658] trace_uprobe: error: $arg* can be used only on function entry or exit
  Command: p:pp/b /bin/true:0x1234 a=$arg1 b=%di:zork 
                                     ^
[22393.600000] trace_kprobe: error: Invalid probed address or symbol
  Command: p:pp/b /bin/true:0x1234 a=%foo
           ^
";

    #[test]
    fn finds_the_last_error_about_a_command() {
        let said = |command: &str| last_error(LOG, command).map(|said| (said.what, said.offset));
        let command = "p:pp/b /bin/true:0x1234 a=$arg1 b=%di:zork";
        let what = "$arg* can be used only on function entry or exit".to_owned();
        assert_eq!(said(command), Some((what, command.find("$arg1").unwrap())));
        let what = "Invalid probed address or symbol".to_owned();
        assert_eq!(said("p:pp/b /bin/true:0x1234 a=%foo"), Some((what, 0)));
        assert_eq!(said("p:pp/c /bin/true:0x1234"), None);
        for cut in 0..LOG.len() {
            let _ = last_error(&LOG[..cut], command);
        }
        assert_eq!(last_error("  Command: x", "x"), None);
    }
}
