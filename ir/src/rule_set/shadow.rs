//! Rules that can never win, because one stronger rule covers them.
//!
//! A rule that only several stronger rules cover together counts as live: finding those is not worth the time. So is
//! every rule that the allowed work did not reach. Both are safe: a live rule too many costs space, never a wrong answer.

use super::RuleSet;
use super::box_tree::{BoxTree, Query};
use super::clusters::clusters;
use crate::rule::{Match, Rule};

/// A rule that can never win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shadowed {
    /// The row of the rule.
    pub row: u32,
    /// The row of a live rule that matches whatever the rule matches.
    pub by: u32,
}

impl RuleSet {
    /// The rules that a single stronger rule covers, in winning order.
    ///
    /// Looks at no more than about `work` pairs of rules, the strongest first among those that overlap; what it does not
    /// reach is left out.
    #[must_use]
    pub fn shadowed(&self, mut work: u64) -> Vec<Shadowed> {
        let fields = self.layout().fields();
        let rules = self.rules();
        let matches_all = |rule: &Rule| rule.matches.iter().all(|&found| found == Match::Any);
        let end = rules
            .iter()
            .position(|stored| matches_all(&stored.rule))
            .unwrap_or(rules.len());
        let mut shadowed = Vec::new();
        for cluster in clusters(fields, end, |row| &rules[row].rule) {
            let rule = |index: u32| &rules[cluster[index as usize] as usize].rule;
            let tree = BoxTree::new(fields, cluster.len(), |index| rule(index as u32));
            for (index, &row) in (0u32..).zip(&cluster) {
                let ends = || fields.iter().zip(&rule(index).matches);
                let lower: Vec<u128> = ends().map(|(field, found)| found.lower(field)).collect();
                let upper: Vec<u128> = ends().map(|(field, found)| found.upper(field)).collect();
                let query = Query {
                    lower: &lower,
                    upper: &upper,
                    stronger_than: index,
                };
                let covers = |by: u32| rule(by).covers(rule(index), fields);
                if let Some(by) = tree.strongest(&query, &mut work, covers) {
                    let by = cluster[by as usize];
                    shadowed.push(Shadowed { row, by });
                }
            }
        }
        shadowed.sort_unstable_by_key(|pair| pair.row);
        let by = end as u32;
        shadowed.extend((end + 1..rules.len()).map(|row| Shadowed {
            row: row as u32,
            by,
        }));
        shadowed
    }

    /// The rows of the rules that can win: all but the [`shadowed`](Self::shadowed) ones.
    #[must_use]
    pub fn live_rows(&self, work: u64) -> Vec<u32> {
        let mut shadowed = self
            .shadowed(work)
            .into_iter()
            .map(|pair| pair.row)
            .peekable();
        (0..self.len() as u32)
            .filter(|&row| shadowed.next_if_eq(&row).is_none())
            .collect()
    }
}
