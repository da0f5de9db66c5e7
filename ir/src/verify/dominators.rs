//! The dominator tree of the blocks, grown in the order of the blocks.
//!
//! Edges go forward but for those back to a loop head, which dominates their source and so changes nothing: when a block
//! is reached in order, all edges that count are known. Beside its parent each block knows one far ancestor (its *jump*;
//! jumps shrink and grow like the digits of a skew-binary number), so that questions take logarithmic time.

/// Which blocks lie on every path from block 0 to a block.
pub(super) struct Dominators {
    nodes: Vec<Option<Node>>,
}

#[derive(Clone, Copy)]
struct Node {
    parent: usize,
    jump: usize,
    depth: u32,
}

impl Dominators {
    /// Block 0 is reached, the others are not.
    pub(super) fn new(blocks: usize) -> Self {
        let root = Node {
            parent: 0,
            jump: 0,
            depth: 0,
        };
        let mut nodes = vec![None; blocks];
        if let Some(first) = nodes.first_mut() {
            *first = Some(root);
        }
        Self { nodes }
    }

    pub(super) fn is_reached(&self, block: usize) -> bool {
        self.nodes[block].is_some()
    }

    /// Notes an edge from a reached block to a later one; edges come in the order of their sources.
    pub(super) fn edge(&mut self, from: usize, to: usize) {
        let parent = match self.nodes[to] {
            Some(node) => self.common(node.parent, from),
            None => from,
        };
        let above = self.node(parent);
        let (near, far) = (self.node(above.jump), self.node(self.node(above.jump).jump));
        let jump = if above.depth - near.depth == near.depth - far.depth {
            near.jump
        } else {
            parent
        };
        self.nodes[to] = Some(Node {
            parent,
            jump,
            depth: above.depth + 1,
        });
    }

    /// Whether every path from block 0 to `block`, which is reached, leads through `above`.
    pub(super) fn dominates(&self, above: usize, mut block: usize) -> bool {
        // Dominators come before what they dominate, in number as in depth.
        while block > above {
            let node = self.node(block);
            block = if node.jump >= above {
                node.jump
            } else {
                node.parent
            };
        }
        block == above
    }

    /// The last block that dominates both.
    fn common(&self, mut a: usize, mut b: usize) -> usize {
        while self.node(a).depth != self.node(b).depth {
            let (deep, depth) = if self.node(a).depth > self.node(b).depth {
                (&mut a, self.node(b).depth)
            } else {
                (&mut b, self.node(a).depth)
            };
            let node = self.node(*deep);
            *deep = if self.node(node.jump).depth >= depth {
                node.jump
            } else {
                node.parent
            };
        }
        // Blocks of one depth have jumps of one length.
        while a != b {
            let (x, y) = (self.node(a), self.node(b));
            (a, b) = if x.jump != y.jump {
                (x.jump, y.jump)
            } else {
                (x.parent, y.parent)
            };
        }
        a
    }

    fn node(&self, block: usize) -> Node {
        self.nodes[block].unwrap_or(Node {
            parent: 0,
            jump: 0,
            depth: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Dominators;

    /// A block dominates another where that cannot be reached without it.
    fn dominates_by_definition(edges: &[Vec<usize>], above: usize, block: usize) -> bool {
        let mut reached = vec![false; edges.len()];
        reached[0] = above != 0;
        for from in 0..edges.len() {
            for &to in edges[from].iter().filter(|&&to| to != above) {
                reached[to] |= reached[from];
            }
        }
        !reached[block]
    }

    #[test]
    fn qc_dominators_are_those_of_the_definition() {
        fn property(spans: Vec<(u8, u8)>) -> bool {
            let blocks = spans.len() + 1;
            let edges: Vec<Vec<usize>> = (0..blocks)
                .map(|from| match spans.get(from) {
                    Some(&(near, far)) => [near % 4, far % 16]
                        .map(|span| from + 1 + usize::from(span))
                        .into_iter()
                        .filter(|&to| to < blocks)
                        .collect(),
                    None => Vec::new(),
                })
                .collect();
            let mut dominators = Dominators::new(blocks);
            for (from, targets) in edges.iter().enumerate() {
                for &to in targets
                    .iter()
                    .filter(|_| dominators.nodes[from].is_some())
                    .collect::<Vec<_>>()
                {
                    dominators.edge(from, to);
                }
            }
            (0..blocks)
                .filter(|&block| dominators.is_reached(block))
                .all(|block| {
                    (0..blocks).all(|above| {
                        dominators.dominates(above, block)
                            == dominates_by_definition(&edges, above, block)
                    })
                })
        }
        quickcheck::QuickCheck::new()
            .min_tests_passed(100)
            .quickcheck(property as fn(Vec<(u8, u8)>) -> bool);
    }

    #[test]
    fn a_long_ladder_takes_no_quadratic_time() {
        // Each block goes on or out: walking parent by parent would take 10^10 steps.
        let out = 200_000;
        let mut dominators = Dominators::new(out + 1);
        for block in 0..out - 1 {
            dominators.edge(block, block + 1);
            dominators.edge(block, out);
        }
        assert!(dominators.dominates(0, out) && !dominators.dominates(1, out));
        assert!((0..out).all(|above| dominators.dominates(above, out - 1)));
    }
}
