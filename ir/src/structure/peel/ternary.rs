//! Rules as bits that must be 0 or 1: the view of them that indexes are chosen by.
//!
//! An interval counts as the smallest prefix that covers it, so a rule is one value and one mask over all bits of the key.
//! That may let a rule into cells in which it matches nothing, never keep it out of one in which it does: leaves compare
//! exactly.

use crate::key::MAX_FIELDS;
use crate::structure::Input;
use crate::structure::bits::{self, Bit, Index, Ternary, put_bits};

// Two bits of `levels` a field, one of `ranged`.
const _: () = assert!(MAX_FIELDS <= 16);

/// All rules of an input, by position in [`Input::rows`].
pub(super) struct Ternaries {
    /// Words of 64 bits that one rule takes.
    limbs: usize,
    /// Rule after rule; the limbs' bits are numbered as [`Bit`]s are.
    limb_bits: Vec<Ternary>,
    /// For each rule, the fields in which it wants less than the prefix that stands for it.
    ranged: Vec<u16>,
    /// For each rule, the levels that it reaches: see [`is_specific`](Self::is_specific).
    levels: Vec<u32>,
}

impl Ternaries {
    pub(super) fn new(input: &Input<'_>) -> Self {
        let fields = input.layout().fields();
        let total: usize = fields.iter().map(|field| usize::from(field.bits())).sum();
        let limbs = total.div_ceil(64);
        let mut ternaries = Self {
            limbs,
            limb_bits: vec![Ternary::default(); limbs * input.rows.len()],
            ranged: Vec::with_capacity(input.rows.len()),
            levels: Vec::with_capacity(input.rows.len()),
        };
        let (mut cares, mut values) = (vec![0; limbs], vec![0; limbs]);
        for (&row, own) in input
            .rows
            .iter()
            .zip(ternaries.limb_bits.chunks_mut(limbs.max(1)))
        {
            cares.fill(0);
            values.fill(0);
            let (mut ranged, mut levels, mut base) = (0, 0, 0);
            for (f, (field, condition)) in fields.iter().zip(&input.rule(row).matches).enumerate() {
                let lo = condition.lower(field);
                let care = condition.care(field).unwrap_or_else(|| {
                    ranged |= 1 << f;
                    let varying = 128 - (lo ^ condition.upper(field)).leading_zeros();
                    field.max() & u128::MAX.checked_shl(varying).unwrap_or(0)
                });
                put_bits(&mut cares, base, care);
                put_bits(&mut values, base, lo & care);
                let bits = u32::from(field.bits());
                levels |= u32::from(4 * care.count_ones() >= bits) << (2 * f);
                levels |= u32::from(2 * care.count_ones() >= bits) << (2 * f + 1);
                base += usize::from(field.bits());
            }
            for (own, (&care, &value)) in own.iter_mut().zip(cares.iter().zip(&values)) {
                *own = Ternary { care, value };
            }
            ternaries.ranged.push(ranged);
            ternaries.levels.push(levels);
        }
        ternaries
    }

    fn limbs_of(&self, rule: u32) -> &[Ternary] {
        &self.limb_bits[rule as usize * self.limbs..][..self.limbs]
    }

    /// Whether a rule is as specific as `levels` say: bits 2f and 2f + 1 stand for a quarter and half of the bits of field f.
    pub(super) fn is_specific(&self, rule: u32, levels: u32) -> bool {
        levels & !self.levels[rule as usize] == 0
    }

    /// How many bits of the key a rule looks at.
    pub(super) fn specificity(&self, rule: u32) -> u32 {
        self.limbs_of(rule)
            .iter()
            .map(|limb| limb.care.count_ones())
            .sum()
    }

    /// The bits of a rule that an index gathers, in its order.
    pub(super) fn gather(&self, rule: u32, index: &Index) -> Ternary {
        let limbs = self.limbs_of(rule);
        let mut gathered = Ternary::default();
        for (i, &bit) in index.order().iter().enumerate() {
            let limb = limbs[usize::from(bit) / 64];
            gathered.care |= (limb.care >> (bit % 64) & 1) << i;
            gathered.value |= (limb.value >> (bit % 64) & 1) << i;
        }
        gathered
    }

    /// The bits of the key that are fixed where the bits `mask` of an index are.
    pub(super) fn fixed(&self, index: &Index, mask: u64) -> Vec<u64> {
        let mut fixed = vec![0; self.limbs];
        for (i, &bit) in index.order().iter().enumerate() {
            fixed[usize::from(bit) / 64] |= (mask >> i & 1) << (bit % 64);
        }
        fixed
    }

    /// Whether `by` covers whatever `rule` matches where the bits `fixed` have values that both rules can take.
    pub(super) fn covers(&self, input: &Input<'_>, by: u32, rule: u32, fixed: &[u64]) -> bool {
        let mut limbs = self.limbs_of(by).iter().zip(self.limbs_of(rule)).zip(fixed);
        if !limbs.all(|((by, rule), &fixed)| by.covers(*rule, fixed)) {
            return false;
        }
        let mut ranged = self.ranged[by as usize];
        let matches = |rule: u32| &input.rule(input.rows[rule as usize]).matches;
        while ranged != 0 {
            let field = ranged.trailing_zeros() as usize;
            if !matches(by)[field].covers(&matches(rule)[field], &input.layout().fields()[field]) {
                return false;
            }
            ranged &= ranged - 1;
        }
        true
    }

    /// The bits that tell most of `rules` apart.
    pub(super) fn telling_bits(&self, rules: &[u32]) -> Vec<Bit> {
        let own = |limb: usize| rules.iter().map(move |&rule| self.limbs_of(rule)[limb]);
        bits::telling_bits(self.limbs, own)
    }
}
