//! An index over the boxes of rules: which is the strongest rule whose box contains this box?
//!
//! The *box* of a rule is the interval from the lowest to the highest value of its match, per field. A rule that matches a
//! key, or covers another rule, has a box around it; for masks the box says too much, so the caller tests each candidate.
//!
//! **Theory.** A box of `d` fields is a point with `2d` coordinates, the lower and the upper end in each field, and "contains
//! this box" asks for the points of one quadrant: lower ends at most these, upper ends at least those. A k-d tree answers
//! that: each node splits its rules at the median of one coordinate, in turn. That tells narrow rules from wide ones as
//! readily as left ones from right ones, so no rule is stored twice, however many wildcards there are. For one field:
//!
//! ```text
//! rules      0: 10-19   1: 0-99   2: 30-39   3: 40-49
//! by lower   {0, 1} and {2, 3}
//! by upper   {0}, {1} and {2}, {3}
//! query 35   lower <= 35 and 35 <= upper: into both halves, then not into {0} (ends at 19) nor {3} (starts at 40)
//! ```
//!
//! Each node knows the outermost ends and the strongest rule below it, so a search leaves out what cannot contain the query
//! and what cannot win. `O(n log^2 n)` to build, linear space; a search visits `O(n^(1 - 1/2d))` nodes at worst and about
//! `log n` where rules are mostly apart.
//!
//! **Depth.** Two splits of the same coordinate leave at most half of the rules, unless most of them share one end: then
//! they leave just those, and the coordinate, constant from there on, is never split again. So no path is longer than
//! `6d + 2 log2 n`, and the recursion that builds the tree needs no stack that grows with the rules.

use std::ops::Range;

use crate::field::Field;
use crate::rule::Rule;

/// Most rules that a leaf holds, unless more of them have the same box.
const LEAF_RULES: usize = 4;

/// The index; rules are numbered in winning order.
pub(super) struct BoxTree {
    /// Lower and upper ends per field.
    coordinates: usize,
    /// In preorder: a node's first child, if any, follows it.
    nodes: Vec<Node>,
    /// The box around the boxes of each node, `coordinates` values a node.
    hulls: Vec<u128>,
    /// The rules of the leaves, strongest first within a leaf.
    rules: Vec<u32>,
}

struct Node {
    strongest: u32,
    /// The node after all nodes below this one.
    next: u32,
    /// The part of `rules` that a leaf holds; empty for other nodes.
    rules: Range<u32>,
}

/// What to look for.
pub(super) struct Query<'a> {
    /// The lower end of the box in each field.
    pub(super) lower: &'a [u128],
    /// The upper end of the box in each field.
    pub(super) upper: &'a [u128],
    /// Only rules stronger than this one are of interest.
    pub(super) stronger_than: u32,
}

impl BoxTree {
    /// Indexes `len` rules.
    pub(super) fn new<'a>(fields: &[Field], len: usize, rule: impl Fn(usize) -> &'a Rule) -> Self {
        let mut boxes = Vec::with_capacity(len * 2 * fields.len());
        for index in 0..len {
            for (field, found) in fields.iter().zip(&rule(index).matches) {
                boxes.extend([found.lower(field), found.upper(field)]);
            }
        }
        let mut tree = Self {
            coordinates: 2 * fields.len(),
            nodes: Vec::new(),
            hulls: Vec::new(),
            rules: Vec::with_capacity(len),
        };
        let mut rules: Vec<u32> = (0..len as u32).collect();
        if !rules.is_empty() {
            tree.add_node(&boxes, &mut rules, 0);
        }
        tree
    }

    /// Adds the node for `rules` and all nodes below it; splits at `coordinate` or one after it.
    fn add_node(&mut self, boxes: &[u128], rules: &mut [u32], coordinate: usize) {
        let node = self.nodes.len();
        self.add_hull(boxes, rules);
        self.nodes.push(Node {
            strongest: rules.iter().copied().min().unwrap_or(u32::MAX),
            next: 0,
            rules: 0..0,
        });
        let split = (rules.len() > LEAF_RULES)
            .then(|| self.split(boxes, rules, coordinate))
            .flatten();
        if let Some((split, first_len)) = split {
            let (first, second) = rules.split_at_mut(first_len);
            self.add_node(boxes, first, split + 1);
            self.add_node(boxes, second, split + 1);
        } else {
            rules.sort_unstable();
            let start = self.rules.len() as u32;
            self.rules.extend_from_slice(rules);
            self.nodes[node].rules = start..self.rules.len() as u32;
        }
        self.nodes[node].next = self.nodes.len() as u32;
    }

    fn add_hull(&mut self, boxes: &[u128], rules: &[u32]) {
        for coordinate in 0..self.coordinates {
            let ends = rules
                .iter()
                .map(|&rule| boxes[rule as usize * self.coordinates + coordinate]);
            let outermost = if is_lower(coordinate) {
                ends.min()
            } else {
                ends.max()
            };
            self.hulls.push(outermost.unwrap_or(0));
        }
    }

    /// Parts `rules` by the first coordinate, from `start` on, in which they differ, and tells it and the number of rules below
    /// its median; `None` where all boxes are the same.
    fn split(&self, boxes: &[u128], rules: &mut [u32], start: usize) -> Option<(usize, usize)> {
        for step in 0..self.coordinates {
            let coordinate = (start + step) % self.coordinates;
            let end = |rule: u32| boxes[rule as usize * self.coordinates + coordinate];
            let middle = rules.len() / 2;
            let (_, &mut median, _) = rules.select_nth_unstable_by_key(middle, |&rule| end(rule));
            let median = end(median);
            let below = move_to_front(rules, |rule| end(rule) < median);
            if below > 0 {
                return Some((coordinate, below));
            }
            let up_to = move_to_front(rules, |rule| end(rule) <= median);
            if up_to < rules.len() {
                return Some((coordinate, up_to));
            }
        }
        None
    }

    /// The strongest rule that `accept` agrees to, which may only be one whose box contains that of the query.
    ///
    /// Candidates are the rules of all leaves whose hull contains the query: `accept` has to test the rule itself.
    ///
    /// Takes the number of nodes and rules looked at off `work`, and gives up, with `None`, when that is spent.
    pub(super) fn strongest(
        &self,
        query: &Query<'_>,
        work: &mut u64,
        accept: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut best = query.stronger_than;
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            *work = work.saturating_sub(1);
            if *work == 0 {
                return None;
            }
            let hull = &self.hulls[at * self.coordinates..][..self.coordinates];
            if node.strongest >= best || !contains(hull, query) {
                at = node.next as usize;
                continue;
            }
            let rules = &self.rules[node.rules.start as usize..node.rules.end as usize];
            // A leaf has as many rules as share its box: only those that were tested count, or repeats would use up all work.
            for &rule in rules.iter().take_while(|&&rule| rule < best) {
                *work = work.saturating_sub(1);
                if accept(rule) {
                    best = rule;
                    break;
                }
            }
            at += 1;
        }
        (best != query.stronger_than).then_some(best)
    }
}

/// Moves the rules that `is_first` to the front, and tells how many they are.
fn move_to_front(rules: &mut [u32], is_first: impl Fn(u32) -> bool) -> usize {
    let mut count = 0;
    for at in 0..rules.len() {
        if is_first(rules[at]) {
            rules.swap(at, count);
            count += 1;
        }
    }
    count
}

/// Coordinates are lower and upper ends in turn.
fn is_lower(coordinate: usize) -> bool {
    coordinate.is_multiple_of(2)
}

/// Whether a box, written as coordinates, contains that of the query.
fn contains(ends: &[u128], query: &Query<'_>) -> bool {
    ends.chunks_exact(2)
        .zip(query.lower.iter().zip(query.upper))
        .all(|(ends, (lower, upper))| ends[0] <= *lower && *upper <= ends[1])
}

#[cfg(test)]
mod tests {
    use quickcheck::QuickCheck;

    use super::*;
    use crate::rule::Match;

    fn fields() -> [Field; 2] {
        ["a", "b"].map(Field::ipv4_addr)
    }

    fn tree(rules: &[Rule]) -> BoxTree {
        BoxTree::new(&fields(), rules.len(), |index| &rules[index])
    }

    fn range(one: u8, other: u8) -> Match {
        Match::Range {
            lo: one.min(other).into(),
            hi: one.max(other).into(),
        }
    }

    #[test]
    fn qc_strongest_agrees_with_a_scan() {
        type Box = ((u8, u8), (u8, u8));
        fn property(boxes: Vec<Box>, asked: Vec<Box>, stronger_than: u8, refused: u8) -> bool {
            let fields = fields();
            let rule = |(a, b): &Box| Rule::new([range(a.0, a.1), range(b.0, b.1)]);
            let rules: Vec<Rule> = boxes.iter().map(rule).collect();
            let tree = tree(&rules);
            asked.iter().all(|asked| {
                let asked = rule(asked);
                let ends = || fields.iter().zip(&asked.matches);
                let lower: Vec<u128> = ends().map(|(field, found)| found.lower(field)).collect();
                let upper: Vec<u128> = ends().map(|(field, found)| found.upper(field)).collect();
                let query = Query {
                    lower: &lower,
                    upper: &upper,
                    stronger_than: stronger_than.into(),
                };
                let accept = |index: u32| index % 4 != u32::from(refused % 4);
                let covers = |index: u32| rules[index as usize].covers(&asked, &fields);
                let expected = (0..rules.len() as u32)
                    .filter(|&index| index < stronger_than.into())
                    .find(|&index| accept(index) && covers(index));
                let found = tree.strongest(&query, &mut u64::MAX.clone(), |index| {
                    accept(index) && covers(index)
                });
                found == expected
            })
        }
        QuickCheck::new()
            .tests(2_000)
            .min_tests_passed(2_000)
            .quickcheck(property as fn(Vec<Box>, Vec<Box>, u8, u8) -> bool);
    }

    /// The longest path from the root, by the preorder of the nodes.
    fn depth(tree: &BoxTree) -> usize {
        let mut open: Vec<u32> = Vec::new();
        let mut deepest = 0;
        for (index, node) in (0u32..).zip(&tree.nodes) {
            open.retain(|&next| next > index);
            open.push(node.next);
            deepest = deepest.max(open.len());
        }
        deepest
    }

    #[test]
    fn depth_stays_below_its_bound_when_most_ends_are_equal() {
        // Each rule but a few shares every end with most of the others: the worst case for splits at a median.
        let uneven = |index: u128, step: u128| if index.is_multiple_of(step) { index } else { 7 };
        let rules: Vec<Rule> = (0..20_000)
            .map(|index| {
                let range = |lo: u128, len: u128| Match::Range { lo, hi: lo + len };
                Rule::new([
                    range(uneven(index, 101), uneven(index, 103)),
                    range(uneven(index, 107), uneven(index, 109)),
                ])
            })
            .collect();
        let bound = 6 * fields().len() + 2 * rules.len().ilog2() as usize;
        assert!(depth(&tree(&rules)) <= bound);
    }

    #[test]
    fn a_search_stops_when_its_work_is_spent() {
        let rules: Vec<Rule> = (0..100)
            .map(|index| Rule::new([Match::Any, Match::Exact(index)]))
            .collect();
        let tree = tree(&rules);
        let query = Query {
            lower: &[5, 60],
            upper: &[5, 60],
            stronger_than: u32::MAX,
        };
        let mut plenty = 1_000;
        assert_eq!(
            tree.strongest(&query, &mut plenty, |rule| rule == 60),
            Some(60)
        );
        let mut too_little = 1_000 - plenty;
        assert_eq!(
            tree.strongest(&query, &mut too_little, |rule| rule == 60),
            None
        );
        assert_eq!(too_little, 0);
    }
}
