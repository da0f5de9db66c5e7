//! Compares all engines and structures with the linear scan: [`pktjit_fuzz::targets::differential`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pktjit_fuzz::targets::differential(input));
