//! Rules and keys that follow from the bytes: every engine with every structure gives the answers of the linear scan.

use arbitrary::Unstructured;
use pktjit::{Effort, MISS};
use pktjit_fallback::LinearScan;
use quickcheck::{Arbitrary, Gen};

use crate::r#gen::Choices;
use crate::r#gen::rules::Case;
use crate::guard::GuardedBytes;
use crate::oracle::{compile, configurations};

/// Number of keys, which a batch answers with full vectors and a rest.
const KEYS: usize = 37;

/// Asks all configurations, audited, about at most 300 rules, key by key and in a batch before unmapped memory.
///
/// The bytes choose the rules and seed the keys: machine code tells a fuzzer nothing about which key is worth varying.
///
/// # Panics
/// Where an answer is wrong, or a configuration fails otherwise than by refusing the rules.
pub fn differential(input: &[u8]) {
    let mut choices = Unstructured::new(input);
    let effort = choices.pick(&[Effort::Fast, Effort::Balanced, Effort::Best]);
    let seed = choices.up_to(u64::MAX.into()) as u64;
    let case = Case::choose(&mut choices).with_keys(KEYS, &mut Gen::from_size_and_seed(100, seed));
    let rules = case.rule_set();
    let layout = rules.layout();
    let keys = GuardedBytes::at_end(&case.encoded_keys());
    let keys_alone = || {
        keys.chunks(layout.len())
            .map(|key| layout.key(key).expect("encoded"))
    };
    let scan = LinearScan::new(&rules);
    let expected: Vec<u32> = keys_alone().map(|key| scan.lookup(key)).collect();

    for (engine, structure) in configurations() {
        let place = || format!("{engine} {structure:?} {effort:?}");
        let compiled = compile(&rules, engine, structure, effort);
        let Ok(classifier) = compiled.unwrap_or_else(|error| panic!("{error}\n{case:?}")) else {
            continue;
        };
        let rows: Vec<u32> = keys_alone().map(|key| classifier.lookup_row(key)).collect();
        assert_eq!(rows, expected, "{}, one by one: {case:?}", place());
        let mut rows = vec![MISS - 1; expected.len()];
        classifier
            .lookup_batch(&keys, layout.len(), &mut rows)
            .unwrap_or_else(|error| panic!("{}: {error}", place()));
        assert_eq!(rows, expected, "{}, a batch: {case:?}", place());
    }
}

/// Random bytes: what they stand for is as varied as the cases of the property tests.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut g = Gen::from_size_and_seed(100, 1);
    let lengths = [0, 16, 64, 256, 512, 1024, 2048, 4096];
    let seeds = lengths.into_iter().flat_map(|len| [len; 4]);
    seeds
        .map(|len| (0..len).map(|_| u8::arbitrary(&mut g)).collect())
        .collect()
}
