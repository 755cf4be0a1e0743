//! Which arguments of a system call are strings or addresses of sockets, by the declarations in its event's format.

use crate::tep::format::Format;
use crate::tep::format::field::Field;
use crate::tep::syscalls::{entered_call, without_user_text};

/// Calls whose `char *` are strings though they are not `const`.
const NOT_CONST: [&str; 2] = ["mount", "umount"];
/// Arguments that are `const char *`, but data without a NUL byte at the end.
const DATA: [&str; 1] = ["buf"];

/// The number of each argument that is a string, and its offset in the record. Empty where the kernel copies the strings
/// into the record itself.
pub fn string_arguments(format: &Format) -> Vec<(u8, u16)> {
    let event = format.full_name();
    let Some(call) = entered_call(&event) else { return Vec::new() };
    if !has_arguments_alone(format) {
        return Vec::new();
    }
    let is_string = |declared: &str, name: &str| match declared {
        "const char *" => !DATA.contains(&name),
        "char *" => NOT_CONST.contains(&call),
        _ => false,
    };
    let strings = arguments(format).filter(|(_, field)| field.size == 8 && is_string(&field.declared, &field.name));
    strings.filter_map(place).collect()
}

/// The number and offset of the argument that is the address of a socket, if the program passes one: then its length is
/// the next argument. If the call returns an address, the next argument is a pointer.
pub fn socket_address_argument(format: &Format) -> Option<(u8, u16)> {
    entered_call(&format.full_name()).filter(|_| has_arguments_alone(format))?;
    let lengths = arguments(format).skip(1).map(|(_, field)| field);
    let is_given = |((_, address), length): &((usize, &Field), &Field)| {
        address.declared == "struct sockaddr *"
            && length.declared == "int"
            && (address.size, length.size, length.offset) == (8, 8, address.offset + 8)
    };
    arguments(format).zip(lengths).find(is_given).and_then(|(address, _)| place(address))
}

/// The offsets of the two arguments for the address of a socket that a call returns: the buffer, and where its length
/// is, if the call has such.
pub fn returned_address_argument(format: &Format) -> Option<(u16, u16)> {
    entered_call(&format.full_name()).filter(|_| has_arguments_alone(format))?;
    let lengths = arguments(format).skip(1).map(|(_, field)| field);
    let is_returned = |((_, buffer), length): &((usize, &Field), &Field)| {
        buffer.declared == "struct sockaddr *" && length.declared == "int *" && (buffer.size, length.size) == (8, 8)
    };
    let ((_, buffer), length) = arguments(format).zip(lengths).find(is_returned)?;
    Some((u16::try_from(buffer.offset).ok()?, u16::try_from(length.offset).ok()?))
}

/// The number and offset of the argument that is a list of strings, up to a null pointer: the arguments of a program
/// that is executed. The environment, which may hold secrets, is left out.
pub fn word_list_argument(format: &Format) -> Option<(u8, u16)> {
    entered_call(&format.full_name()).filter(|_| has_arguments_alone(format))?;
    let is_list =
        |(_, field): &(usize, &Field)| field.size == 8 && field.name == "argv" && field.declared.contains("char");
    arguments(format).find(is_list).and_then(place)
}

/// The number and offset of the argument that is a message to be sent, with the address that it goes to.
pub fn message_argument(format: &Format) -> Option<(u8, u16)> {
    entered_call(&format.full_name()).filter(|call| *call == "sendmsg" && has_arguments_alone(format))?;
    arguments(format).find(|(_, field)| field.size == 8 && is_message(field)).and_then(place)
}

/// An argument that points to a message.
pub fn is_message(field: &Field) -> bool {
    matches!(&*field.declared, "struct user_msghdr *" | "struct msghdr *") // before 3.19, and after
}

/// True when the kernel copies no strings into the record.
fn has_arguments_alone(format: &Format) -> bool {
    without_user_text(format).fields.len() == format.fields.len()
}

fn arguments(format: &Format) -> impl Iterator<Item = (usize, &Field)> {
    format.user_fields().skip(1).enumerate() // behind the number of the call
}

fn place((index, field): (usize, &Field)) -> Option<(u8, u16)> {
    Some((u8::try_from(index).ok()?, u16::try_from(field.offset).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(name: &str, arguments: &[&str]) -> Format {
        let mut text =
            format!("name: {name}\nID: 1\nformat:\n\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n");
        for (index, declaration) in arguments.iter().enumerate() {
            let (at, size) = (16 + 8 * index, if declaration.starts_with("__data_loc") { 4 } else { 8 });
            text += &format!("\tfield:{declaration};\toffset:{at};\tsize:{size};\tsigned:0;\n");
        }
        Format::parse("syscalls", &(text + "\nprint fmt: \"\"\n")).unwrap()
    }

    #[test]
    fn strings_are_told_from_other_pointers() {
        type Arguments = &'static [(u8, u16)];
        let cases: [(&str, &[&str], Arguments); 8] = [
            ("sys_enter_openat", &["int dfd", "const char * filename", "int flags", "umode_t mode"], &[(1, 24)]),
            ("sys_enter_rename", &["const char * oldname", "const char * newname"], &[(0, 16), (1, 24)]),
            ("sys_enter_execve", &["const char * filename", "const char *const * argv"], &[(0, 16)]),
            ("sys_enter_write", &["unsigned int fd", "const char * buf", "size_t count"], &[]),
            (
                "sys_enter_mount",
                &["char * dev_name", "char * dir_name", "char * type", "unsigned long flags", "void * data"],
                &[(0, 16), (1, 24), (2, 32)],
            ),
            ("sys_enter_getcwd", &["char * buf", "unsigned long size"], &[]),
            ("sys_exit_openat", &["const char * ret"], &[]),
            ("sys_enter_openat", &["int dfd", "const char * filename", "__data_loc char[] __filename_val"], &[]),
        ];
        for (name, arguments, want) in cases {
            assert_eq!(string_arguments(&format(name, arguments)), want, "{name}");
        }
    }

    #[test]
    fn messages_that_are_sent_have_an_address() {
        let message = ["int fd", "struct user_msghdr * msg", "unsigned int flags"];
        assert_eq!(message_argument(&format("sys_enter_sendmsg", &message)), Some((1, 24)));
        assert_eq!(message_argument(&format("sys_enter_recvmsg", &message)), None, "the call returns it");
        assert_eq!(message_argument(&format("sys_exit_sendmsg", &message)), None);
    }

    #[test]
    fn arguments_of_programs_are_a_list() {
        let exec = ["const char * filename", "const char *const * argv", "const char *const * envp"];
        let exec_at = ["int fd", "const char * filename", "const char *const * argv", "const char *const * envp"];
        assert_eq!(word_list_argument(&format("sys_enter_execve", &exec)), Some((1, 24)));
        assert_eq!(word_list_argument(&format("sys_enter_execveat", &exec_at)), Some((2, 32)));
        assert_eq!(word_list_argument(&format("sys_enter_openat", &exec_at[..2])), None);
        assert_eq!(word_list_argument(&format("sys_exit_execve", &exec)), None);
    }

    #[test]
    fn addresses_of_sockets_have_a_length() {
        type Place = Option<(u8, u16)>;
        let cases: [(&str, &[&str], Place); 6] = [
            ("sys_enter_connect", &["int fd", "struct sockaddr * uservaddr", "int addrlen"], Some((1, 24))),
            ("sys_enter_bind", &["int fd", "struct sockaddr * umyaddr", "int addrlen"], Some((1, 24))),
            (
                "sys_enter_sendto",
                &[
                    "int fd",
                    "void * buff",
                    "size_t len",
                    "unsigned int flags",
                    "struct sockaddr * addr",
                    "int addr_len",
                ],
                Some((4, 48)),
            ),
            ("sys_enter_accept", &["int fd", "struct sockaddr * upeer_sockaddr", "int * upeer_addrlen"], None),
            ("sys_enter_odd", &["struct sockaddr * addr"], None),
            ("sys_exit_connect", &["int fd", "struct sockaddr * uservaddr", "int addrlen"], None),
        ];
        for (name, arguments, want) in cases {
            let format = format(name, arguments);
            assert_eq!(socket_address_argument(&format), want, "{name}");
            let returned = (name == "sys_enter_accept").then_some((24, 32));
            assert_eq!(returned_address_argument(&format), returned, "{name}");
        }
    }
}
