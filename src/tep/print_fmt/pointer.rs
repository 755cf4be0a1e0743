//! `%p` and its many extensions: symbols, addresses of networks, hex dumps, bit masks.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::bitmap;
use super::calls::render_hex;
use super::expr::NoValue;

/// What the letters after `%p` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// The address itself, 16 digits: what tracefs prints with the option `hash-ptr` off.
    Address,
    /// A kernel symbol, `%pS` with the offset in it, `%ps` without.
    Symbol { with_offset: bool },
    /// `%pa`: the physical address pointed to.
    Physical,
    /// `%pM`
    Mac { separator: Option<u8>, reversed: bool },
    /// `%pI4`; `%pi4` pads with zeros.
    Ip4 { padded: bool },
    /// `%pI6c`, `%pI6`; `%pi6` has no colons.
    Ip6 { compressed: bool, colons: bool },
    /// `%pIS`: the family decides; `p` adds the port.
    Socket { port: bool, compressed: bool, flow: bool, scope: bool },
    /// `%pU`
    Uuid { little: bool, upper: bool },
    /// `%*ph`; the width is the number of bytes.
    Hex { separator: Option<u8> },
    /// `%*pb`; the width is the number of bits.
    Bitmap { list: bool },
    /// Data behind a pointer of the kernel, such as `%pd`: it is not in the record.
    Foreign,
}

impl PointerKind {
    pub fn parse(code: &[u8]) -> PointerKind {
        let has = |letter| code.contains(&letter);
        match code {
            [] | [b'x' | b'K', ..] => PointerKind::Address,
            [b'S' | b'F' | b'B', ..] => PointerKind::Symbol { with_offset: true },
            [b's' | b'f', ..] => PointerKind::Symbol { with_offset: false },
            [b'a', ..] => PointerKind::Physical,
            [b'M', rest @ ..] => PointerKind::Mac {
                separator: Some(if rest.contains(&b'F') { b'-' } else { b':' }),
                reversed: rest.contains(&b'R'),
            },
            [b'm', rest @ ..] => PointerKind::Mac { separator: None, reversed: rest.contains(&b'R') },
            // `h n b l` after it choose the byte order; only network order occurs.
            [b'I' | b'i', b'4'] | [b'I' | b'i', b'4', b'b' | b'n', ..] => {
                PointerKind::Ip4 { padded: code.first() == Some(&b'i') }
            }
            [letter @ (b'I' | b'i'), b'6', ..] => {
                PointerKind::Ip6 { compressed: *letter == b'I' && has(b'c'), colons: *letter == b'I' }
            }
            [b'I', b'S', rest @ ..] => PointerKind::Socket {
                port: rest.contains(&b'p'),
                compressed: rest.contains(&b'c'),
                flow: rest.contains(&b'f'),
                scope: rest.contains(&b's'),
            },
            [b'U', rest @ ..] => PointerKind::Uuid {
                little: matches!(rest, [b'l' | b'L', ..]),
                upper: matches!(rest, [b'L' | b'B', ..]),
            },
            [b'h', rest @ ..] => PointerKind::Hex {
                separator: match rest {
                    [b'C', ..] => Some(b':'),
                    [b'D', ..] => Some(b'-'),
                    [b'N', ..] => None,
                    _ => Some(b' '),
                },
            },
            [b'b', rest @ ..] => PointerKind::Bitmap { list: rest.first() == Some(&b'l') },
            _ => PointerKind::Foreign,
        }
    }

    /// Whether the data behind the pointer is printed, so that the pointer must point into the record.
    pub fn dereferences(self) -> bool {
        !matches!(self, PointerKind::Address | PointerKind::Symbol { .. })
    }

    /// Whether the width is a number of bytes or bits instead of columns.
    pub fn counts(self) -> bool {
        matches!(self, PointerKind::Hex { .. } | PointerKind::Bitmap { .. })
    }

    /// Prints `bytes`, the data behind the pointer. `count` is the width, if there is one.
    pub fn render(self, bytes: &[u8], count: Option<usize>, out: &mut Vec<u8>) -> Result<(), NoValue> {
        match self {
            PointerKind::Address | PointerKind::Symbol { .. } | PointerKind::Foreign => return Err(NoValue),
            PointerKind::Physical => {
                // Writing to a Vec cannot fail, here and below.
                let _ = match *bytes {
                    [a, b, c, d] => write!(out, "{:#010x}", u32::from_ne_bytes([a, b, c, d])),
                    _ => write!(out, "{:#018x}", u64::from_ne_bytes(array(bytes, 0)?)),
                };
            }
            PointerKind::Mac { separator, reversed } => {
                let mut mac: [u8; 6] = array(bytes, 0)?;
                if reversed {
                    mac.reverse();
                }
                render_hex(&mac, separator.as_slice(), out);
            }
            PointerKind::Ip4 { padded } => render_ip4(array(bytes, 0)?, padded, out),
            PointerKind::Ip6 { compressed, colons } => render_ip6(array(bytes, 0)?, compressed, colons, out),
            PointerKind::Socket { .. } => self.render_socket(bytes, out)?,
            PointerKind::Uuid { little, upper } => render_uuid(array(bytes, 0)?, little, upper, out),
            PointerKind::Hex { separator } => {
                let bytes = bytes.get(..count.unwrap_or(1).min(64)).ok_or(NoValue)?;
                render_hex(bytes, separator.as_slice(), out);
            }
            PointerKind::Bitmap { list } => {
                let bits = count.unwrap_or(0);
                if bits.div_ceil(8) > bytes.len() {
                    return Err(NoValue);
                }
                let render = if list { bitmap::render_list } else { bitmap::render_hex };
                render(bytes, bits, out);
            }
        }
        Ok(())
    }

    fn render_socket(self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
        const AF_INET: u16 = 2;
        const AF_INET6: u16 = 10;
        let PointerKind::Socket { port: with_port, compressed, flow, scope } = self else { return Err(NoValue) };
        let port = || array(bytes, 2).map(u16::from_be_bytes);
        match u16::from_ne_bytes(array(bytes, 0)?) {
            AF_INET => {
                render_ip4(array(bytes, 4)?, false, out);
                if with_port {
                    let _ = write!(out, ":{}", port()?);
                }
            }
            AF_INET6 => {
                let bracket = with_port || flow || scope;
                out.extend_from_slice(if bracket { b"[" } else { b"" });
                render_ip6(array(bytes, 8)?, compressed, true, out);
                out.extend_from_slice(if bracket { b"]" } else { b"" });
                if with_port {
                    let _ = write!(out, ":{}", port()?);
                }
                if flow {
                    let _ = write!(out, "/{}", u32::from_be_bytes(array(bytes, 4)?) & 0x0fff_ffff);
                }
                if scope {
                    let _ = write!(out, "%{}", u32::from_ne_bytes(array(bytes, 24)?));
                }
            }
            _ => out.extend_from_slice(b"(einval)"),
        }
        Ok(())
    }
}

/// `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], NoValue> {
    bytes.get(offset..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(NoValue)
}

fn render_ip4(ip: [u8; 4], padded: bool, out: &mut Vec<u8>) {
    let [a, b, c, d] = ip;
    let _ = if padded { write!(out, "{a:03}.{b:03}.{c:03}.{d:03}") } else { write!(out, "{}", Ipv4Addr::from(ip)) };
}

fn render_ip6(ip: [u8; 16], compressed: bool, colons: bool, out: &mut Vec<u8>) {
    if compressed {
        let _ = write!(out, "{}", Ipv6Addr::from(ip));
        return;
    }
    for (index, pair) in ip.chunks_exact(2).enumerate() {
        if index > 0 && colons {
            out.push(b':');
        }
        render_hex(pair, b"", out);
    }
}

fn render_uuid(mut uuid: [u8; 16], little: bool, upper: bool, out: &mut Vec<u8>) {
    if little {
        for (start, end) in [(0, 4), (4, 6), (6, 8)] {
            if let Some(group) = uuid.get_mut(start..end) {
                group.reverse();
            }
        }
    }
    let start = out.len();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    if upper && let Some(text) = out.get_mut(start..) {
        text.make_ascii_uppercase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_data_behind_pointers() {
        let v4 = [2, 0, 0, 80, 127, 0, 0, 1];
        let mut v6 = [0u8; 28];
        v6[0] = 10;
        v6[3] = 80;
        v6[23] = 1;
        let bytes: Vec<u8> = (1..=16).collect();
        let cases: [(&str, &[u8], Option<usize>, &str); 18] = [
            ("M", &bytes, None, "01:02:03:04:05:06"),
            ("MR", &bytes, None, "06:05:04:03:02:01"),
            ("m", &bytes, None, "010203040506"),
            ("I4", &bytes, None, "1.2.3.4"),
            ("i4", &bytes, None, "001.002.003.004"),
            ("I6", &bytes, None, "0102:0304:0506:0708:090a:0b0c:0d0e:0f10"),
            ("i6", &bytes, None, "0102030405060708090a0b0c0d0e0f10"),
            ("I6c", &[0; 16], None, "::"),
            ("ISpc", &v4, None, "127.0.0.1:80"),
            ("ISpc", &v6, None, "[::1]:80"),
            ("ISc", &v6, None, "::1"),
            ("ISpc", &bytes, None, "(einval)"),
            ("U", &bytes, None, "01020304-0506-0708-090a-0b0c0d0e0f10"),
            ("Ul", &bytes, None, "04030201-0605-0807-090a-0b0c0d0e0f10"),
            ("UB", &bytes, None, "01020304-0506-0708-090A-0B0C0D0E0F10"),
            ("h", &bytes, Some(3), "01 02 03"),
            ("hN", &bytes, Some(3), "010203"),
            ("bl", &bytes, Some(16), "0,9"),
        ];
        for (code, bytes, count, want) in cases {
            let mut out = Vec::new();
            let kind = PointerKind::parse(code.as_bytes());
            kind.render(bytes, count, &mut out).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), want, "%p{code}");
        }
    }

    #[test]
    fn meets_short_bytes() {
        for code in ["M", "m", "I4", "I6c", "I6", "ISpfsc", "U", "a", "h", "bl"] {
            let kind = PointerKind::parse(code.as_bytes());
            for len in 0..30 {
                let _ = kind.render(&vec![10; len], Some(500), &mut Vec::new());
                assert!(kind.render(&[], Some(4), &mut Vec::new()).is_err(), "%p{code}");
            }
        }
        assert_eq!(PointerKind::parse(b"V"), PointerKind::Foreign);
    }
}
