#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| perf_prof_fuzz::http::run(data));
