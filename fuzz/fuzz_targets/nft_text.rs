//! Reads nft text: [`pktjit_fuzz::targets::nft_text`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pktjit_fuzz::targets::nft_text(input));
