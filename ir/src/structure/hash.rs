//! `hash`: where all rules look at the same bits, a perfect hash function finds the only rule that can match.
//!
//! ```text
//! h       = sum of number i of the key * multiplier i             64 bits; a number is up to 8 bytes that rules differ in
//! pilot   = pilots[h >> ..]                                       2 bytes, chosen for the two to four keys that share it
//! slot    = (h * pilot >> 32) * slots >> 32                       a fifth more slots than keys, or a power of two
//! result  = row number of the slot if its numbers are those of the key, and so is what all rules have in common; else MISS
//! ```
//!
//! Two loads, of which the second waits for the first, and one comparison, whatever the number of rules. Each pilot was
//! searched until its keys fell on slots that were still free, those with most keys first: this is the compress, hash,
//! displace construction of Belazzougui, Botelho and Dietzfelbinger (2009) in the form that PTHash (Pibiri and Trani, 2021)
//! made quick to look up.
//!
//! Pilots are small enough for those of a million rules to stay in the second-level cache. Slots do not: they are as narrow as
//! the numbers allow, 8 bytes for an IPv4 address, even if one in eight of 12 bytes lies across two lines. A free slot repeats a
//! key that never comes to it, so that it needs no mark.
//!
//! The keys of one pilot have the leading bits of h in common; multiplied by the pilot, the next ones decide where they fall.
//! The product of a number of 8 bytes whose leading bits alone differ - two addresses, the second one in sequence - has no
//! such bits; so the high half of one is folded into the low half before.

use std::collections::HashSet;
use std::fmt;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::key::KeyLayout;
use crate::program::{BinaryOp, Column, MISS, Program, Table};
use crate::structure::common::Common;
use crate::structure::compare::Comparison;
use crate::structure::windows::{Window, windows};
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::flat;

/// Keys for each pilot: at most so many on average, and at least half of it.
const KEYS_PER_PILOT: usize = 4;
/// Bytes of slots up to which their number is a power of two: a shift in place of the second multiplication. A first-level
/// cache has room for them.
const MAX_ROUNDED_BYTES: usize = 32 << 10;
/// Most numbers of the key that stay in registers until they are compared; more are loaded again, so that few general
/// registers are enough.
const MAX_KEPT_NUMBERS: usize = 2;
/// Sets of multipliers that are tried.
const MAX_SEEDS: u32 = 8;
/// Tries for all pilots, for each of them, before the whole function is given up and begun again with other multipliers.
/// Random keys need 20 where four share a pilot and 5 where two do; sequences mostly as many, at worst 180 of those measured,
/// but that 2^18 - 1 numbers in a row took the second multipliers.
const TRIES_A_PILOT: usize = 1 << 9;
/// Most keys of one pilot; more are far beyond chance, and could not be placed.
const MAX_GROUP: usize = 32;

/// A lookup costs at least this: one number.
pub(crate) const FLOOR: Cost = Cost {
    instructions: 20.0,
    dependent_loads: 1.0,
    lines: 2.0,
    table_bytes: 0,
};

/// A hash whose bits are known; the function itself is searched when it is built.
pub(crate) struct Hash {
    /// The bits that all rules look at, in the bytes that the numbers read.
    care: Vec<u8>,
    numbers: Vec<Number>,
    /// What all rules want alike of other bytes.
    common: Common,
    /// The numbers of one rule after those of the other, without repeats.
    keys: Vec<u64>,
    /// The row of each of these rules.
    rows: Vec<u32>,
}

/// Stretches of the key side by side, up to 8 bytes.
struct Number {
    parts: Vec<Part>,
    bytes: u8,
}

/// A stretch of the key, which of its bits rules look at, and how far it is from the lowest bit of its number.
struct Part {
    window: Window,
    mask: u64,
    shift: u8,
}

impl Number {
    /// `windows`, without what follows the last bits of `care` in each, as few numbers as their order allows.
    fn of(windows: impl IntoIterator<Item = Window>, care: &[u8]) -> Vec<Self> {
        let mut numbers: Vec<Self> = Vec::new();
        for window in windows {
            let mask = window.read(care);
            let bytes = (64 - mask.leading_zeros()).div_ceil(8) as u8;
            let part = |shift| Part {
                window,
                mask,
                shift,
            };
            match numbers.last_mut() {
                Some(last) if last.bytes + bytes <= 8 => {
                    last.parts.push(part(8 * last.bytes));
                    last.bytes += bytes;
                }
                _ => numbers.push(Self {
                    parts: vec![part(0)],
                    bytes,
                }),
            }
        }
        numbers
    }

    /// The number of a key.
    fn read(&self, key: &[u8]) -> u64 {
        let parts = self.parts.iter();
        parts.fold(0, |number, part| {
            number | (part.window.read(key) & part.mask) << part.shift
        })
    }

    /// Bytes of its column.
    fn column_bytes(&self) -> u8 {
        self.bytes.next_power_of_two()
    }

    /// Whether its high half is folded into the low one before it is hashed.
    fn is_long(&self) -> bool {
        self.bytes == 8
    }

    fn emit(&self, b: &mut ProgramBuilder, care: &[u8]) -> ValueId {
        let mut number = None;
        for part in &self.parts {
            let x = part.window.emit(b, care);
            let x = b.shl(x, part.shift);
            number = Some(number.map_or(x, |number| b.binary(BinaryOp::Or, number, x)));
        }
        number.unwrap_or_else(|| b.constant(0))
    }
}

/// Names the bytes of the key: `key 0..4 4..6`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key")?;
        self.parts.iter().try_for_each(|Part { window: w, .. }| {
            write!(f, " {}..{}", w.offset, w.offset + usize::from(w.bytes))
        })
    }
}

/// A function without collisions.
struct Function {
    multipliers: Vec<u64>,
    pilots: Vec<u32>,
    /// For each slot the position of its key.
    slots: Vec<Option<u32>>,
}

impl Hash {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let layout = input.layout();
        let masks = layout.field_ids().map(|id| common_mask(input, id));
        let masks: Vec<u128> = masks.collect::<Result<_, _>>()?;
        // Fields may overlap in the key: a bit counts if it does in any of them.
        let all = overlay(layout, &masks);
        let mut wanted: Vec<u8> = Vec::with_capacity(input.rows.len() * layout.len());
        let mut rows: Vec<u32> = Vec::with_capacity(input.rows.len());
        for &row in &input.rows {
            let conditions = layout.fields().iter().zip(&input.rule(row).matches);
            let lowers: Vec<u128> = conditions.map(|(field, m)| m.lower(field)).collect();
            let bytes = overlay(layout, &lowers);
            let is_as_wanted = |(id, (&mask, &wanted)): (FieldId, (&u128, &u128))| {
                layout
                    .key(&bytes)
                    .is_ok_and(|key| (layout.read(key, id) ^ wanted) & mask == 0)
            };
            // Where overlapping fields want different things of one bit, no key matches.
            if layout
                .field_ids()
                .zip(masks.iter().zip(&lowers))
                .all(is_as_wanted)
            {
                wanted.extend(bytes);
                rows.push(row);
            }
        }
        let wanted = wanted.chunks_exact(layout.len());
        let mut care = all.clone();
        Common::take(&mut care, wanted.clone());
        let windows: Vec<Window> = windows(care.iter().copied()).collect();
        // What all rules want alike of a byte that is read anyway is compared with the others.
        for window in &windows {
            let bytes = window.offset..window.offset + usize::from(window.bytes);
            care[bytes.clone()].copy_from_slice(&all[bytes]);
        }
        let numbers = Number::of(windows, &care);
        let unread = all.iter().zip(&care).map(|(all, care)| all & !care);
        let common = Common::take(&mut unread.collect::<Vec<u8>>(), wanted.clone());
        let mut hash = Self {
            care,
            numbers,
            common,
            keys: Vec::new(),
            rows: Vec::new(),
        };
        let mut seen = HashSet::with_capacity(rows.len());
        for (bytes, row) in wanted.zip(rows) {
            // Rows come strongest first; a repeat can never win.
            if seen.insert(bytes) {
                hash.keys
                    .extend(hash.numbers.iter().map(|number| number.read(bytes)));
                hash.rows.push(row);
            }
        }
        Ok(hash)
    }

    fn pilot_bits(&self) -> u8 {
        let pilots = self.rows.len() / KEYS_PER_PILOT;
        pilots.next_power_of_two().ilog2().max(1) as u8
    }

    fn slot_count(&self) -> usize {
        let count = self.rows.len() + self.rows.len() / 5 + 1;
        let rounded = count.next_power_of_two();
        if rounded * self.row_bytes() <= MAX_ROUNDED_BYTES {
            rounded
        } else {
            count
        }
    }

    /// The numbers and the row of a rule.
    fn columns(&self) -> Vec<Column> {
        let numbers = self.numbers.iter().map(|number| Column {
            name: number.to_string().into(),
            offset: 0,
            bytes: number.column_bytes(),
            count: 1,
            max: u64::MAX >> (64 - 8 * u32::from(number.column_bytes())),
            is_result: false,
        });
        let row = Column {
            name: "row".into(),
            offset: 0,
            bytes: 4,
            count: 1,
            max: self.rows.iter().copied().max().unwrap_or(MISS).into(),
            is_result: true,
        };
        let mut columns: Vec<Column> = numbers.chain([row]).collect();
        // Wide ones first: all are aligned, without gaps.
        let mut end = 0;
        for bytes in [8, 4, 2, 1] {
            for column in columns.iter_mut().filter(|column| column.bytes == bytes) {
                column.offset = end;
                end += u32::from(bytes);
            }
        }
        columns
    }

    fn row_bytes(&self) -> usize {
        let bytes = self.numbers.iter().map(|n| usize::from(n.column_bytes()));
        (bytes.sum::<usize>() + 4).next_multiple_of(4)
    }

    pub(crate) fn cost(&self, _input: &Input<'_>) -> Cost {
        let row_bytes = self.row_bytes();
        let long = self.numbers.iter().filter(|number| number.is_long());
        Cost {
            // A load, mask, multiplication and sum a number, and its comparison; 3 to fold a long one; 15 for two
            // addresses, two multiplications and the result; the comparison of what all rules share.
            instructions: 7.0 * self.numbers.len() as f64
                + 3.0 * long.count() as f64
                + 15.0
                + self.common.instructions(),
            // The slot, after the pilot.
            dependent_loads: 1.0,
            lines: 1.0 + (row_bytes as f64 / 64.0).ceil(),
            table_bytes: (2 << self.pilot_bits()) + row_bytes * self.slot_count(),
        }
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Result<Program, Refusal> {
        if self.rows.is_empty() {
            return Ok(empty(input));
        }
        let function = (0..MAX_SEEDS)
            .find_map(|seed| self.search(seed))
            .ok_or(Refusal::NoHash { tries: MAX_SEEDS })?;

        let mut b = input.program();
        let pilots = b.table(flat("pilots", "multiplier", &function.pilots));
        let slots = b.table(self.slots(&function));
        let numbers = self.numbers.iter().map(|n| n.emit(&mut b, &self.care));
        let known: Vec<ValueId> = numbers.collect();
        let hash = self.emit_hash(&mut b, &known, &function.multipliers);
        let index = b.shr(hash, 64 - self.pilot_bits());
        let row = b.row(pilots, index);
        let pilot = b.load(row, 0, None);
        let product = b.binary(BinaryOp::Mul, hash, pilot);
        let slot_count = self.slot_count();
        let index = if slot_count.is_power_of_two() {
            b.shr(product, 64 - slot_count.ilog2() as u8)
        } else {
            let high = b.shr(product, 32);
            let product = b.binary_const(BinaryOp::Mul, high, slot_count as u64);
            b.shr(product, 32)
        };
        let row = b.row(slots, index);
        b.stage(row);
        let mut differing = self.common.emit(&mut b);
        for (i, number) in self.numbers.iter().enumerate() {
            let x = if self.numbers.len() <= MAX_KEPT_NUMBERS {
                known[i]
            } else {
                number.emit(&mut b, &self.care)
            };
            let wanted = b.load(row, i as u8, None);
            let bits = b.binary(BinaryOp::Xor, x, wanted);
            differing = Some(differing.map_or(bits, |before| b.binary(BinaryOp::Or, before, bits)));
        }
        let candidate = b.load(row, self.numbers.len() as u8, None);
        let found = Comparison::emit_unless_differing(&mut b, differing, candidate, MISS.into());
        Ok(input.finish(b, found))
    }

    /// The numbers of key `i`.
    fn key(&self, i: usize) -> &[u64] {
        let width = self.numbers.len();
        &self.keys[i * width..][..width]
    }

    fn slots(&self, function: &Function) -> Table {
        let (columns, row_bytes) = (self.columns(), self.row_bytes());
        let mut data = vec![0; row_bytes * function.slots.len()];
        for (slot, key) in data.chunks_exact_mut(row_bytes).zip(&function.slots) {
            // A free slot gets the first key, whose own slot is another: who is equal to it does not come here.
            let key = key.map_or(0, |key| key as usize);
            let numbers = self.key(key).iter().copied();
            for (column, number) in columns.iter().zip(numbers.chain([self.rows[key].into()])) {
                let bytes = usize::from(column.bytes);
                slot[column.offset as usize..][..bytes]
                    .copy_from_slice(&number.to_le_bytes()[..bytes]);
            }
        }
        Table {
            name: "slots".into(),
            row_bytes: row_bytes as u32,
            columns,
            data: data.into(),
        }
    }

    /// h of key `i`.
    fn hash(&self, i: usize, multipliers: &[u64]) -> u64 {
        let numbers = self.numbers.iter().zip(self.key(i));
        numbers
            .zip(multipliers)
            .fold(0, |sum: u64, ((number, &x), &m)| {
                let x = if number.is_long() { x ^ x >> 32 } else { x };
                sum.wrapping_add(x.wrapping_mul(m))
            })
    }

    /// Emits h for the numbers.
    fn emit_hash(
        &self,
        b: &mut ProgramBuilder,
        numbers: &[ValueId],
        multipliers: &[u64],
    ) -> ValueId {
        let mut sum: Option<ValueId> = None;
        for ((number, &x), &multiplier) in self.numbers.iter().zip(numbers).zip(multipliers) {
            let x = if number.is_long() {
                let high = b.shr(x, 32);
                b.binary(BinaryOp::Xor, high, x)
            } else {
                x
            };
            let product = b.binary_const(BinaryOp::Mul, x, multiplier);
            sum = Some(sum.map_or(product, |sum| b.binary(BinaryOp::Add, sum, product)));
        }
        sum.unwrap_or_else(|| b.constant(0))
    }

    /// Searches a pilot for each group of keys; `None` where one is not found.
    fn search(&self, seed: u32) -> Option<Function> {
        let mut random = SplitMix(seed.into());
        let multipliers: Vec<u64> = self.numbers.iter().map(|_| random.next() | 1).collect();
        let mut hashes: Vec<(u64, u32)> = (0..self.rows.len())
            .map(|i| (self.hash(i, &multipliers), i as u32))
            .collect();
        hashes.sort_unstable();
        let shift = 64 - self.pilot_bits();
        let mut groups: Vec<&[(u64, u32)]> = hashes
            .chunk_by(|(a, _), (b, _)| a >> shift == b >> shift)
            .collect();
        // The key whose h is 0 is at slot 0 with every pilot, so that its group comes before all others.
        groups.sort_by_key(|keys| (keys[0].0 != 0, std::cmp::Reverse(keys.len())));
        if groups.iter().any(|keys| keys.len() > MAX_GROUP) {
            return None;
        }

        let mut pilots = vec![0; 1 << self.pilot_bits()];
        let slot_count = self.slot_count();
        let mut slots = vec![None; slot_count];
        let mut tries = TRIES_A_PILOT * pilots.len();
        let mut taken: Vec<usize> = Vec::new();
        for keys in groups {
            let mut places = |pilot: u64| {
                taken.clear();
                keys.iter().all(|&(hash, _)| {
                    let high = hash.wrapping_mul(pilot) >> 32;
                    let slot = ((high * slot_count as u64) >> 32) as usize;
                    let is_free = slots[slot].is_none() && !taken.contains(&slot);
                    taken.push(slot);
                    is_free
                })
            };
            // From the largest on: small ones would leave keys of a group side by side.
            let mut candidates = (1..=u64::from(u16::MAX)).rev().take(tries);
            let pilot = candidates.find(|&pilot| places(pilot))?;
            tries -= usize::from(u16::MAX) - pilot as usize;
            for (&(_, key), &slot) in keys.iter().zip(&taken) {
                slots[slot] = Some(key);
            }
            pilots[(keys[0].0 >> shift) as usize] = pilot as u32;
        }
        Some(Function {
            multipliers,
            pilots,
            slots,
        })
    }
}

/// The bits of a field that all rules look at.
fn common_mask(input: &Input<'_>, id: FieldId) -> Result<u128, Refusal> {
    let field = input.layout().field(id);
    let mut masks = (input.rows.iter()).map(|&row| input.rule(row).matches[id.index()].care(field));
    match masks.next() {
        None => Ok(0),
        Some(Some(mask)) if masks.all(|other| other == Some(mask)) => Ok(mask),
        Some(_) => Err(Refusal::MixedMasks {
            field: field.name().into(),
        }),
    }
}

/// The bytes of all fields, one laid over the other.
fn overlay(layout: &KeyLayout, values: &[u128]) -> Vec<u8> {
    let mut key = vec![0; layout.len()];
    for (id, &value) in layout.field_ids().zip(values) {
        for (slot, byte) in key[layout.offset(id)..]
            .iter_mut()
            .zip(layout.field_bytes(id, value))
        {
            *slot |= byte;
        }
    }
    key
}

/// Numbers that look random and are the same on every run: SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{Choice, Options, plan};
    use crate::structure::Structure;
    use crate::structure::tests::set;
    use crate::{Field, KeyLayout, Match, Rule};

    fn hash_alone() -> Options {
        Options {
            structure: Choice::Only(Structure::Hash),
            ..Options::default()
        }
    }

    /// The keys of sets whose values have a pattern that a hash might not scatter.
    fn patterned(pattern: u8, count: u64) -> Vec<u64> {
        let key = |i: u64| match pattern {
            0 => i,
            1 => 0x0a00_0000 + i,
            2 => i << 20,
            3 => i << 46,
            4 => (i & 1) << 32 | i >> 1,
            5 => i & 1 | (i >> 1) << 44,
            6 => (i * 256 + 7).swap_bytes(),
            7 => i.swap_bytes(),
            // One bit each; no more than 65.
            _ => i.checked_sub(1).map_or(0, |bit| 1 << (bit % 64)),
        };
        let mut keys: Vec<u64> = (0..count).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    #[test]
    fn a_hash_is_found_for_patterned_keys_and_holds_each_once() {
        let layout =
            KeyLayout::packed([Field::ipv4_addr("saddr"), Field::ipv4_addr("daddr")]).unwrap();
        let counts = [1, 2, 3, 5, 10, 30, 64, 100, 777, 1000, 1024, 5000, 20000];
        for (pattern, count) in (0..9).flat_map(|pattern| counts.map(|count| (pattern, count))) {
            let keys = patterned(pattern, count);
            let exact = |&key: &u64| {
                let words = [key >> 32, key & 0xffff_ffff];
                Rule::new(words.map(|word| Match::Exact(word.into())))
            };
            let rules = set(layout.clone(), keys.iter().map(exact));
            let plan = plan(&rules, &hash_alone());
            let plan = plan.unwrap_or_else(|error| panic!("pattern {pattern}, {count}: {error}"));
            let program = plan.program().program();
            if keys.len() == 1 {
                continue;
            }
            let slots = &program.tables[1];
            let row = slots.columns.iter().find(|column| column.is_result);
            let row = row.expect("slots have rows");
            let found = (0..slots.rows()).filter_map(|slot| slots.get(slot, row, 0));
            let found: std::collections::HashSet<u64> = found.collect();
            assert_eq!(found.len(), keys.len(), "pattern {pattern}, {count}");
        }
    }

    #[test]
    fn slots_of_a_hash_are_as_narrow_as_what_tells_keys_apart() {
        let slot_bytes = |fields: &[Field], rules: Vec<Rule>| {
            let layout = KeyLayout::packed(fields.iter().cloned()).unwrap();
            let plan = plan(&set(layout, rules), &hash_alone()).unwrap();
            plan.program().program().tables[1].row_bytes
        };
        let (address, port) = (Field::ipv4_addr("daddr"), Field::inet_service("dport"));
        let spread = |i: u128| i * 0x0101_0101;
        let addresses = (0..100).map(|i| Rule::new([Match::Exact(spread(i))]));
        assert_eq!(
            slot_bytes(std::slice::from_ref(&address), addresses.collect()),
            8
        );
        let one_port = (0..100).map(|i| Rule::new([Match::Exact(spread(i)), Match::Exact(80)]));
        let fields = [address, port];
        assert_eq!(slot_bytes(&fields, one_port.collect()), 8);
        let ports = (0..100).map(|i| Rule::new([Match::Exact(spread(i)), Match::Exact(i)]));
        assert_eq!(slot_bytes(&fields, ports.collect()), 12);
    }
}
