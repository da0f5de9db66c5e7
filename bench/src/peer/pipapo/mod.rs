//! PIPAPO ("pile packet policies"), the structure of Linux for sets of concatenated ranges, written from its published
//! description. It is generic: groups, sizes and mappings are data, and only the number of groups of a field is a constant,
//! as in the kernel's vector code.
//!
//! Each field of each element is expanded to *pieces*, prefixes that together are its range. Bit `p` of a bit vector stands
//! for piece `p` of a field. A field is cut into groups of 8 bits (4 where that would take more than 2 MiB); the value of a
//! group selects a *row*, the bit vector of the pieces that agree with it. The AND of the rows of all groups is the vector
//! of the pieces that match. The *mapping* of a field names, for each piece, the pieces of the same element in the next
//! field: a matching piece fills them into the vector that the next field starts from. The mapping of the last field names
//! the element. The lowest piece belongs to the earliest element.
//!
//! ```text
//! field 0: [row of byte 0] AND [row of byte 1] = pieces --mapping--> filled vector
//! field 1:      filled vector AND [row of byte 0] ...  = pieces --mapping--> element
//! ```
//!
//! Two vectors are enough: one is read and cleared while the other is filled.
//!
//! Where the kernel's code leaves time on the table, this does not: the step of the first field is compiled apart, a field
//! starts at the first block that the one before filled, and the last field ends at the first element. [`GROUP_GAP`] keeps
//! rows from evicting each other.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;

use std::sync::Arc;

use pktjit::{MISS, RuleSet};

use super::Peer;

/// Most bytes that the rows of a field may take at 8 bits a group.
const MAX_8_BIT: usize = 2 << 20;

/// Blocks between the rows of one group and those of the next. Without them the rows that equal bytes select lie a multiple
/// of 4 KiB apart, where a cache of eight ways holds no more than eight; the address of a net6 row has ten zeros.
const GROUP_GAP: usize = 2;

/// 256 bits of a bit vector, as many as one register holds.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Block([u64; 4]);

/// How the pieces of a field are looked up.
struct FieldTable {
    /// Where the field starts in the key.
    offset: usize,
    /// Bits of a group: 8 or 4.
    group_bits: u32,
    groups: usize,
    /// Blocks of a bit vector.
    blocks: usize,
    /// The rows, `blocks` each: those of the first group, a gap, those of the second, and so on.
    rows: Vec<Block>,
    mapping: Vec<Mapping>,
}

/// Where a piece leads.
#[derive(Clone, Copy)]
struct Mapping {
    /// The first piece in the next field, or the element.
    first: u32,
    /// How many pieces.
    count: u32,
}

struct Tables {
    fields: Vec<FieldTable>,
}

/// Which code looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// Words of 64 bits.
    Scalar,
    /// Vectors of 256 bits.
    Avx2,
}

/// The structure with its two scratch vectors. A clone shares the tables.
#[derive(Clone)]
pub struct Pipapo {
    tables: Arc<Tables>,
    code: Code,
    scratch: Scratch,
}

/// Two bit vectors, as long as those of the longest field, all zero between lookups.
#[derive(Clone)]
struct Scratch {
    /// The field that is looked up starts from this one.
    from: Vec<Block>,
    /// And fills the pieces of the next field into this one.
    to: Vec<Block>,
}

/// Looks a key up, field by field.
macro_rules! lookup {
    ($step:ident, $tables:ident, $scratch:ident, $key:ident) => {{
        let Scratch { from, to } = $scratch;
        let (mut from, mut to) = (from, to);
        let (first, rest) = (&$tables.fields[0], &$tables.fields[1..]);
        let mut found = by_groups!(
            first,
            $step::<true>(first, $key, rest.is_empty(), 0, from, to)
        );
        for (left, field) in (0..rest.len()).rev().zip(rest) {
            if found == MISS {
                return MISS;
            }
            std::mem::swap(&mut from, &mut to);
            let start = found as usize / 256;
            found = by_groups!(
                field,
                $step::<false>(field, $key, left == 0, start, from, to)
            );
        }
        found
    }};
}
use lookup;

/// Calls a step with the form of the field as constants, for every kind of field that nft has.
macro_rules! by_groups {
    ($field:expr, $step:ident::<$first:literal> $arguments:tt) => {
        match ($field.groups, $field.group_bits) {
            (1, 8) => $step::<1, 8, $first> $arguments,
            (2, 8) => $step::<2, 8, $first> $arguments,
            (4, 8) => $step::<4, 8, $first> $arguments,
            (6, 8) => $step::<6, 8, $first> $arguments,
            (16, 8) => $step::<16, 8, $first> $arguments,
            (2, 4) => $step::<2, 4, $first> $arguments,
            (4, 4) => $step::<4, 4, $first> $arguments,
            (8, 4) => $step::<8, 4, $first> $arguments,
            (12, 4) => $step::<12, 4, $first> $arguments,
            (32, 4) => $step::<32, 4, $first> $arguments,
            _ => unreachable!("the rows of the workloads have no such field"),
        }
    };
}
use by_groups;

/// Where the row of each group that `key` selects starts, in bytes. The numbers are narrow, so that the compiler makes
/// several at once.
#[inline(always)]
fn selected_rows<const GROUPS: usize, const BITS: usize>(
    field: &FieldTable,
    key: &[u8],
) -> [u32; GROUPS] {
    let bytes = &key[field.offset..][..GROUPS * BITS / 8];
    let row_bytes = (field.blocks * size_of::<Block>()) as u32;
    let gap_bytes = (GROUP_GAP * size_of::<Block>()) as u32;
    std::array::from_fn(|group| {
        let value = match (BITS, group % 2) {
            (8, _) => bytes[group],
            (_, 0) => bytes[group / 2] >> 4,
            _ => bytes[group / 2] & 15,
        };
        let group = group as u32;
        ((group << BITS) + u32::from(value)) * row_bytes + group * gap_bytes
    })
}

/// Sets the bits of the pieces that `mapping` names.
#[inline(always)]
fn fill(vector: &mut [Block], mapping: Mapping) {
    for piece in mapping.first as usize..(mapping.first + mapping.count) as usize {
        vector[piece / 256].0[piece % 256 / 64] |= 1 << (piece % 64);
    }
}

impl Pipapo {
    /// Builds the tables for `rules`, whose priorities are equal and whose fields are in network byte order.
    #[must_use]
    pub fn new(rules: &RuleSet) -> Self {
        let fields = (0..rules.layout().fields().len()).map(|field| FieldTable::new(rules, field));
        let tables = Tables {
            fields: fields.collect(),
        };
        let blocks = tables.fields.iter().map(|field| field.blocks).max();
        let vector = vec![Block::default(); blocks.unwrap_or(0)];
        Self {
            tables: Arc::new(tables),
            code: Code::Scalar,
            scratch: Scratch {
                from: vector.clone(),
                to: vector,
            },
        }
    }

    /// The same tables looked up by the vector code, where the CPU has it.
    #[must_use]
    pub fn avx2(&self) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Some(Self {
                code: Code::Avx2,
                ..self.clone()
            });
        }
        None
    }
}

impl Peer for Pipapo {
    fn name(&self) -> &'static str {
        match self.code {
            Code::Scalar => "pipapo-scalar",
            Code::Avx2 => "pipapo-avx2",
        }
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        match self.code {
            Code::Scalar => scalar::lookup(&self.tables, &mut self.scratch, key),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Code::Avx2` is only made where the CPU was asked for AVX2.
            Code::Avx2 => unsafe { avx2::lookup(&self.tables, &mut self.scratch, key) },
            #[cfg(not(target_arch = "x86_64"))]
            Code::Avx2 => MISS,
        }
    }

    fn bytes(&self) -> usize {
        let fields = self.tables.fields.iter();
        fields
            .map(|field| size_of_val(&*field.rows) + size_of_val(&*field.mapping))
            .sum()
    }
}

impl FieldTable {
    fn new(rules: &RuleSet, index: usize) -> Self {
        let layout = rules.layout();
        let id = layout.field_ids().nth(index);
        let field = &layout.fields()[index];
        let bits = u32::from(field.bits());
        let bounds = |element: usize, index: usize| {
            let (field, condition) = (
                &layout.fields()[index],
                &rules.rules()[element].rule.matches[index],
            );
            let bits = u32::from(field.bits());
            prefixes(condition.lower(field), condition.upper(field), bits)
        };
        let (mut pieces, mut mapping, mut next_piece) = (Vec::new(), Vec::new(), 0);
        for element in 0..rules.len() {
            let leads_to = if index + 1 < layout.fields().len() {
                let count = bounds(element, index + 1).len() as u32;
                let first = next_piece;
                next_piece += count;
                Mapping { first, count }
            } else {
                Mapping {
                    first: element as u32,
                    count: 1,
                }
            };
            for piece in bounds(element, index) {
                pieces.push(piece);
                mapping.push(leads_to);
            }
        }
        let blocks = pieces.len().div_ceil(256);
        let bytes_at_8 = (bits as usize / 8) * 256 * blocks * size_of::<Block>();
        let group_bits = if bytes_at_8 > MAX_8_BIT { 4 } else { 8 };
        let groups = (bits / group_bits) as usize;
        let values = 1usize << group_bits;
        let mut rows = vec![Block::default(); groups * (values * blocks + GROUP_GAP)];
        for (piece, &(value, wild)) in pieces.iter().enumerate() {
            for group in 0..groups {
                let shift = bits - group_bits * (group as u32 + 1);
                // Bits of this group that the prefix leaves open.
                let open = wild.saturating_sub(shift).min(group_bits);
                let first = (value >> shift) as usize & (values - 1) & !((1 << open) - 1);
                for selected in first..first + (1 << open) {
                    let row = (group * values + selected) * blocks + group * GROUP_GAP;
                    rows[row + piece / 256].0[piece % 256 / 64] |= 1 << (piece % 64);
                }
            }
        }
        Self {
            offset: id.map_or(0, |id| layout.offset(id)),
            group_bits,
            groups,
            blocks,
            rows,
            mapping,
        }
    }
}

/// The fewest prefixes that together are `lo ..= hi`, from the low end: (value, open low bits).
fn prefixes(lo: u128, hi: u128, bits: u32) -> Vec<(u128, u32)> {
    let mut pieces = Vec::new();
    let mut start = lo;
    loop {
        let left = hi - start;
        // As many open bits as the start has zeros, and as still stay within the range.
        let mut open = start.trailing_zeros().min(bits);
        while open > 0 && u128::MAX >> (128 - open) > left {
            open -= 1;
        }
        pieces.push((start, open));
        let end = match open {
            0 => start,
            _ => start | u128::MAX >> (128 - open),
        };
        if end >= hi {
            return pieces;
        }
        start = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_becomes_the_fewest_prefixes() {
        assert_eq!(prefixes(2, 3, 16), [(2, 1)]);
        assert_eq!(prefixes(11, 12, 16), [(11, 0), (12, 0)]);
        assert_eq!(prefixes(0, 0xffff, 16), [(0, 16)]);
        assert_eq!(prefixes(0, u128::MAX, 128), [(0, 128)]);
        assert_eq!(prefixes(1, 14, 4).len(), 6);
    }
}
