//! What a stage consists of: which fields, which pieces, which groups, and its tables.
//!
//! Planning visits every piece but keeps none, so that what does not fit is refused before it takes memory.

use crate::entity::FieldId;
use crate::field::ByteOrder;
use crate::program::Table;
use crate::structure::bit_rows::{MAX_BLOCK, MAX_NARROW, Selector, Shape};
use crate::structure::pipapo::GroupBits;
use crate::structure::{Cost, Input, bits};

/// Linux divides the groups of a field in two where their tables take more bytes than this.
const MAX_EIGHT_BIT_BYTES: u64 = 2 << 20;
/// What a map between two stages costs in numbers anded: going through its input, and one piece that matches.
const MAP_WORK: u64 = 100 * 8;
/// Most numbers of a block behind a map, where it is visited only if a bit of it is set.
const MAX_LATER_BLOCK: usize = 32;

/// 4 or 8 bits of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Position of the field among those of the stage.
    field: usize,
    /// The lowest of its bits in the field's value.
    shift: u8,
    /// How many there are: 4 or 8.
    bits: u8,
    /// The byte of the key that they are in.
    offset: u16,
}

impl Group {
    /// How many values it has.
    pub(super) fn values(self) -> usize {
        1 << self.bits
    }

    fn of(self, field: u128) -> usize {
        (field >> self.shift) as usize & (self.values() - 1)
    }

    /// Its first bit in the byte of the key.
    fn shift_in_byte(self) -> u8 {
        self.shift % 8
    }

    /// What says which of its rows counts.
    pub(super) fn selector(self) -> Selector {
        Selector::Key {
            offset: self.offset,
            shift: self.shift_in_byte(),
            bits: self.bits,
        }
    }
}

/// Bits of one byte of the key, and what they must be.
pub(super) struct Agreed {
    pub(super) offset: u16,
    pub(super) care: u8,
    pub(super) value: u8,
}

/// Fields that are looked up together.
pub(super) struct Stage {
    fields: Vec<FieldId>,
    /// Pieces of all rules.
    pub(super) pieces: u64,
    /// Most numbers of a row that the pieces of one rule lie in.
    pub(super) rule_numbers: usize,
    /// The groups in which pieces differ; at least one.
    pub(super) groups: Vec<Group>,
    /// The bits in which all pieces agree.
    pub(super) agreed: Vec<Agreed>,
    pub(super) shape: Shape,
}

impl Stage {
    /// Numbers of 32 bits of one row.
    pub(super) fn numbers(&self) -> usize {
        self.shape.numbers()
    }

    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Bytes of the map to `next`: a number and its bits, as often as a rule may need, for each such piece.
    pub(super) fn map_bytes(&self, next: &Self) -> usize {
        let bytes = self.numbers().saturating_mul(32 * 8);
        bytes.saturating_mul(next.rule_numbers)
    }

    /// More steps than a lookup can take here, where every piece matches: for each number its loads, and for each bit what
    /// the map to `next` sets.
    pub(super) fn steps(&self, next: Option<&Self>) -> u64 {
        let of_map = next.map_or(0, |next| 12 + 4 * next.rule_numbers as u64);
        let of_number = 8 * self.groups.len() as u64 + 30;
        of_map
            .saturating_mul(32)
            .saturating_add(of_number)
            .saturating_mul(self.numbers() as u64)
    }

    /// Whether the rule of `row` matches a key, given as the values of its fields, in the fields of this stage.
    pub(super) fn matches(&self, input: &Input<'_>, row: u32, key: &[u128]) -> bool {
        let mut fields = self.fields.iter();
        fields.all(|id| {
            let condition = &input.rule(row).matches[id.index()];
            condition.matches(input.layout().field(*id), key[id.index()])
        })
    }

    /// What a lookup costs; `found` is how many pieces match before the map that this stage is behind, if it is.
    pub(super) fn cost(&self, found: Option<f64>) -> Cost {
        // What finds the row of each group: the byte of the key, or half of it, and the row. A stage behind a map looks at the
        // blocks of its rows in which the map set bits.
        let (of_byte, of_half, share) = match self.shape {
            Shape::Narrow { .. } => (2.0, 3.5, 1.0),
            Shape::Blocks { blocks, .. } => {
                let share = |found: f64| (found.max(1.0) / blocks as f64).min(1.0);
                (5.0, 7.0, found.map_or(1.0, share))
            }
        };
        let of_group = |group: &Group| if group.bits == 8 { of_byte } else { of_half };
        let values: usize = self.groups.iter().map(|group| group.values()).sum();
        let rows = Cost {
            instructions: self.groups.iter().map(of_group).sum(),
            table_bytes: values.saturating_mul(self.shape.row_bytes()),
            ..Cost::default()
        };
        rows + self.shape.cost(self.groups.len(), share)
    }

    /// The rows of each group.
    pub(super) fn tables(&self, input: &Input<'_>) -> Vec<Table> {
        let row_bytes = self.shape.row_bytes();
        let empty = |group: &Group| vec![0; group.values() * row_bytes];
        let mut data: Vec<Vec<u8>> = self.groups.iter().map(empty).collect();
        // Pieces that allow every value of a group are set in all rows at the end: there may be many.
        let mut wild = vec![vec![0; row_bytes]; self.groups.len()];
        self.for_each_piece(input, |p, _, piece| {
            let (at, bit) = (p / 8, 1 << (p % 8));
            for (g, group) in self.groups.iter().enumerate() {
                let (care, value) = piece[group.field];
                let (care, value) = (group.of(care), group.of(value));
                if care == 0 {
                    wild[g][at] |= bit;
                    continue;
                }
                // All values that agree in the bits that count: the others take every pattern, downwards.
                let others = (group.values() - 1) & !care;
                let mut free = others;
                loop {
                    data[g][(value & care | free) * row_bytes + at] |= bit;
                    if free == 0 {
                        break;
                    }
                    free = (free - 1) & others;
                }
            }
        });
        for (rows, wild) in data.iter_mut().zip(&wild) {
            for row in rows.chunks_mut(row_bytes) {
                row.iter_mut()
                    .zip(wild)
                    .for_each(|(byte, wild)| *byte |= wild);
            }
        }
        self.groups
            .iter()
            .zip(data)
            .map(|(group, data)| self.table(input, *group, data))
            .collect()
    }

    fn table(&self, input: &Input<'_>, group: Group, data: Vec<u8>) -> Table {
        let field = input.layout().field(self.fields[group.field]).name();
        let last = group.shift + group.bits - 1;
        let name = format!("{field} bits {last}..{}", group.shift);
        self.shape.table(name.into(), "pieces", self.pieces, data)
    }

    /// Calls `f` with the position of each piece, that of its rule among the rules that can win, and (care, value) of each
    /// field.
    pub(super) fn for_each_piece(
        &self,
        input: &Input<'_>,
        mut f: impl FnMut(usize, usize, &[(u128, u128)]),
    ) {
        let mut of_field: Vec<Vec<(u128, u128)>> = vec![Vec::new(); self.fields.len()];
        let mut piece = vec![(0, 0); self.fields.len()];
        let mut p = 0;
        for (rule, &row) in input.rows.iter().enumerate() {
            for (id, out) in self.fields.iter().zip(&mut of_field) {
                field_pieces(input, *id, row, out);
            }
            let count: usize = of_field.iter().map(Vec::len).product();
            for mut choice in 0..count {
                for (slot, of_field) in piece.iter_mut().zip(&of_field) {
                    *slot = of_field[choice % of_field.len()];
                    choice /= of_field.len();
                }
                f(p, rule, &piece);
                p += 1;
            }
        }
    }
}

/// The pieces of one field of a rule as (care, value); at least one.
fn field_pieces(input: &Input<'_>, id: FieldId, row: u32, out: &mut Vec<(u128, u128)>) {
    let condition = &input.rule(row).matches[id.index()];
    bits::field_pieces(input.layout().field(id), condition, usize::MAX, out);
    if out.is_empty() {
        out.push((0, 0));
    }
}

/// What is known of the pieces of a field before any is kept.
struct FieldPlan {
    id: FieldId,
    /// How many pieces each rule has.
    counts: Vec<u64>,
    /// One piece.
    first: (u128, u128),
    /// The bits in which another differs from it.
    varying: u128,
}

/// Divides the fields into stages, in their order; at least one.
pub(super) fn stages(input: &Input<'_>, bits: GroupBits) -> Vec<Stage> {
    let layout = input.layout();
    let width = |field: &FieldPlan| u64::from(layout.field(field.id).bytes());
    // Numbers anded, but for a constant.
    let work = |bytes: u64, counts: &[u64]| (total(counts) / 32).saturating_mul(bytes);
    let mut stages = Vec::new();
    let mut fields: Vec<FieldPlan> = Vec::new();
    let mut counts = vec![1; input.rows.len()];
    for id in layout.field_ids() {
        let field = field_plan(input, id);
        let pairs = counts.iter().zip(&field.counts);
        let product: Vec<u64> = pairs
            .map(|(&a, &b): (&u64, _)| a.saturating_mul(b))
            .collect();
        let (before, own) = (fields.iter().map(width).sum(), width(&field));
        let together = work(before + own, &product);
        let apart = work(before, &counts).saturating_add(work(own, &field.counts));
        if fields.is_empty() || together <= apart.saturating_add(MAP_WORK) {
            counts = product;
        } else {
            stages.push(stage(input, &fields, &counts, bits, stages.is_empty()));
            fields.clear();
            counts.clone_from(&field.counts);
        }
        fields.push(field);
    }
    stages.push(stage(input, &fields, &counts, bits, stages.is_empty()));
    if let [only] = &mut stages[..]
        && only.pieces <= MAX_NARROW
    {
        only.shape = Shape::narrow(only.pieces);
    }
    stages
}

fn field_plan(input: &Input<'_>, id: FieldId) -> FieldPlan {
    let mut plan = FieldPlan {
        id,
        counts: Vec::with_capacity(input.rows.len()),
        first: (0, 0),
        varying: 0,
    };
    let mut pieces = Vec::new();
    for &row in &input.rows {
        field_pieces(input, id, row, &mut pieces);
        if plan.counts.is_empty() {
            plan.first = pieces[0];
        }
        for piece in &pieces {
            plan.varying |= (piece.0 ^ plan.first.0) | (piece.1 ^ plan.first.1);
        }
        plan.counts.push(pieces.len() as u64);
    }
    plan
}

fn stage(
    input: &Input<'_>,
    fields: &[FieldPlan],
    counts: &[u64],
    bits: GroupBits,
    is_first: bool,
) -> Stage {
    let layout = input.layout();
    let pieces = total(counts);
    let max_block = if is_first { MAX_BLOCK } else { MAX_LATER_BLOCK };
    // As Linux counts them, in units of 256 bits.
    let row_bytes = pieces.div_ceil(256).saturating_mul(32);
    let mut groups = Vec::new();
    for (position, plan) in fields.iter().enumerate() {
        let field = layout.field(plan.id);
        let eight_bit_bytes = row_bytes.saturating_mul(256 * u64::from(field.bytes()));
        let bits: u8 = match bits {
            GroupBits::Four => 4,
            GroupBits::Eight => 8,
            GroupBits::BySize if eight_bit_bytes > MAX_EIGHT_BIT_BYTES => 4,
            GroupBits::BySize => 8,
        };
        for shift in (0..field.bits()).step_by(bits.into()).rev() {
            let byte = match field.byte_order() {
                ByteOrder::Big => field.bytes() - 1 - shift / 8,
                ByteOrder::Little => shift / 8,
            };
            groups.push(Group {
                field: position,
                shift,
                bits,
                offset: layout.offset(plan.id) as u16 + u16::from(byte),
            });
        }
    }
    let differs = |group: &Group| group.of(fields[group.field].varying) != 0;
    let (mut groups, mut agreed): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(differs);
    if groups.is_empty() {
        // Something has to say that all pieces match.
        groups.push(agreed.swap_remove(0));
    }
    let agreed = agreed.into_iter().map(|group| {
        let (care, value) = fields[group.field].first;
        let in_byte = |field| (group.of(field) as u8) << group.shift_in_byte();
        Agreed {
            offset: group.offset,
            care: in_byte(care),
            value: in_byte(value),
        }
    });
    Stage {
        fields: fields.iter().map(|field| field.id).collect(),
        pieces,
        rule_numbers: rule_numbers(counts),
        groups,
        agreed: agreed.collect(),
        shape: Shape::blocks(pieces, input.machine.lanes, max_block),
    }
}

/// Most numbers that the pieces of one rule lie in, where the rules' pieces lie one after the other.
fn rule_numbers(counts: &[u64]) -> usize {
    let mut start = 0u64;
    let mut most = 1;
    for count in counts {
        let end = start.saturating_add(*count);
        most = most.max(end.saturating_sub(1) / 32 - start / 32 + 1);
        start = end;
    }
    usize::try_from(most).unwrap_or(usize::MAX)
}

fn total(counts: &[u64]) -> u64 {
    counts
        .iter()
        .fold(0, |sum, &count| sum.saturating_add(count))
}
