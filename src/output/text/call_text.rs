//! The text of a system call that begins: its arguments with strings in place of their addresses, numbers of processes and
//! descriptors decimal, flags by name; what is not known as the kernel prints it.

use std::io::Write;

use crate::report::{ArgumentText, ArgumentTexts};
use crate::tep::format::Format;
use crate::tep::format::field::Field;
use crate::tep::syscalls::call_text::{CallArguments, CallResult, socket_address, words};
use crate::tep::syscalls::syscall_strings::is_message;

/// Appends the arguments, not escaped but for quotes: `dfd: AT_FDCWD, filename: "/etc/passwd", flags: O_RDONLY`.
pub fn render(format: &Format, known: Option<&CallArguments>, texts: ArgumentTexts<'_>, out: &mut Vec<u8>) {
    let mut args = [0; 6];
    for (arg, field) in args.iter_mut().zip(format.user_fields().skip(1)) {
        *arg = field.read_u64(texts.raw).unwrap_or(0);
    }
    let mut value = String::new();
    for (index, field) in format.user_fields().skip(1).enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b": ");
        let text = texts.at(field.offset);
        match text {
            Some(ArgumentText::Read(text)) => push_quoted(text, out),
            Some(ArgumentText::Cut(text)) => {
                push_quoted(text, out);
                out.extend_from_slice(b"...");
            }
            Some(ArgumentText::Late(text)) => {
                push_quoted(text, out);
                out.extend_from_slice(b" (read late)");
            }
            Some(ArgumentText::SocketAddress(address)) => {
                value.clear();
                socket_address::push(address, &mut value);
                out.extend_from_slice(if is_message(field) { b"to " } else { b"" });
                out.extend_from_slice(value.as_bytes());
            }
            Some(ArgumentText::Words(list)) => {
                value.clear();
                words::push(list, &mut value);
                out.extend_from_slice(value.as_bytes());
            }
            Some(ArgumentText::Unread(_) | ArgumentText::UnreadData(_)) | None => {
                value.clear();
                // Writing to a Vec cannot fail.
                let _ = match field.read_u64(texts.raw) {
                    Ok(_) if known.is_some_and(|known| known.push(index, &args, &mut value)) => write!(out, "{value}"),
                    Ok(number) => write!(out, "0x{number:08x}"),
                    Err(_) => write!(out, "?"),
                };
            }
        }
        if let Some(ArgumentText::Unread(unread) | ArgumentText::UnreadData(unread)) = text {
            let _ = write!(out, " (unread: {})", unread.reason());
        }
    }
}

/// Appends what a call has returned: `3`, `-1 ENOENT`.
pub fn render_result((result, field): &(CallResult, Field), raw: &[u8], out: &mut Vec<u8>) {
    let mut text = String::new();
    match field.read_i64(raw) {
        Ok(ret) => result.push(ret, &mut text),
        Err(_) => text.push('?'),
    }
    out.extend_from_slice(text.as_bytes());
}

fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ArgumentTextWriter, UnreadText};

    const FORMAT: &str = "name: sys_enter_openat\nID: 1\nformat:\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";

    #[test]
    fn results_are_numbers_or_errors() {
        let format = "name: sys_exit_openat\nID: 1\nformat:\n\
            \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n";
        let ret = Format::parse("syscalls", format).unwrap().field("ret").cloned().unwrap();
        let text = |number: libc::c_long, ret_value: i64| {
            let raw = [[0; 16].as_slice(), &ret_value.to_ne_bytes()].concat();
            let mut out = Vec::new();
            render_result(&(CallResult::of(number as u32), ret.clone()), &raw, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(libc::SYS_openat, 3), "3");
        assert_eq!(text(libc::SYS_openat, -2), "-1 ENOENT");
        assert_eq!(text(libc::SYS_mmap, 0x7f00), "0x7f00");
        assert_eq!(text(9999, -512), "? ERESTARTSYS");
    }

    #[test]
    fn strings_stand_for_their_addresses() {
        let format = Format::parse("syscalls", FORMAT).unwrap();
        let words = [0_u64, 257, u64::MAX - 99, 0x7ffd_0010, 0x80000];
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |text: Option<ArgumentText<'_>>, known: Option<&CallArguments>| {
            let mut bytes = Vec::new();
            let mut writer = ArgumentTextWriter::new(&mut bytes, &raw);
            text.into_iter().for_each(|text| writer.push(24, text));
            let mut out = Vec::new();
            render(&format, known, ArgumentTexts::split(writer.finish()), &mut out);
            String::from_utf8(out).unwrap()
        };
        let cases = [
            (Some(ArgumentText::Read(b"/etc/a\"b")), r#""/etc/a\"b""#),
            (Some(ArgumentText::Cut(b"/aa")), r#""/aa"..."#),
            (Some(ArgumentText::Late(b"/late")), r#""/late" (read late)"#),
            (Some(ArgumentText::Unread(UnreadText::NotInMemory)), "0x7ffd0010 (unread: not in memory)"),
            (None, "0x7ffd0010"),
        ];
        for (string, want) in cases {
            assert_eq!(text(string, None), format!("dfd: 0xffffffffffffff9c, filename: {want}, flags: 0x00080000"));
            let known = CallArguments::of(libc::SYS_openat as u32);
            assert_eq!(
                text(string, known.as_ref()),
                format!("dfd: AT_FDCWD, filename: {want}, flags: O_RDONLY|O_CLOEXEC")
            );
        }
    }
}
