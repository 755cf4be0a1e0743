//! The answers to requests. A snapshot is encoded once per format, for any number of clients.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Weak};

use crate::output::metrics::family::MetricsSnapshot;
use crate::output::metrics::openmetrics::{self, TextFormat};
use crate::output::metrics::{SnapshotCell, protobuf};

/// Limit of the size of a request without its body.
pub const MAX_HEAD_BYTES: usize = 8 << 10;
pub const MAX_HEADERS: usize = 64;

/// The answers to requests.
#[derive(Debug)]
pub struct ScrapeAnswers {
    snapshots: SnapshotCell,
    /// The snapshot that was encoded. It may have been dropped, but this reference keeps its address from being reused.
    encoded_of: Weak<MetricsSnapshot>,
    /// By format, complete answers, which connections share.
    encoded: Vec<(ScrapeFormat, Arc<[u8]>)>,
}

impl ScrapeAnswers {
    pub fn new(snapshots: SnapshotCell) -> ScrapeAnswers {
        ScrapeAnswers { snapshots, encoded_of: Weak::new(), encoded: Vec::new() }
    }

    /// The answer to a request. None: the request is incomplete. `is_local`: it arrived on a loopback address.
    pub fn respond(&mut self, request: &[u8], is_local: bool) -> Option<Arc<[u8]>> {
        let text = |status: &str, body: &str| Some(answer(status, "text/plain; charset=utf-8", body.as_bytes()).into());
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(request) {
            Ok(httparse::Status::Complete(head)) if head <= MAX_HEAD_BYTES => {}
            Ok(httparse::Status::Partial) if request.len() <= MAX_HEAD_BYTES => return None,
            Ok(_) => return text("431 Request Header Fields Too Large", "the request is too long\n"),
            Err(_) => return text("400 Bad Request", "this is no HTTP request\n"),
        }
        let hosts = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        if is_local && !hosts.map(|header| header.value).all(names_this_machine) {
            return text("403 Forbidden", "ask for localhost, or for an address\n");
        }
        let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default();
        match (parsed.method, path) {
            (Some("GET"), "/metrics") => {}
            (Some("GET"), "/healthz") => return text("200 OK", "ok\n"),
            (_, "/metrics" | "/healthz") => return text("405 Method Not Allowed", "only GET\n"),
            _ => return text("404 Not Found", "see /metrics\n"),
        }
        let accepts = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
        let accepts: Vec<&str> = accepts.filter_map(|header| std::str::from_utf8(header.value).ok()).collect();
        Some(self.scrape(ScrapeFormat::of(&accepts.join(","))))
    }

    /// The answer to a scrape: the newest snapshot, encoded at the first request for it.
    fn scrape(&mut self, format: ScrapeFormat) -> Arc<[u8]> {
        let snapshot = self.snapshots.get();
        if !std::ptr::eq(self.encoded_of.as_ptr(), &raw const *snapshot) {
            (self.encoded_of, self.encoded) = (Arc::downgrade(&snapshot), Vec::new());
        }
        if let Some((_, known)) = self.encoded.iter().find(|(other, _)| *other == format) {
            return known.clone();
        }
        let body = match format {
            ScrapeFormat::Protobuf => protobuf::encode(&snapshot),
            ScrapeFormat::OpenMetrics => openmetrics::encode(&snapshot, TextFormat::OpenMetrics),
            ScrapeFormat::Plain => openmetrics::encode(&snapshot, TextFormat::Plain),
        };
        let encoded: Arc<[u8]> = answer("200 OK", format.content_type(), &body).into();
        self.encoded.push((format, encoded.clone()));
        encoded
    }
}

/// Whether a `Host` header is an address or localhost. This refuses DNS rebinding: a browser with a hostile page sends
/// the host name of that page, which the page's name server may have resolved to this machine.
fn names_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host).map(str::trim) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => return address.parse::<Ipv6Addr>().is_ok(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<Ipv4Addr>().is_ok() || name.trim_end_matches('.').eq_ignore_ascii_case("localhost")
}

fn answer(status: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    )
    .into_bytes();
    if status.starts_with("405") {
        answer.extend_from_slice(b"Allow: GET\r\n");
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    answer
}

/// What a scrape asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScrapeFormat {
    OpenMetrics,
    Plain,
    Protobuf,
}

impl ScrapeFormat {
    fn content_type(self) -> &'static str {
        match self {
            ScrapeFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ScrapeFormat::Plain => "text/plain; version=0.0.4; charset=utf-8",
            ScrapeFormat::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The format with the greatest weight in the `Accept` header, of equal ones the first; OpenMetrics if none is
    /// named.
    fn of(accept: &str) -> ScrapeFormat {
        let mut best = (0.0, ScrapeFormat::OpenMetrics);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
            let media = parts.next().unwrap_or_default();
            let parameters: Vec<(String, String)> = parts
                .filter_map(|part| part.split_once('=').map(|(key, value)| (key.trim().into(), value.trim().into())))
                .collect();
            let is = |key: &str, wanted: &str| {
                let value = parameters.iter().find(|(other, _)| other == key);
                value.is_none_or(|(_, value)| value.trim_matches('"') == wanted)
            };
            let format = match &*media {
                "application/openmetrics-text" | "application/*" | "*/*" => ScrapeFormat::OpenMetrics,
                "text/plain" | "text/*" => ScrapeFormat::Plain,
                "application/vnd.google.protobuf"
                    if is("proto", "io.prometheus.client.metricfamily") && is("encoding", "delimited") =>
                {
                    ScrapeFormat::Protobuf
                }
                _ => continue,
            };
            let weight = parameters.iter().find(|(key, _)| key == "q").map_or(Ok(1.0), |(_, q)| q.parse::<f64>());
            if let Some(weight) = weight.ok().filter(|weight| *weight > best.0) {
                best = (weight, format);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Only a complete request is answered; bytes behind it change nothing.
        #[test]
        fn a_request_is_answered_when_it_is_whole(
            method in "[A-Z]{1,7}",
            path in "/(metrics|healthz|[!-~]{0,20})",
            headers in proptest::collection::vec("[A-Za-z-]{1,12}: [ -~]{0,30}\r\n", 0..MAX_HEADERS),
            rest in proptest::collection::vec(any::<u8>(), 0..40),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut answers = ScrapeAnswers::new(SnapshotCell::default());
            let head = format!("{method} {path} HTTP/1.1\r\n{}\r\n", headers.concat());
            let answer = answers.respond(head.as_bytes(), false);
            prop_assert!(answer.is_some());
            prop_assert!(answers.respond(&head.as_bytes()[..cut.index(head.len())], false).is_none());
            prop_assert_eq!(answers.respond(&[head.as_bytes(), &rest].concat(), false), answer);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = ScrapeAnswers::new(SnapshotCell::default()).respond(&bytes, true);
            let _ = ScrapeFormat::of(&String::from_utf8_lossy(&bytes));
        }
    }

    /// A foreign name server may resolve one of its names to the loopback address.
    #[test]
    fn a_foreign_name_is_refused() {
        let cases: [(&str, bool); 16] = [
            ("", true),
            ("Host: 127.0.0.1:9100\r\n", true),
            ("host: localhost:9100\r\n", true),
            ("Host: LOCALHOST\r\n", true),
            ("Host: localhost.\r\n", true),
            ("Host: [::1]:9100\r\n", true),
            ("Host: [::1]\r\n", true),
            ("Host: 10.0.0.7\r\n", true),
            ("Host: evil.example\r\n", false),
            ("Host: evil.example:9100\r\n", false),
            ("Host: localhost.evil.example\r\n", false),
            ("Host: 127.0.0.1.evil.example\r\n", false),
            ("Host: [evil.example]\r\n", false),
            ("Host: \r\n", false),
            ("Host: localhost\r\nHost: evil.example\r\n", false),
            ("Host: \u{e9}\r\n", false),
        ];
        let mut answers = ScrapeAnswers::new(SnapshotCell::default());
        for (header, is_taken) in cases {
            for path in ["/metrics", "/healthz"] {
                let request = format!("GET {path} HTTP/1.1\r\n{header}\r\n");
                let mut status = |is_local| answers.respond(request.as_bytes(), is_local).unwrap()[9..12].to_vec();
                assert_eq!(status(true), if is_taken { b"200" } else { b"403" }, "{request}");
                assert_eq!(status(false), b"200", "{request}: other machines have many names for this one");
            }
        }
    }

    #[test]
    fn a_snapshot_is_encoded_once() {
        let snapshots = SnapshotCell::default();
        let mut answers = ScrapeAnswers::new(snapshots.clone());
        let mut scrape = |accept: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
            answers.respond(request.as_bytes(), true).unwrap()
        };
        for _ in 0..2 {
            snapshots.publish(MetricsSnapshot::default());
            let (text, plain, again) = (scrape("*/*"), scrape("text/plain"), scrape("*/*"));
            assert!(Arc::ptr_eq(&text, &again) && text != plain);
            snapshots.publish(MetricsSnapshot::default());
            assert!(!Arc::ptr_eq(&text, &scrape("*/*")));
        }
    }

    #[test]
    fn the_format_is_what_the_client_wants_most() {
        use ScrapeFormat::{OpenMetrics, Plain, Protobuf};
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                          application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let cases = [
            ("", OpenMetrics),
            ("*/*", OpenMetrics),
            ("text/html, */*;q=0.1", OpenMetrics),
            ("text/plain", Plain),
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", Plain),
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", OpenMetrics),
            (prometheus, Protobuf),
            ("application/vnd.google.protobuf; encoding=text; proto=io.prometheus.client.MetricFamily", OpenMetrics),
            ("APPLICATION/VND.GOOGLE.PROTOBUF;q=0.3, text/plain;q=0.2", Protobuf),
            ("text/plain;q=x, text/*;q=0.1", Plain),
        ];
        for (accept, want) in cases {
            assert_eq!(ScrapeFormat::of(accept), want, "{accept}");
        }
    }
}
