//! Makes key layouts and reads keys: [`pktjit_fuzz::targets::key_layout`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pktjit_fuzz::targets::key_layout(input));
