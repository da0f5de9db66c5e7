//! Reads ClassBench rules: [`pktjit_fuzz::targets::classbench`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pktjit_fuzz::targets::classbench(input));
