//! A request to the server of the metrics, as it has arrived so far: each answer is well formed, and what was answered
//! is not answered otherwise when more arrives.

use std::sync::Arc;

use perf_prof::output::metrics::SnapshotCell;
use perf_prof::output::metrics::answers::{MAX_HEAD_BYTES, ScrapeAnswers};

pub fn run(data: &[u8]) {
    let mut answers = ScrapeAnswers::new(SnapshotCell::default());
    let whole = answers.respond(data, true);
    match &whole {
        None => assert!(data.len() <= MAX_HEAD_BYTES, "a request may be so long"),
        Some(answer) => check(answer),
    }
    // It arrives in parts of any size.
    let step = (data.len() / 16).max(1);
    for at in (0..data.len()).step_by(step) {
        let Some(part) = answers.respond(&data[..at], true) else { continue };
        check(&part);
        // A head that is too long may be found to be none at all.
        if !status(&part).starts_with("431") {
            assert_eq!(whole.as_deref().map(status), Some(status(&part)), "after {at} bytes");
        }
    }
}

fn check(answer: &Arc<[u8]>) {
    const STATUSES: [&str; 6] =
        ["200 OK", "400 Bad Request", "403 Forbidden", "404 Not Found", "405 Method Not Allowed", "431 "];
    let status = status(answer);
    assert!(STATUSES.iter().any(|known| status.starts_with(known)), "{status}");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the end of the head");
    let head = std::str::from_utf8(&answer[..end]).expect("the head is text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    assert_eq!(length.parse(), Ok(answer.len() - end - 4));
}

fn status(answer: &[u8]) -> &str {
    let line = answer.split(|&byte| byte == b'\r').next().unwrap_or_default();
    std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("HTTP/1.1 ")).expect("a status line")
}
