//! `hash`: where all rules look at the same bits, a perfect hash function finds the only rule that can match.
//!
//! ```text
//! h       = sum of number i of the key * multiplier i             64 bits; a number is up to 8 bytes that rules differ in
//! pilot   = pilots[h >> ..]                                       a multiplier chosen for the keys that share it
//! row     = slots[(h * pilot) >> ..]  -> numbers of the key, row number
//! result  = row number if the numbers are equal, and so is what all rules have in common; else MISS
//! ```
//!
//! Two dependent loads and one comparison, whatever the number of rules. Each pilot was searched until its keys fell on
//! slots that were still free, those with most keys first: this is the compress, hash, displace construction of Belazzougui,
//! Botelho and Dietzfelbinger (2009) in the form that PTHash (Pibiri and Trani, 2021) made quick to look up.
//!
//! Exact values of 10.0.0.1 and 10.0.0.2 with 2 slots: h = 0x3a.., 0xc1..; both share pilot 0; a pilot is searched whose
//! product with the two numbers differs in the top bit.

use std::collections::HashSet;
use std::fmt;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::key::KeyLayout;
use crate::program::{BinaryOp, Column, CompareOp, MISS, Program, Table};
use crate::structure::common::Common;
use crate::structure::windows::{Window, windows};
use crate::structure::{Cost, Input, Refusal, empty};

/// Tries for one pilot before the whole function is given up and begun again with other multipliers.
const MAX_PILOT_TRIES: u32 = 1 << 14;
/// Most numbers of the key that stay in registers until they are compared; more are loaded again, so that few general
/// registers are enough.
const MAX_KEPT_NUMBERS: usize = 2;
/// Sets of multipliers that are tried.
const MAX_SEEDS: u32 = 8;

/// A lookup costs at least this: one number.
pub(crate) const FLOOR: Cost = Cost {
    instructions: 20.0,
    dependent_loads: 1.0,
    lines: 2.0,
    table_bytes: 0,
};

/// A hash whose bits are known; the function itself is searched when it is built.
pub(crate) struct Hash {
    /// The bits that all rules look at, in the bytes in which rules differ.
    care: Vec<u8>,
    numbers: Vec<Number>,
    /// The bytes in which all rules want the same.
    common: Common,
    /// The numbers of each rule, and its row; without repeats.
    keys: Vec<(Box<[u64]>, u32)>,
}

/// Stretches of the key side by side, up to 8 bytes.
struct Number {
    windows: Vec<Window>,
}

impl Number {
    /// The stretches that `care` has bits in, as few numbers as their order allows.
    fn of(care: &[u8]) -> Vec<Self> {
        let mut numbers: Vec<Self> = Vec::new();
        for window in windows(care.iter().copied()) {
            match numbers.last_mut() {
                Some(last) if last.bytes() + window.bytes <= 8 => last.windows.push(window),
                _ => numbers.push(Self {
                    windows: vec![window],
                }),
            }
        }
        numbers
    }

    fn bytes(&self) -> u8 {
        self.windows.iter().map(|window| window.bytes).sum()
    }

    /// The number of a key, or of the care bits of a key.
    fn read(&self, key: &[u8]) -> u64 {
        let windows = self.windows.iter().rev();
        // The first has the low bits; one of 8 bytes is alone.
        windows.fold(0, |number, w| {
            number.checked_shl(8 * u32::from(w.bytes)).unwrap_or(0) | w.read(key)
        })
    }

    fn emit(&self, b: &mut ProgramBuilder, care: &[u8]) -> ValueId {
        let (mut shift, mut number) = (0, None);
        for window in &self.windows {
            let x = window.emit(b, care);
            let x = b.shl(x, shift);
            shift += 8 * window.bytes;
            number = Some(number.map_or(x, |number| b.binary(BinaryOp::Or, number, x)));
        }
        number.unwrap_or_else(|| b.constant(0))
    }
}

/// Names the bytes of the key: `key 0..4 4..6`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key")?;
        self.windows
            .iter()
            .try_for_each(|w| write!(f, " {}..{}", w.offset, w.offset + usize::from(w.bytes)))
    }
}

/// A function without collisions.
struct Function {
    multipliers: Vec<u64>,
    pilots: Vec<u32>,
    pilot_bits: u8,
    slot_bits: u8,
    /// For each slot the position in `Hash::keys`.
    slots: Vec<Option<u32>>,
}

impl Hash {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let layout = input.layout();
        let mut masks: Option<Vec<u128>> = None;
        for &row in &input.rows {
            let mine: Vec<u128> = layout
                .fields()
                .iter()
                .zip(&input.rule(row).matches)
                .map(|(field, condition)| condition.care(field))
                .zip(layout.fields())
                .map(|(mask, field)| {
                    mask.ok_or_else(|| Refusal::MixedMasks {
                        field: field.name().into(),
                    })
                })
                .collect::<Result<_, _>>()?;
            match &masks {
                None => masks = Some(mine),
                Some(first) => {
                    if let Some(i) = (0..mine.len()).find(|&i| first[i] != mine[i]) {
                        return Err(Refusal::MixedMasks {
                            field: layout.fields()[i].name().into(),
                        });
                    }
                }
            }
        }
        // Fields may overlap in the key: a bit counts if it does in any of them.
        let masks = masks.unwrap_or_default();
        let mut care = overlay(layout, &masks);
        let mut wanted: Vec<(Vec<u8>, u32)> = Vec::with_capacity(input.rows.len());
        for &row in &input.rows {
            let matches = &input.rule(row).matches;
            let lowers: Vec<u128> = layout
                .fields()
                .iter()
                .zip(matches)
                .map(|(f, m)| m.lower(f))
                .collect();
            let bytes = overlay(layout, &lowers);
            let is_as_wanted = |(id, (&mask, &wanted)): (FieldId, (&u128, &u128))| {
                layout
                    .key(&bytes)
                    .is_ok_and(|key| (layout.read(key, id) ^ wanted) & mask == 0)
            };
            if !layout
                .field_ids()
                .zip(masks.iter().zip(&lowers))
                .all(is_as_wanted)
            {
                // Overlapping fields that want different things of one bit: no key matches.
                continue;
            }
            wanted.push((bytes, row));
        }
        let common = Common::take(&mut care, wanted.iter().map(|(bytes, _)| &bytes[..]));
        let numbers = Number::of(&care);
        let mut seen = HashSet::with_capacity(wanted.len());
        let mut keys: Vec<(Box<[u64]>, u32)> = Vec::with_capacity(wanted.len());
        for (bytes, row) in wanted {
            let key: Box<[u64]> = numbers
                .iter()
                .map(|number| number.read(&bytes) & number.read(&care))
                .collect();
            // Rows come strongest first; a repeat can never win.
            if seen.insert(key.clone()) {
                keys.push((key, row));
            }
        }
        Ok(Self {
            care,
            numbers,
            common,
            keys,
        })
    }

    fn bits(&self) -> (u8, u8) {
        let count = self.keys.len();
        // About four keys a pilot, and at most nine tenths of the slots taken.
        let pilot_bits = (count / 4).next_power_of_two().ilog2().max(1) as u8;
        let slot_bits = (count + count / 9 + 1).next_power_of_two().ilog2().max(1) as u8;
        (pilot_bits, slot_bits)
    }

    fn row_bytes(&self) -> usize {
        8 * self.numbers.len() + 8
    }

    pub(crate) fn cost(&self, _input: &Input<'_>) -> Cost {
        let (pilot_bits, slot_bits) = self.bits();
        let row_bytes = self.row_bytes();
        Cost {
            // A load, mask, multiplication and sum a number, and its comparison; 13 for two addresses, the second
            // multiplication and the result; the comparison of what all rules share.
            instructions: 7.0 * self.numbers.len() as f64 + 13.0 + self.common.instructions(),
            // The slot, after the pilot.
            dependent_loads: 1.0,
            lines: 1.0 + (row_bytes as f64 / 64.0).ceil(),
            table_bytes: (4 << pilot_bits) + (row_bytes << slot_bits),
        }
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Result<Program, Refusal> {
        if self.keys.is_empty() {
            return Ok(empty(input));
        }
        let function = (0..MAX_SEEDS)
            .find_map(|seed| self.search(seed))
            .ok_or(Refusal::NoHash { tries: MAX_SEEDS })?;

        let mut b = input.program();
        let pilots = b.table(crate::table::flat("pilots", "multiplier", &function.pilots));
        let slots = b.table(self.slots(&function));
        let mut known: Vec<ValueId> = Vec::new();
        let mut hash: Option<ValueId> = None;
        for (number, &multiplier) in self.numbers.iter().zip(&function.multipliers) {
            let x = number.emit(&mut b, &self.care);
            known.push(x);
            let product = b.binary_const(BinaryOp::Mul, x, multiplier);
            hash = Some(hash.map_or(product, |hash| b.binary(BinaryOp::Add, hash, product)));
        }
        let hash = hash.unwrap_or_else(|| b.constant(0));
        let index = b.shr(hash, 64 - function.pilot_bits);
        let row = b.row(pilots, index);
        let pilot = b.load(row, 0, None);
        let product = b.binary(BinaryOp::Mul, hash, pilot);
        let index = b.shr(product, 64 - function.slot_bits);
        let row = b.row(slots, index);
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
        let found = match differing {
            Some(differing) => {
                let zero = b.constant(0);
                let is_equal = b.compare(CompareOp::Eq, differing, zero);
                let miss = b.constant(MISS.into());
                b.select(is_equal, candidate, miss)
            }
            None => candidate,
        };
        Ok(input.finish(b, found))
    }

    fn slots(&self, function: &Function) -> Table {
        let row_bytes = self.row_bytes();
        let mut data = Vec::with_capacity(row_bytes << function.slot_bits);
        for slot in &function.slots {
            let (numbers, row) = match slot {
                Some(key) => {
                    let (numbers, row) = &self.keys[*key as usize];
                    (&numbers[..], *row)
                }
                // Whatever key equals zeros, it finds a miss.
                None => (&[][..], MISS),
            };
            let padded = numbers
                .iter()
                .copied()
                .chain(std::iter::repeat(0))
                .take(self.numbers.len());
            data.extend(padded.flat_map(u64::to_le_bytes));
            data.extend(u64::from(row).to_le_bytes());
        }
        let mut columns: Vec<Column> = (0..self.numbers.len())
            .map(|i| Column {
                name: self.numbers[i].to_string().into(),
                offset: 8 * i as u32,
                bytes: 8,
                count: 1,
                max: u64::MAX,
                is_result: false,
            })
            .collect();
        columns.push(Column {
            name: "row".into(),
            offset: 8 * self.numbers.len() as u32,
            bytes: 4,
            count: 1,
            max: MISS.into(),
            is_result: true,
        });
        Table {
            name: "slots".into(),
            row_bytes: row_bytes as u32,
            columns,
            data: data.into(),
        }
    }

    /// Searches a pilot for each group of keys; `None` where one is not found.
    fn search(&self, seed: u32) -> Option<Function> {
        let (pilot_bits, slot_bits) = self.bits();
        let mut random = SplitMix(seed.into());
        let multipliers: Vec<u64> = self.numbers.iter().map(|_| random.next() | 1).collect();
        let hashes: Vec<u64> = self
            .keys
            .iter()
            .map(|(numbers, _)| {
                numbers
                    .iter()
                    .zip(&multipliers)
                    .fold(0u64, |h, (x, m)| h.wrapping_add(x.wrapping_mul(*m)))
            })
            .collect();
        let mut order: Vec<u32> = (0..hashes.len() as u32).collect();
        let group = |key: u32| (hashes[key as usize] >> (64 - pilot_bits)) as usize;
        order.sort_unstable_by_key(|&key| group(key));
        let mut groups: Vec<&[u32]> = order.chunk_by(|&a, &b| group(a) == group(b)).collect();
        groups.sort_by_key(|keys| std::cmp::Reverse(keys.len()));

        let mut pilots = vec![1; 1 << pilot_bits];
        let mut slots = vec![None; 1 << slot_bits];
        let mut taken: Vec<usize> = Vec::new();
        for keys in groups {
            let pilot = (0..MAX_PILOT_TRIES)
                .map(|_| random.next() as u32 | 1)
                .find(|&pilot| {
                    taken.clear();
                    keys.iter().all(|&key| {
                        let slot = (hashes[key as usize].wrapping_mul(pilot.into())
                            >> (64 - slot_bits)) as usize;
                        let is_free = slots[slot].is_none() && !taken.contains(&slot);
                        taken.push(slot);
                        is_free
                    })
                })?;
            for (&key, &slot) in keys.iter().zip(&taken) {
                slots[slot] = Some(key);
            }
            pilots[group(keys[0])] = pilot;
        }
        Some(Function {
            multipliers,
            pilots,
            pilot_bits,
            slot_bits,
            slots,
        })
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
