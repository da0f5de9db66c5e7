//! Clusters: rules that may have a key in common, directly or through others of the cluster.
//!
//! The values of a field that rules match lie between the ends of their matches. In the order of their lower ends, rules fall
//! apart wherever one starts behind all ends before it; what is left together falls apart by the next field:
//!
//! ```text
//! rules         0: 1-5 . 80    1: 7 . 80    2: 4-6 . 22    3: 3 . 80
//! first field   {0, 2, 3}, since 3 and 4 are inside 1-5, and {1}
//! second field  {0, 3} and {2}
//! ```
//!
//! Elements of sets are mostly apart, and single values always are unless they are the same. So a question about pairs of
//! rules, which asks a [`BoxTree`](super::box_tree::BoxTree), is left with few of them after a sort per field.

use crate::field::Field;
use crate::rule::Rule;

/// The clusters of two and more of `len` rules, each in winning order.
pub(super) fn clusters<'a>(
    fields: &[Field],
    len: usize,
    rule: impl Fn(usize) -> &'a Rule,
) -> Vec<Vec<u32>> {
    let mut clusters = vec![(0..len as u32).collect()];
    for (index, field) in fields.iter().enumerate() {
        let ends = |row: u32| {
            let found = &rule(row as usize).matches[index];
            (found.lower(field), found.upper(field))
        };
        clusters = clusters
            .into_iter()
            .flat_map(|rows| fall_apart(rows, ends))
            .collect();
    }
    clusters.retain(|rows| rows.len() > 1);
    clusters
}

/// The clusters of `rows` by one field, but those of one rule.
fn fall_apart(rows: Vec<u32>, ends: impl Fn(u32) -> (u128, u128)) -> Vec<Vec<u32>> {
    let mut by_lower: Vec<(u128, u128, u32)> = rows
        .into_iter()
        .map(|row| {
            let (lower, upper) = ends(row);
            (lower, upper, row)
        })
        .collect();
    by_lower.sort_unstable();
    let mut clusters = Vec::new();
    let mut rest = &by_lower[..];
    while let Some(&(_, mut furthest, _)) = rest.first() {
        let reached = rest.iter().take_while(|&&(lower, upper, _)| {
            let reaches = lower <= furthest;
            furthest = furthest.max(upper);
            reaches
        });
        let (cluster, behind) = rest.split_at(reached.count());
        if cluster.len() > 1 {
            let mut rows: Vec<u32> = cluster.iter().map(|&(.., row)| row).collect();
            rows.sort_unstable();
            clusters.push(rows);
        }
        rest = behind;
    }
    clusters
}

#[cfg(test)]
mod tests {
    use quickcheck::QuickCheck;

    use super::*;
    use crate::rule::Match;

    fn fields() -> [Field; 2] {
        ["a", "b"].map(Field::inet_service)
    }

    fn found(rules: &[Rule]) -> Vec<Vec<u32>> {
        clusters(&fields(), rules.len(), |row| &rules[row])
    }

    fn range(lo: u128, hi: u128) -> Match {
        Match::Range { lo, hi }
    }

    #[test]
    fn rules_fall_apart_by_one_field_after_the_other() {
        let rules = [
            Rule::new([range(1, 5), Match::Exact(80)]),
            Rule::new([Match::Exact(7), Match::Exact(80)]),
            Rule::new([range(4, 6), Match::Exact(22)]),
            Rule::new([Match::Exact(3), Match::Exact(80)]),
        ];
        assert_eq!(found(&rules), [[0, 3]]);
    }

    #[test]
    fn single_values_fall_apart_unless_they_are_the_same() {
        let exact = |i: u128| Rule::new([Match::Exact(i % 3), Match::Exact(i % 5)]);
        let rules: Vec<Rule> = (0..17).map(exact).collect();
        assert_eq!(found(&rules), [[0, 15], [1, 16]]);
    }

    #[test]
    fn qc_rules_with_a_key_in_common_share_a_cluster() {
        type Box = ((u8, u8), (u8, u8));
        fn property(boxes: Vec<Box>) -> bool {
            let ordered = |(a, b): (u8, u8)| range(a.min(b).into(), a.max(b).into());
            let rules: Vec<Rule> = boxes
                .iter()
                .map(|&(a, b)| Rule::new([ordered(a), ordered(b)]))
                .collect();
            let clusters = found(&rules);
            let overlap = |one: &Rule, other: &Rule| {
                fields().iter().enumerate().all(|(i, field)| {
                    let (one, other) = (&one.matches[i], &other.matches[i]);
                    one.lower(field) <= other.upper(field) && other.lower(field) <= one.upper(field)
                })
            };
            let together = |a: usize, b: usize| {
                let [a, b] = [a as u32, b as u32];
                clusters
                    .iter()
                    .any(|rows| rows.contains(&a) && rows.contains(&b))
            };
            (0..rules.len())
                .all(|b| (0..b).all(|a| !overlap(&rules[a], &rules[b]) || together(a, b)))
        }
        QuickCheck::new()
            .tests(1_000)
            .min_tests_passed(1_000)
            .quickcheck(property as fn(Vec<Box>) -> bool);
    }
}
