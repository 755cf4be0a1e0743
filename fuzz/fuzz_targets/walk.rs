#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| perf_prof_fuzz::walk::run(data));
