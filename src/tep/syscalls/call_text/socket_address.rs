//! Addresses of sockets as text: `10.0.0.5:5432`, `[2001:db8::1]:443`, `"/run/x.sock"`, `@"abstract"`.
//!
//! A program may pass any bytes as an address: all of them have a text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::put;

/// `struct sockaddr_storage`. The kernel takes no longer address.
pub const MAX_ADDRESS_BYTES: usize = 128;

/// The bytes of an address that mean something: programs fill the rest with anything.
pub fn meaningful(address: &[u8]) -> &[u8] {
    let bytes = match family(address) {
        Some(libc::AF_INET) => 8,
        Some(libc::AF_INET6) => 28,
        Some(libc::AF_NETLINK) => 12,
        Some(libc::AF_UNSPEC) => 2,
        // A path ends at its NUL byte; the name of an abstract socket may have some.
        Some(libc::AF_UNIX) => match address.get(2..) {
            Some([first, ..]) if *first != 0 => {
                address.iter().skip(2).position(|byte| *byte == 0).map_or(address.len(), |end| 2 + end)
            }
            _ => address.len(),
        },
        _ => address.len(),
    };
    &address[..bytes.min(address.len())]
}

/// Appends an address.
pub fn push(address: &[u8], out: &mut String) {
    let known = match family(address) {
        Some(libc::AF_INET) => push_inet(address, out),
        Some(libc::AF_INET6) => push_inet6(address, out),
        Some(libc::AF_UNIX) => push_unix(address, out),
        Some(libc::AF_NETLINK) => push_netlink(address, out),
        Some(libc::AF_VSOCK) => push_vsock(address, out),
        Some(libc::AF_PACKET) => push_packet(address, out),
        Some(libc::AF_UNSPEC) => {
            out.push_str("AF_UNSPEC");
            Some(())
        }
        _ => None,
    };
    match (known, family(address)) {
        (Some(()), _) => {}
        (None, Some(family)) => {
            out.push('{');
            super::flags::FAMILY.push(family.cast_unsigned(), out);
            put(out, format_args!(", {} bytes}}", address.len()));
        }
        (None, None) => put(out, format_args!("{{{} bytes}}", address.len())),
    }
}

fn family(address: &[u8]) -> Option<i32> {
    address.first_chunk().map(|family| u16::from_ne_bytes(*family).into())
}

/// A number in the order of the network.
fn port(address: &[u8]) -> Option<u16> {
    address.get(2..)?.first_chunk().map(|port| u16::from_be_bytes(*port))
}

/// A number at an offset in the order of the machine.
fn number(address: &[u8], offset: usize) -> Option<u32> {
    address.get(offset..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// `struct sockaddr_in`: family, port, address.
fn push_inet(address: &[u8], out: &mut String) -> Option<()> {
    let ip: [u8; 4] = *address.get(4..)?.first_chunk()?;
    put(out, format_args!("{}:{}", Ipv4Addr::from(ip), port(address)?));
    Some(())
}

/// `struct sockaddr_in6`: family, port, flow, address, scope.
fn push_inet6(address: &[u8], out: &mut String) -> Option<()> {
    let ip: [u8; 16] = *address.get(8..)?.first_chunk()?;
    let port = port(address)?;
    match number(address, 24).unwrap_or(0) {
        0 => put(out, format_args!("[{}]:{port}", Ipv6Addr::from(ip))),
        scope => put(out, format_args!("[{}%{scope}]:{port}", Ipv6Addr::from(ip))),
    }
    Some(())
}

/// `struct sockaddr_un`: family, path. A name that begins with a NUL byte is abstract.
fn push_unix(address: &[u8], out: &mut String) -> Option<()> {
    let name = match meaningful(address).get(2..)? {
        [] => {
            out.push_str("AF_UNIX without a name");
            return Some(());
        }
        [0, name @ ..] => {
            out.push('@');
            name
        }
        name => name,
    };
    out.push('"');
    for &byte in name {
        match byte {
            b'"' => out.push_str("\\\""),
            0x20..=0x7e => out.push(byte.into()),
            _ => put(out, format_args!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    Some(())
}

/// `struct sockaddr_nl`: family, padding, port, groups. Port 0 is the kernel, or lets the kernel choose one.
fn push_netlink(address: &[u8], out: &mut String) -> Option<()> {
    let groups = number(address, 8)?;
    put(out, format_args!("netlink:{}", number(address, 4)?));
    if groups != 0 {
        put(out, format_args!("/{groups:#x}"));
    }
    Some(())
}

/// `struct sockaddr_vm`: family, reserved, port, context.
fn push_vsock(address: &[u8], out: &mut String) -> Option<()> {
    put(out, format_args!("vsock:{}:{}", number(address, 8)?.cast_signed(), number(address, 4)?.cast_signed()));
    Some(())
}

/// `struct sockaddr_ll`: family, protocol, interface.
fn push_packet(address: &[u8], out: &mut String) -> Option<()> {
    put(out, format_args!("packet:{:#06x}%{}", port(address)?, number(address, 4)?.cast_signed()));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(family: libc::c_int, rest: &[u8]) -> Vec<u8> {
        [&(family as u16).to_ne_bytes()[..], rest].concat()
    }

    fn text(address: &[u8]) -> String {
        let mut out = String::new();
        push(address, &mut out);
        out
    }

    #[test]
    fn addresses_read_as_people_write_them() {
        let loopback = [[0; 15].as_slice(), &[1]].concat();
        let inet6 =
            |scope: u32| of(libc::AF_INET6, &[&[1, 187, 9, 9, 9, 9][..], &loopback, &scope.to_ne_bytes()].concat());
        let words = |one: u32, other: u32| [[0; 2].as_slice(), &one.to_ne_bytes(), &other.to_ne_bytes()].concat();
        let cases = [
            (of(libc::AF_INET, &[0x15, 0x38, 10, 0, 0, 5, 7, 7, 7, 7, 7, 7, 7, 7]), "10.0.0.5:5432"),
            (of(libc::AF_INET, &[0, 53, 127, 0, 0, 53]), "127.0.0.53:53"),
            (inet6(0), "[::1]:443"),
            (inet6(3), "[::1%3]:443"),
            (of(libc::AF_UNIX, b"/run/x.sock\0junk"), "\"/run/x.sock\""),
            (of(libc::AF_UNIX, b"a \"b\"\x1b"), r#""a \"b\"\x1b""#),
            (of(libc::AF_UNIX, b"\0name\0\xff"), r#"@"name\x00\xff""#),
            (of(libc::AF_UNIX, b""), "AF_UNIX without a name"),
            (of(libc::AF_NETLINK, &words(0, 0)), "netlink:0"),
            (of(libc::AF_NETLINK, &words(812, 0x11)), "netlink:812/0x11"),
            (of(libc::AF_VSOCK, &words(1024, 2)), "vsock:2:1024"),
            (of(libc::AF_PACKET, &[8, 0, 2, 0, 0, 0]), "packet:0x0800%2"),
            (of(libc::AF_UNSPEC, b"1234"), "AF_UNSPEC"),
            (of(libc::AF_BLUETOOTH, b"1234"), "{AF_BLUETOOTH, 6 bytes}"),
            (of(0xffff, b""), "{65535, 2 bytes}"),
            (vec![2], "{1 bytes}"),
            (vec![], "{0 bytes}"),
        ];
        for (address, want) in cases {
            assert_eq!(text(&address), want, "{address:?}");
            assert_eq!(meaningful(meaningful(&address)), meaningful(&address));
            let known = !matches!(want.as_bytes().first(), Some(b'{'));
            assert!(!known || text(meaningful(&address)) == want, "{address:?}");
        }
    }

    #[test]
    fn what_is_cut_has_a_text() {
        for family in 0..64 {
            let address = of(family, &[0x41; MAX_ADDRESS_BYTES]);
            for len in 0..address.len() {
                assert!(
                    !text(&address[..len]).is_empty() && meaningful(&address[..len]).len() <= len,
                    "{family} {len}"
                );
            }
        }
    }
}
