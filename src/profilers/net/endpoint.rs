//! Addresses of sockets: out of events, out of what accept returns, and as cells.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::report::Value;
use crate::tep::format::Format;
use crate::tep::{Field, drift};

/// An IP address and a port. An IPv4 address in an IPv6 socket is an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
}

impl Endpoint {
    pub fn new(address: impl Into<IpAddr>, port: u16) -> Endpoint {
        Endpoint { address: address.into().to_canonical(), port }
    }

    /// The endpoint in a `struct sockaddr`. None: it is of another family, or too short.
    pub fn parse(address: &[u8]) -> Option<Endpoint> {
        let family = u16::from_ne_bytes(*address.first_chunk()?);
        let port = u16::from_be_bytes(*address.get(2..)?.first_chunk()?);
        match i32::from(family) {
            libc::AF_INET => Some(Endpoint::new(Ipv4Addr::from(*address.get(4..)?.first_chunk::<4>()?), port)),
            libc::AF_INET6 => Some(Endpoint::new(Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?), port)),
            _ => None,
        }
    }
}

/// An address as a cell; blank for none.
pub fn address_value(address: Option<IpAddr>) -> Value {
    address.map_or(Value::None, |address| Value::Text(address.to_string().into()))
}

/// A port as a cell; blank for 0, which is none.
pub fn port_value(port: u16) -> Value {
    if port == 0 { Value::None } else { Value::Unsigned(port.into()) }
}

/// The fields with an endpoint: kernels have written endpoints in two ways.
#[derive(Clone, Debug)]
enum EndpointFields {
    /// A `struct sockaddr`.
    Whole(Box<Field>),
    /// The family, the address of IPv4, that of IPv6, and the port.
    Parts(Box<[Field; 4]>),
}

impl EndpointFields {
    /// The endpoint whose fields begin with this letter: `s` is ours, `d` is the other one.
    fn find(format: &Format, letter: char) -> Result<EndpointFields> {
        const SOCKADDR_BYTES: usize = 28; // of IPv6
        let field = |name: &str| Ok::<_, anyhow::Error>(drift::require(format, name)?.clone());
        let address = field(&format!("{letter}addr"))?;
        if address.size >= SOCKADDR_BYTES {
            return Ok(EndpointFields::Whole(Box::new(address)));
        }
        let v6 = field(&format!("{letter}addr_v6"))?;
        Ok(EndpointFields::Parts(Box::new([field("family")?, address, v6, field(&format!("{letter}port"))?])))
    }

    fn read(&self, raw: &[u8]) -> Option<Endpoint> {
        let [family, v4, v6, port] = match self {
            EndpointFields::Whole(field) => return Endpoint::parse(field.bytes(raw).ok()?),
            EndpointFields::Parts(parts) => &**parts,
        };
        let port = u16::try_from(port.read_u64(raw).ok()?).ok()?;
        if family.read_i32(raw).ok()? == libc::AF_INET6 {
            return Some(Endpoint::new(Ipv6Addr::from(*v6.bytes(raw).ok()?.first_chunk::<16>()?), port));
        }
        Some(Endpoint::new(Ipv4Addr::from(*v4.bytes(raw).ok()?.first_chunk::<4>()?), port))
    }
}

/// The two ends of a connection: ours and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ends {
    pub local: Endpoint,
    pub peer: Endpoint,
}

/// The fields with both ends.
#[derive(Clone, Debug)]
pub struct EndsFields([EndpointFields; 2]);

impl EndsFields {
    /// # Errors
    /// The event has no such fields.
    pub fn find(format: &Format) -> Result<EndsFields> {
        Ok(EndsFields([EndpointFields::find(format, 's')?, EndpointFields::find(format, 'd')?]))
    }

    /// None: the family has no such ends, or the record is too short.
    pub fn read(&self, raw: &[u8]) -> Option<Ends> {
        let [local, peer] = &self.0;
        Some(Ends { local: local.read(raw)?, peer: peer.read(raw)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockaddr(family: i32, port: u16, rest: &[u8]) -> Vec<u8> {
        [&(family as u16).to_ne_bytes()[..], &port.to_be_bytes(), rest].concat()
    }

    #[test]
    fn addresses_are_parsed() {
        let v6 = |address: &str| [&[0; 4][..], &address.parse::<Ipv6Addr>().unwrap().octets()].concat();
        let cases = [
            (sockaddr(libc::AF_INET, 80, &[10, 0, 0, 7]), Some(("10.0.0.7", 80))),
            (sockaddr(libc::AF_INET6, 443, &v6("2001:db8::1")), Some(("2001:db8::1", 443))),
            (sockaddr(libc::AF_INET6, 1, &v6("::ffff:10.0.0.7")), Some(("10.0.0.7", 1))),
            (sockaddr(libc::AF_UNIX, 80, &[10, 0, 0, 7]), None),
        ];
        for (bytes, want) in cases {
            let parsed = Endpoint::parse(&bytes);
            assert_eq!(parsed.map(|end| (end.address.to_string(), end.port)), want.map(|(ip, port)| (ip.into(), port)));
            for cut in 0..bytes.len() {
                assert!(Endpoint::parse(&bytes[..cut]).is_none() || cut >= 8, "cut at {cut}");
            }
        }
    }

    #[test]
    fn ends_are_found_in_both_forms() {
        let field = |name: &str, kind: &str, offset, size| {
            format!("\tfield:{kind} {name};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
        };
        let format = |fields: &[String]| {
            let text = format!("name: x\nID: 1\nformat:\n{}\nprint fmt: \"\"\n", fields.concat());
            Format::parse("tcp", &text).unwrap()
        };
        let parts = format(&[
            field("sport", "__u16", 0, 2),
            field("dport", "__u16", 2, 2),
            field("family", "__u16", 4, 2),
            field("saddr[4]", "__u8", 6, 4),
            field("daddr[4]", "__u8", 10, 4),
            field("saddr_v6[16]", "__u8", 14, 16),
            field("daddr_v6[16]", "__u8", 30, 16),
        ]);
        let whole = format(&[field("saddr[28]", "__u8", 0, 28), field("daddr[28]", "__u8", 28, 28)]);
        let mut raw = [0; 46];
        raw[..2].copy_from_slice(&80_u16.to_ne_bytes());
        raw[2..4].copy_from_slice(&4000_u16.to_ne_bytes());
        raw[4..6].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        raw[6..14].copy_from_slice(&[127, 0, 0, 1, 10, 0, 0, 7]);
        let want = Ends {
            local: Endpoint::new(Ipv4Addr::LOCALHOST, 80),
            peer: Endpoint::new(Ipv4Addr::new(10, 0, 0, 7), 4000),
        };
        assert_eq!(EndsFields::find(&parts).unwrap().read(&raw), Some(want));
        assert_eq!(EndsFields::find(&parts).unwrap().read(&raw[..20]), Some(want), "IPv6 fields are not needed");
        assert_eq!(EndsFields::find(&parts).unwrap().read(&raw[..12]), None);
        let mut raw = [0; 56];
        raw[..8].copy_from_slice(&sockaddr(libc::AF_INET, 80, &[127, 0, 0, 1]));
        raw[28..36].copy_from_slice(&sockaddr(libc::AF_INET, 4000, &[10, 0, 0, 7]));
        assert_eq!(EndsFields::find(&whole).unwrap().read(&raw), Some(want));
        assert!(EndsFields::find(&format(&[field("lport", "__u16", 0, 2)])).is_err());
    }
}
