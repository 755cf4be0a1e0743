//! The server of the metrics: one thread that polls all connections, each of which has a short time limit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use crossbeam_channel::bounded;

use crate::output::metrics::SnapshotCell;
use crate::output::metrics::allowance::CpuAllowance;
use crate::output::metrics::answers::ScrapeAnswers;
use crate::sys;
use crate::sys::poll::{Poller, Waker, block_signals};

/// Limit of the connections that are served at once. A further one replaces another.
const MAX_CONNECTIONS: usize = 8;
/// The time for a request to arrive, and for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time for a client to close the connection after its answer.
const REST: Duration = Duration::from_millis(500);
/// Limit of the bytes that a client may send after its request.
const MAX_REST_BYTES: usize = 1 << 20;

const LISTENER: u64 = 0;
const WAKER: u64 = 1;
/// Token of the first connection.
const FIRST: u64 = 2;

/// A listening server. Dropping it ends it.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    tid: i32,
    snapshots: SnapshotCell,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// # Errors
    /// The address is in use, or is no address of this machine.
    pub fn start(address: SocketAddr) -> Result<MetricsServer> {
        MetricsServer::with_patience(address, PATIENCE)
    }

    fn with_patience(address: SocketAddr, patience: Duration) -> Result<MetricsServer> {
        let failed = || format!("cannot listen on {address} for --metrics");
        let listener = TcpListener::bind(address).with_context(failed)?;
        listener.set_nonblocking(true).with_context(failed)?;
        let address = listener.local_addr().with_context(failed)?;
        let (poller, waker) = (Poller::new().with_context(failed)?, Arc::new(Waker::new().with_context(failed)?));
        poller.add(&listener, LISTENER).with_context(failed)?;
        poller.add(&*waker, WAKER).with_context(failed)?;
        let snapshots = SnapshotCell::default();
        let mut service = MetricsService {
            listener,
            is_listening: true,
            allowance: CpuAllowance::default(),
            poller,
            answers: ScrapeAnswers::new(snapshots.clone()),
            patience,
            connections: Vec::new(),
        };
        let (tell_tid, tid) = bounded(1);
        let work = move || {
            block_signals(); // the reading thread handles them
            let _ = tell_tid.send(nix::unistd::gettid().as_raw());
            while service.serve() {}
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(work).with_context(failed)?;
        let tid = tid.recv().context("the thread of the metrics ended at once")?;
        Ok(MetricsServer { address, tid, snapshots, waker, thread: Some(thread) })
    }

    /// The address, with the port that the kernel chose if the user gave port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The cell in which the snapshots to serve are published.
    pub fn snapshots(&self) -> SnapshotCell {
        self.snapshots.clone()
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.waker.wake();
        // The thread never blocks on a client, so it ends at once.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct MetricsService {
    listener: TcpListener,
    /// The listener is registered with the poller. Otherwise clients wait in its queue.
    is_listening: bool,
    /// Limits the CPU time that clients who ask all the time can cost.
    allowance: CpuAllowance,
    poller: Poller,
    answers: ScrapeAnswers,
    patience: Duration,
    connections: Vec<HttpConnection>,
}

struct HttpConnection {
    stream: TcpStream,
    /// The connection was made to a loopback address.
    is_local: bool,
    token: u64,
    until: Instant,
    stage: HttpStage,
}

enum HttpStage {
    /// The request is being received.
    Request(Vec<u8>),
    /// The answer is being sent: `sent` bytes so far.
    Answer { bytes: Arc<[u8]>, sent: usize },
    /// The answer is sent; this many further bytes were received. They must be read: closing a socket with unread bytes
    /// makes the kernel send a reset, which discards what the client has not read yet.
    Rest(usize),
}

/// What happens next with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    Input,
    Room,
    Close,
}

impl MetricsService {
    /// Waits for an event, and handles it. False: the server must end.
    fn serve(&mut self) -> bool {
        let now = Instant::now();
        let next = self.connections.iter().map(|connection| connection.until.saturating_duration_since(now)).min();
        let pause = self.pause_listening();
        let timeout = next.into_iter().chain(pause).min().unwrap_or(Duration::from_secs(60));
        let Ok(ready) = self.poller.wait(timeout).map(Iterator::collect::<Vec<u64>>) else { return false };
        for token in ready {
            match token {
                WAKER => return false,
                LISTENER => self.accept(),
                token => self.go_on(token),
            }
        }
        let now = Instant::now();
        self.connections.retain(|connection| connection.until > now); // closing a descriptor removes it from the poller
        true
    }

    /// Listens, unless the thread has used too much CPU time. Returns the length of the pause.
    fn pause_listening(&mut self) -> Option<Duration> {
        let [passed, used] = [sys::monotonic_ns(), sys::thread_cpu_ns()].map(Duration::from_nanos);
        let pause = Some(self.allowance.pause(passed, used)).filter(|pause| !pause.is_zero());
        if self.is_listening != pause.is_none() {
            self.is_listening = match pause {
                Some(_) => self.poller.remove(&self.listener).is_err(),
                None => self.poller.add(&self.listener, LISTENER).is_ok(),
            };
        }
        pause
    }

    fn accept(&mut self) {
        // An error concerns the one connection that could not be made; if there are no descriptors, later connections
        // wait.
        let Ok((stream, _)) = self.listener.accept() else {
            std::thread::sleep(Duration::from_millis(10));
            return;
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            self.cut_oldest();
        }
        let is_used = |token: &u64| self.connections.iter().any(|connection| connection.token == *token);
        let Some(token) = (FIRST..).find(|token| !is_used(token)) else { return };
        if self.poller.add(&stream, token).is_ok() {
            let until = Instant::now() + self.patience;
            let is_local = stream.local_addr().map_or(true, |address| address.ip().to_canonical().is_loopback());
            let stage = HttpStage::Request(Vec::new());
            self.connections.push(HttpConnection { stream, is_local, token, until, stage });
            self.go_on(token); // most requests arrive together with the connection
        }
    }

    /// Closes a connection to make room, so that slow clients cannot keep out others: first those whose request is
    /// incomplete, then those that have their answer.
    fn cut_oldest(&mut self) {
        let order = |connection: &HttpConnection| match connection.stage {
            HttpStage::Request(_) => (0, connection.until),
            HttpStage::Rest(_) => (1, connection.until),
            HttpStage::Answer { .. } => (2, connection.until),
        };
        let oldest = (0..self.connections.len()).min_by_key(|at| order(&self.connections[*at]));
        oldest.into_iter().for_each(|at| drop(self.connections.swap_remove(at)));
    }

    fn go_on(&mut self, token: u64) {
        let Some(at) = self.connections.iter().position(|connection| connection.token == token) else { return };
        let connection = &mut self.connections[at];
        let waited_for = connection.waits_for();
        let next = connection.go_on(&mut self.answers, self.patience);
        let stream = &connection.stream;
        let keeps = match next {
            NextStep::Close => false,
            same if same == waited_for => true,
            NextStep::Room => self.poller.remove(stream).and_then(|()| self.poller.add_writable(stream, token)).is_ok(),
            NextStep::Input => self.poller.remove(stream).and_then(|()| self.poller.add(stream, token)).is_ok(),
        };
        if !keeps {
            self.connections.swap_remove(at);
        }
    }
}

impl HttpConnection {
    fn waits_for(&self) -> NextStep {
        if matches!(self.stage, HttpStage::Answer { .. }) { NextStep::Room } else { NextStep::Input }
    }

    fn go_on(&mut self, answers: &mut ScrapeAnswers, patience: Duration) -> NextStep {
        let mut buffer = [0; 2048];
        match &mut self.stage {
            HttpStage::Request(request) => match self.stream.read(&mut buffer) {
                Ok(0) => NextStep::Close,
                Ok(count) => {
                    request.extend_from_slice(&buffer[..count]);
                    let Some(bytes) = answers.respond(request, self.is_local) else { return NextStep::Input };
                    self.stage = HttpStage::Answer { bytes, sent: 0 };
                    self.until = Instant::now() + patience;
                    self.send()
                }
                Err(err) if is_temporary(&err) => NextStep::Input,
                Err(_) => NextStep::Close,
            },
            HttpStage::Answer { .. } => self.send(),
            HttpStage::Rest(bytes) => match self.stream.read(&mut buffer) {
                Ok(count @ 1..) if *bytes < MAX_REST_BYTES => {
                    *bytes += count;
                    NextStep::Input
                }
                Err(err) if is_temporary(&err) => NextStep::Input,
                Ok(_) | Err(_) => NextStep::Close,
            },
        }
    }

    fn send(&mut self) -> NextStep {
        let HttpStage::Answer { bytes, sent } = &mut self.stage else { return NextStep::Close };
        while let Some(rest @ [_, ..]) = bytes.get(*sent..) {
            match self.stream.write(rest) {
                Ok(count) => *sent += count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) if is_temporary(&err) => return NextStep::Room,
                Err(_) => return NextStep::Close,
            }
        }
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return NextStep::Close;
        }
        (self.stage, self.until) = (HttpStage::Rest(0), Instant::now() + REST);
        NextStep::Input
    }
}

fn is_temporary(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::metrics::answers::{MAX_HEAD_BYTES, MAX_HEADERS};
    use crate::output::metrics::family::{FamilyKind, MetricFamily, MetricUnit, MetricValue, MetricsSnapshot};

    fn server(patience: Duration) -> MetricsServer {
        let server = MetricsServer::with_patience("127.0.0.1:0".parse().unwrap(), patience).unwrap();
        let family = MetricFamily::new("x", FamilyKind::Gauge, MetricUnit::None, "");
        let families = vec![family.with(Arc::from([]), MetricValue::Number(7))];
        server.snapshots().publish(MetricsSnapshot { families });
        server
    }

    /// Longer than a test machine may be stopped.
    const LONG: Duration = Duration::from_secs(300);

    fn send(server: &MetricsServer, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    fn answer_to(server: &MetricsServer, request: &[u8]) -> String {
        let mut answer = String::new();
        send(server, request).read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_are_answered() {
        let server = server(LONG);
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD_BYTES));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_HEADERS + 1));
        let cases: [(&str, &str); 11] = [
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
            ("GET /metrics?name[]=x HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /healthz HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            ("DELETE /metricsx HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("\x16\x03\x01\x02 TLS here", "400 Bad Request"),
            ("GET\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/9.9\r\n\r\n", "400 Bad Request"),
            (&long, "431 Request Header Fields Too Large"),
            (&many, "400 Bad Request"),
        ];
        for (request, status) in cases {
            let answer = answer_to(&server, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
        }
        let answer = answer_to(&server, cases[0].0.as_bytes());
        assert!(answer.contains("openmetrics-text; version=1.0.0") && answer.ends_with("\nx 7\n# EOF\n"), "{answer}");
        let healthy = answer_to(&server, cases[2].0.as_bytes());
        assert!(healthy.ends_with("\r\n\r\nok\n"), "{healthy}");
    }

    /// A request that arrives byte by byte, and one whose client sends more than it should.
    #[test]
    fn slow_and_talkative_clients_get_their_answer() {
        let server = server(LONG);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" {
            stream.write_all(&[*byte]).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
        let more = [&b"GET /healthz HTTP/1.1\r\n\r\n"[..], &[b'x'; 100_000]].concat();
        assert!(answer_to(&server, &more).ends_with("\r\n\r\nok\n"));
    }

    /// A client that finishes its request gets its answer, however many others do not.
    #[test]
    fn slow_clients_keep_nobody_out() {
        let server = server(LONG);
        let mut silent: Vec<TcpStream> = (0..3 * MAX_CONNECTIONS).map(|_| send(&server, b"GET /met")).collect();
        assert!(answer_to(&server, b"GET /healthz HTTP/1.1\r\n\r\n").ends_with("ok\n"));
        let (oldest, newest) = silent.split_at_mut(2 * MAX_CONNECTIONS);
        for stream in oldest {
            let mut end = Vec::new();
            let _ = stream.read_to_end(&mut end); // the end, or a reset
            assert!(end.is_empty());
        }
        let latest = newest.last_mut().unwrap();
        latest.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        latest.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    /// A client that says nothing, and one that does not take its answer.
    #[test]
    fn slow_clients_are_cut() {
        let server = server(Duration::from_millis(20));
        let help = "x".repeat(16 << 20);
        let family = MetricFamily::new("x", FamilyKind::Gauge, MetricUnit::None, &help);
        server.snapshots().publish(MetricsSnapshot { families: vec![family] });
        let mut answer = Vec::new();
        let _ = send(&server, b"GET /met").read_to_end(&mut answer); // the end, or a reset
        assert_eq!(answer, b"");
        // The client is slow because of the pause; on a machine that stalls the pause may have to be longer.
        let is_cut = |pause: &Duration| {
            let mut stream = send(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
            std::thread::sleep(*pause);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer.len() < help.len()
        };
        let mut pauses = (6..16).map(|power| Duration::from_millis(1 << power));
        assert!(pauses.any(|pause| is_cut(&pause)));
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let server = server(LONG);
        let err = MetricsServer::start(server.address()).map(|_| ()).unwrap_err();
        assert!(format!("{err:#}").contains("cannot listen on 127.0.0.1:"), "{err:#}");
    }
}
