//! A filter, and a record for it: the text for the kernel is a filter too, and matches the same records.

use perf_prof::glob::{fault, glob, kernel_glob};
use perf_prof::tep::Filter;
use perf_prof::tep::filter::quote;

use super::input::{EVERY_KIND, text_and_bytes};

pub fn run(data: &[u8]) {
    let Some((text, raw)) = text_and_bytes(data) else { return };
    match Filter::parse(text, &EVERY_KIND) {
        Ok(filter) => {
            let again = Filter::parse(filter.text(), &EVERY_KIND);
            let again = again.unwrap_or_else(|error| panic!("{text:?} became {:?}: {error}", filter.text()));
            assert_eq!(filter.text(), again.text(), "{text:?}");
            for cpu in [0, 3, u32::MAX] {
                let matched = filter.matches(raw, b"bash", cpu);
                assert_eq!(matched, again.matches(raw, b"bash", cpu), "{text:?} became {:?}", filter.text());
            }
        }
        Err(error) => {
            assert!(error.offset <= text.len() && text.is_char_boundary(error.offset) && !error.to_string().is_empty());
        }
    }
    let _ = (glob(text.as_bytes(), raw), kernel_glob(text.as_bytes(), raw), fault(text));
    if let Some(quoted) = quote(text).filter(|_| !text.is_empty()) {
        let filter = Filter::parse(&format!("comm == {quoted}"), &EVERY_KIND).expect("quoted text");
        assert_eq!(
            filter.matches(raw, text.as_bytes(), 0),
            Filter::parse(filter.text(), &EVERY_KIND).expect("the same").matches(raw, text.as_bytes(), 0)
        );
    }
}
