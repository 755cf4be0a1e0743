//! The events of `net`: what each says, its fields, and the kernel's filter.

use anyhow::Result;

use crate::perf::evsel::Binding;
use crate::perf::{EventId, Evlist};
use crate::profiler::Setup;
use crate::profilers::net::endpoint::{Ends, EndsFields};
use crate::profilers::net::table::ReasonNames;
use crate::tep::{Field, PrintFmt, drift};

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetStep {
    State,
    ResetReceived,
    ResetSent,
    /// A socket has an error, which its program may ask for.
    Error,
    SentAgain,
    /// The answer to a connect of a peer was sent again.
    AnswerSentAgain,
    /// Belongs to no task: left out when the run is about tasks.
    Dropped,
    /// As `Dropped`.
    QueueFull,
    /// Only with `--bytes`.
    Sent,
    /// As `Sent`.
    Received,
}

/// The events; each with its fields that are numbers, which not all kernels have, and the kernel's filter.
const EVENTS: [(&str, NetStep, [&str; 3], Option<&str>); 10] = [
    (
        "sock:inet_sock_set_state",
        NetStep::State,
        ["oldstate", "newstate", ""],
        Some("protocol == 6 && (newstate == 1 || newstate == 2 || newstate == 7 || newstate == 10)"),
    ),
    ("tcp:tcp_receive_reset", NetStep::ResetReceived, ["", "", ""], None),
    ("tcp:tcp_send_reset", NetStep::ResetSent, ["reason", "", ""], None),
    ("sock:inet_sk_error_report", NetStep::Error, ["error", "", ""], Some("protocol == 6 && error != 0")),
    ("tcp:tcp_retransmit_skb", NetStep::SentAgain, ["state", "", ""], None),
    ("tcp:tcp_retransmit_synack", NetStep::AnswerSentAgain, ["", "", ""], None),
    ("skb:kfree_skb", NetStep::Dropped, ["reason", "location", "protocol"], None),
    ("udp:udp_fail_queue_rcv_skb", NetStep::QueueFull, ["rc", "lport", ""], None),
    ("sock:sock_send_length", NetStep::Sent, ["ret", "family", "protocol"], Some("ret > 0")),
    // A look at what waits, MSG_PEEK, takes nothing.
    ("sock:sock_recv_length", NetStep::Received, ["ret", "family", "protocol"], Some("ret > 0 && !(flags & 2)")),
];

/// States of a connection, include/net/tcp_states.h.
pub const ESTABLISHED: u64 = 1;
pub const SYN_SENT: u64 = 2;
pub const SYN_RECV: u64 = 3;
pub const CLOSE: u64 = 7;
pub const LISTEN: u64 = 10;

#[derive(Debug)]
pub struct NetEvent {
    event: EventId,
    pub step: NetStep,
    socket: Option<Field>,
    ends: Option<EndsFields>,
    numbers: [Option<Field>; 3],
}

impl NetEvent {
    /// The numbers of a record. None: this kernel does not tell.
    ///
    /// # Errors
    /// The record is too short.
    pub fn numbers(&self, raw: &[u8]) -> Result<[Option<u64>; 3]> {
        let mut numbers = [None; 3];
        for (number, field) in numbers.iter_mut().zip(&self.numbers) {
            *number = field.as_ref().map(|field| field.read_u64(raw)).transpose()?;
        }
        Ok(numbers)
    }

    /// The address of the socket; 0: there is none.
    ///
    /// # Errors
    /// The record is too short.
    pub fn socket(&self, raw: &[u8]) -> Result<u64> {
        Ok(self.socket.as_ref().map_or(Ok(0), |field| field.read_u64(raw))?)
    }

    /// The ends of the connection. None: it is of a family that has none, or this kernel does not tell.
    pub fn ends(&self, raw: &[u8]) -> Option<Ends> {
        self.ends.as_ref()?.read(raw)
    }
}

/// The events of a run.
#[derive(Debug, Default)]
pub struct NetEvents {
    events: Vec<NetEvent>,
    /// The kernel tells the errors of sockets.
    pub tells_errors: bool,
    pub reset_reasons: ReasonNames,
    pub drop_reasons: ReasonNames,
}

impl NetEvents {
    /// Adds the events that are wanted and that this kernel has.
    ///
    /// # Errors
    /// The kernel lacks the event of the states of connections, or its fields.
    pub fn add_all(wanted: impl Fn(NetStep) -> bool, evlist: &mut Evlist, setup: &Setup<'_>) -> Result<NetEvents> {
        let mut events = NetEvents::default();
        for event in EVENTS.into_iter().filter(|(_, step, ..)| wanted(*step)) {
            events.add(event, evlist, setup)?;
        }
        Ok(events)
    }

    pub fn find(&self, event: EventId) -> Option<&NetEvent> {
        self.events.iter().find(|of| of.event == event)
    }

    fn add(
        &mut self,
        (name, step, numbers, filter): (&str, NetStep, [&str; 3], Option<&str>),
        evlist: &mut Evlist,
        setup: &Setup<'_>,
    ) -> Result<()> {
        let is_needed = step == NetStep::State;
        let (evsel, format) = match setup.tracepoint(name) {
            Err(_) if !is_needed => {
                setup.warn(format!("this kernel has no event {name}: what only it tells is left out"));
                return Ok(());
            }
            found => found?,
        };
        let takes_stack = setup.stacks && step == NetStep::State;
        let event = evlist.add(evsel.binding(Binding::Cpu).callchain_if(takes_stack, 0))?;
        if let Some(filter) = filter {
            evlist.set_filter(event, filter)?;
        }
        let reasons = match step {
            NetStep::ResetSent => Some(&mut self.reset_reasons),
            NetStep::Dropped => Some(&mut self.drop_reasons),
            _ => None,
        };
        if let Some(reasons) = reasons {
            let table = PrintFmt::compile(&format).ok().and_then(|print| print.flag_table("reason"));
            let names = table.into_iter().flat_map(|table| table.entries);
            reasons.extend(names.map(|(number, name)| (number, name.into())));
        }
        if is_needed {
            drift::require(&format, "skaddr")?;
            EndsFields::find(&format)?;
        }
        self.tells_errors |= step == NetStep::Error;
        let field = |name: &str| format.field(name).cloned();
        let socket = field("skaddr").or_else(|| field("sk"));
        let (ends, numbers) = (EndsFields::find(&format).ok(), numbers.map(field));
        self.events.push(NetEvent { event, step, socket, ends, numbers });
        Ok(())
    }
}
