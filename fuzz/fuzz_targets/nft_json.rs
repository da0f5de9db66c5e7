//! Reads nft JSON: [`pktjit_fuzz::targets::nft_json`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pktjit_fuzz::targets::nft_json(input));
