//! Command lines in help and documentation, as a shell would take them.

use clap::CommandFactory;
use clap::error::ErrorKind;
use perf_prof::commands::Cli;

/// The calls of perf-prof in a text whose lines are commands, or commands with a remark two spaces away.
pub fn calls(text: &str) -> Vec<Vec<String>> {
    text.lines().filter_map(call).collect()
}

/// The words of the first call of perf-prof in a line. None without one, or with a placeholder in place of a command.
pub fn call(line: &str) -> Option<Vec<String>> {
    let start = line.match_indices("perf-prof ").map(|(at, _)| at);
    let start = start.into_iter().find(|&at| at == 0 || line[..at].ends_with([' ', '(']))?;
    let words = words(&line[start..]);
    words.get(1).filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))?;
    Some(words)
}

/// The words up to a remark, a pipe or the like, without quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.trim_end().chars() {
        let word = words.last_mut().expect("one at least");
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '>') if word == "2" => {
                word.clear();
                break;
            }
            (None, '|' | '>' | '<' | ';' | '&' | ')') => break,
            (None, ' ') if word.is_empty() => break,
            (None, ' ') => words.push(String::new()),
            (None, _) => word.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether perf-prof would take these words.
pub fn check(words: &[String]) -> Result<(), String> {
    match Cli::command().try_get_matches_from(words) {
        Err(err) if !matches!(err.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Err(format!("{words:?}: {err}"))
        }
        _ => Ok(()),
    }
}
