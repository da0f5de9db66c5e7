//! Reads, prints, verifies and runs programs: [`pktjit_fuzz::targets::ir_text`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pktjit_fuzz::targets::ir_text(input));
