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
//! **Depth.** A split at the median of values that differ halves the rules, except where many share the median. Then at
//! most two splits leave those alone, and the coordinate, being constant there, is never split again. So no
//! path is longer than `4d + log2 n`, and recursion needs no stack that grows with the rules.

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

    /// Orders `rules` by the first coordinate, from `start` on, in which they differ, and tells it and the number of rules
    /// below its median; `None` where all boxes are the same.
    fn split(&self, boxes: &[u128], rules: &mut [u32], start: usize) -> Option<(usize, usize)> {
        for step in 0..self.coordinates {
            let coordinate = (start + step) % self.coordinates;
            let end = |rule: u32| boxes[rule as usize * self.coordinates + coordinate];
            rules.sort_unstable_by_key(|&rule| end(rule));
            let median = end(rules[rules.len() / 2]);
            let below = rules.partition_point(|&rule| end(rule) < median);
            if below > 0 {
                return Some((coordinate, below));
            }
            let up_to = rules.partition_point(|&rule| end(rule) <= median);
            if up_to < rules.len() {
                return Some((coordinate, up_to));
            }
        }
        None
    }

    /// The strongest rule whose box contains that of the query and that `accept` agrees to.
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
            *work = work.saturating_sub(1 + node.rules.len() as u64);
            if *work == 0 {
                return None;
            }
            let hull = &self.hulls[at * self.coordinates..][..self.coordinates];
            if node.strongest >= best || !contains(hull, query) {
                at = node.next as usize;
                continue;
            }
            let rules = &self.rules[node.rules.start as usize..node.rules.end as usize];
            let mut stronger = rules.iter().take_while(|&&rule| rule < best);
            if let Some(&found) = stronger.find(|&&rule| accept(rule)) {
                best = found;
            }
            at += 1;
        }
        (best != query.stronger_than).then_some(best)
    }
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
