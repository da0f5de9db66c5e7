//! The work that planning may be, counted in steps and not by a clock, so that the same input always gives the same plan.
//!
//! A step is about what a loop over numbers takes for one of them: one or two nanoseconds. Searches for indexes spend
//! before they look, and make do with what they have found where the budget is spent; what is done once for each rule, or so
//! often as a constant says, only spends. Without a budget, rules that overlap in many fields would be copied, counted and
//! compared for minutes.

use std::cell::Cell;

use super::Effort;

/// Steps that are left.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    left: Cell<u64>,
    spent: Cell<u64>,
}

impl Work {
    /// So many steps.
    pub(crate) fn new(steps: u64) -> Self {
        Self {
            left: Cell::new(steps),
            spent: Cell::new(0),
        }
    }

    /// What planning for so many rules may be: ClassBench lists of 1,000 to 100,000 rules take up to half of it.
    pub(crate) fn for_rules(rules: usize, effort: Effort) -> Self {
        let per_rule = match effort {
            Effort::Fast => 2_000,
            Effort::Balanced => 10_000,
            Effort::Best => 100_000,
        };
        Self::new(per_rule * (rules as u64 + 1_000))
    }

    /// Whether there is any.
    pub(crate) fn is_left(&self) -> bool {
        self.left.get() > 0
    }

    /// How many were taken.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Takes `steps` off the budget; `false` where it is spent.
    pub(crate) fn spend(&self, steps: usize) -> bool {
        let left = self.left.get();
        self.spent
            .set(self.spent.get().saturating_add(steps as u64));
        self.left.set(left.saturating_sub(steps as u64));
        left > steps as u64
    }
}
