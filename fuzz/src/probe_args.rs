//! `args=` of a probe, and the kernel's `error_log`: the result is one harmless line for the kernel, or an error with
//! its place in the text.

use perf_prof::tep::probe::error_log::last_error;
use perf_prof::tep::probe::events::ProbeGroup;
use perf_prof::tep::probe::fetch;
use perf_prof::tep::probe::{Machine, ProbeSite};

use super::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.u8();
    let Ok(text) = std::str::from_utf8(input.0) else { return };
    let machines = [Machine::X86_64, Machine::X86, Machine::Aarch64, Machine::Arm, Machine::Other];
    let machine = machines[usize::from(kind >> 3) % machines.len()];
    let site = ProbeSite { user: kind & 1 != 0, ret: kind & 2 != 0, entry: kind & 4 != 0, machine };
    match fetch::parse(text, &site) {
        Ok(args) => {
            for arg in &args {
                assert!(arg.text.bytes().all(|byte| byte.is_ascii_graphic() && !b";#".contains(&byte)), "{arg:?}");
                assert!(text.is_char_boundary(arg.offset));
                assert!(!arg.as_typed || text[arg.offset..].starts_with(&arg.text));
            }
        }
        Err(fault) => assert!(text.is_char_boundary(fault.offset) && fault.offset <= text.len(), "{fault:?}"),
    }
    if let Some(group) = ProbeGroup::parse(text) {
        assert_eq!(ProbeGroup::parse(&group.to_string()), Some(group));
    }
    let command = text.lines().next().unwrap_or_default();
    if let Some(said) = last_error(text, command) {
        assert!(text.contains(&said.what));
    }
}
