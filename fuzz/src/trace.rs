//! ClassBench lists with their traces, as the tests use them.

use std::path::Path;

use pktjit::formats::{Expected, FormatError, KeyFile, RuleFile};
use pktjit::{RuleId, RuleSet};

/// A rule list and a trace of keys whose winners are known.
pub struct Trace {
    /// The rules, for packed keys.
    pub rules: RuleSet,
    /// The bytes of each key.
    pub keys: Vec<Vec<u8>>,
    /// The rule that each key hits.
    pub expected: Vec<Option<RuleId>>,
}

impl Trace {
    /// Reads the two files; either may be compressed.
    ///
    /// # Errors
    /// What is wrong with one of them.
    ///
    /// # Panics
    /// Where a key of the trace does not say what it hits.
    pub fn read(rules: &Path, trace: &Path) -> Result<Self, FormatError> {
        let file = RuleFile::read(rules)?;
        let set = file.set(None)?;
        let rules = set.rule_set(set.packed_layout().clone(), None)?;
        let (mut keys, mut expected) = (Vec::new(), Vec::new());
        for key in KeyFile::open(trace, set)? {
            let key = key?;
            keys.push(rules.layout().encode(&key.values));
            expected.push(match key.expected.expect("a trace has a sixth number") {
                Expected::Miss => None,
                Expected::Rule(rule) => Some(rule),
            });
        }
        Ok(Self {
            rules,
            keys,
            expected,
        })
    }
}
