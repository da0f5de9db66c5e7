//! The linear scan: the definition of the right answer, in the plainest code that gives it.
//!
//! It shares nothing with the structures and engines that are compared with it but the rule set itself.

use pktjit_ir::{KeyRef, MAX_FIELDS, MISS, RuleSet};

/// Asks each rule in winning order; the first one that matches in all fields wins.
///
/// A lookup allocates nothing.
#[derive(Clone, Debug)]
pub struct LinearScan {
    rules: RuleSet,
}

impl LinearScan {
    /// A scan over a copy of `rules`.
    #[must_use]
    pub fn new(rules: &RuleSet) -> Self {
        Self {
            rules: rules.clone(),
        }
    }

    /// The row of the winning rule, or [`MISS`].
    #[must_use]
    pub fn lookup(&self, key: KeyRef<'_>) -> u32 {
        let layout = self.rules.layout();
        let mut values = [0; MAX_FIELDS];
        for (value, field) in values.iter_mut().zip(layout.field_ids()) {
            *value = layout.read(key, field);
        }
        for (row, stored) in self.rules.rules().iter().enumerate() {
            let conditions = stored.rule.matches.iter().zip(layout.fields());
            let mut tests = conditions.zip(values);
            if tests.all(|((condition, field), value)| condition.matches(field, value)) {
                return row as u32;
            }
        }
        MISS
    }
}
