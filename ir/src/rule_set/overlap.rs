//! The overlap policies: which rules a set refuses, leaves out, or merges.
//!
//! Only rules of equal priority are compared: between different priorities there is nothing to decide. A catch-all takes
//! no part, except that a second one repeats the first. What is to be left out is told by notes; the rules stay in place.
//!
//! **One field.** Intervals in the order of their lower ends need to be compared with the furthest end so far and no
//! other: a sweep after a sort, `O(n log n)`. A mask that is no prefix counts as the interval between its ends.
//!
//! **Several fields.** A rule is refused if its lowest or its highest corner is matched by an earlier rule: two questions
//! each, to a [`BoxTree`] of the rule's [cluster](super::clusters). So with `port . port` elements
//!
//! ```text
//! 10-20 . 30-40      stored
//! 15-20 . 50-60      stored: disjoint
//! 11-19 . 30-40      refused: its lowest corner 11 . 30 lies in the first one
//! 15-20 . 49-61      stored: neither 15 . 49 nor 20 . 61 is taken, although it contains all of the second one
//! ```

use std::ops::Range;

use super::box_tree::{BoxTree, Query};
use super::clusters::clusters;
use super::{Note, Overlap, is_catch_all};
use crate::error::RuleSetError;
use crate::field::Field;
use crate::rule::{Match, StoredRule};

/// Applies `policy` to rules in winning order; adds a note for each rule that is to be left out.
pub(super) fn settle(
    policy: Overlap,
    fields: &[Field],
    rules: &mut [StoredRule],
    notes: &mut Vec<Note>,
) -> Result<(), RuleSetError> {
    if policy == Overlap::First {
        return Ok(());
    }
    for equals in rules.chunk_by_mut(|a, b| a.rule.priority == b.rule.priority) {
        let (catch_alls, mut others): (Vec<_>, Vec<_>) = equals
            .iter_mut()
            .partition(|stored| is_catch_all(&stored.rule));
        if let Some((first, repeats)) = catch_alls.split_first() {
            for later in repeats {
                notes.push(repetition(first, later)?);
            }
        }
        if let [field] = fields {
            settle_intervals(policy, field, &mut others, notes)?;
        } else {
            settle_boxes(fields, &others, notes)?;
        }
    }
    Ok(())
}

/// Rules that become one: neighbours in the order of their lower ends.
struct Run {
    members: Range<usize>,
    lo: u128,
    hi: u128,
    /// The member whose interval ends at `hi`.
    furthest: usize,
}

/// The law for one field: intervals are disjoint, or merge.
fn settle_intervals(
    policy: Overlap,
    field: &Field,
    rules: &mut [&mut StoredRule],
    notes: &mut Vec<Note>,
) -> Result<(), RuleSetError> {
    rules.sort_by_cached_key(|stored| stored.rule.matches[0].lower(field));
    let mut runs: Vec<Run> = Vec::new();
    for (index, stored) in rules.iter().enumerate() {
        let found = stored.rule.matches[0];
        let (lo, hi) = (found.lower(field), found.upper(field));
        if let Some(run) = runs.last_mut() {
            let furthest = &rules[run.furthest];
            let reached = furthest.rule.matches[0];
            let overlaps = lo <= run.hi;
            let touches = run.hi.checked_add(1) == Some(lo);
            let merges = policy == Overlap::Merge && is_interval(&found) && is_interval(&reached);
            let joins = overlaps && (found == reached || merges) || touches && merges;
            if joins && stored.rule.verdict == furthest.rule.verdict {
                run.members.end = index + 1;
                if hi > run.hi {
                    (run.hi, run.furthest) = (hi, index);
                }
                continue;
            }
            if overlaps {
                return Err(clash(furthest, stored));
            }
        }
        runs.push(Run {
            members: index..index + 1,
            lo,
            hi,
            furthest: index,
        });
    }
    for run in runs {
        unite(field, &run, rules, notes);
    }
    Ok(())
}

/// Gives the interval of a run to its member with the smallest id, and notes the others.
fn unite(field: &Field, run: &Run, rules: &mut [&mut StoredRule], notes: &mut Vec<Note>) {
    let members = &mut rules[run.members.clone()];
    members.sort_by_key(|stored| stored.id);
    let Some((first, others)) = members.split_first_mut() else {
        return;
    };
    for other in others {
        notes.push(if other.rule.matches == first.rule.matches {
            Note::Repeated {
                rule: other.id,
                earlier: first.id,
            }
        } else {
            Note::Merged {
                rule: other.id,
                into: first.id,
            }
        });
    }
    let found = &mut first.rule.matches[0];
    if is_interval(found) {
        let (lo, hi) = (run.lo, run.hi);
        *found = Match::Range { lo, hi }.canonical(field);
    }
}

/// Whether a canonical match skips no value between its ends.
fn is_interval(found: &Match) -> bool {
    !matches!(found, Match::Mask { .. })
}

/// The law for several fields: no corner lies in an earlier rule.
fn settle_boxes(
    fields: &[Field],
    rules: &[&mut StoredRule],
    notes: &mut Vec<Note>,
) -> Result<(), RuleSetError> {
    // Of all rules that are refused, the first one is told.
    let mut refused: Option<(u32, RuleSetError)> = None;
    for cluster in clusters(fields, rules.len(), |index| &rules[index].rule) {
        let members: Vec<&StoredRule> = cluster
            .iter()
            .map(|&index| &*rules[index as usize])
            .collect();
        if let Err((position, error)) = settle_cluster(fields, &members, notes) {
            let index = cluster[position];
            if refused.as_ref().is_none_or(|(first, _)| index < *first) {
                refused = Some((index, error));
            }
        }
    }
    refused.map_or(Ok(()), |(_, error)| Err(error))
}

/// The same for one cluster; an error comes with the position of the first rule that is refused.
fn settle_cluster(
    fields: &[Field],
    rules: &[&StoredRule],
    notes: &mut Vec<Note>,
) -> Result<(), (usize, RuleSetError)> {
    let tree = BoxTree::new(fields, rules.len(), |index| &rules[index].rule);
    let earlier_match = |corner: &[u128], index: usize| {
        let query = Query {
            lower: corner,
            upper: corner,
            stronger_than: index as u32,
        };
        let matches = |candidate: u32| {
            let candidate = &rules[candidate as usize].rule.matches;
            let mut conditions = fields.iter().zip(candidate).zip(corner);
            conditions.all(|((field, found), &value)| found.matches(field, value))
        };
        let mut unlimited = u64::MAX;
        tree.strongest(&query, &mut unlimited, matches)
            .map(|earlier| rules[earlier as usize])
    };
    for (index, stored) in rules.iter().enumerate() {
        let ends = || fields.iter().zip(&stored.rule.matches);
        let lowest: Vec<u128> = ends().map(|(field, found)| found.lower(field)).collect();
        if let Some(earlier) = earlier_match(&lowest, index) {
            notes.push(repetition(earlier, stored).map_err(|error| (index, error))?);
            continue;
        }
        let highest: Vec<u128> = ends().map(|(field, found)| found.upper(field)).collect();
        if let Some(earlier) = earlier_match(&highest, index) {
            return Err((index, clash(earlier, stored)));
        }
    }
    Ok(())
}

/// The note that `later` repeats `earlier`, or the error where it does not.
fn repetition(earlier: &StoredRule, later: &StoredRule) -> Result<Note, RuleSetError> {
    if earlier.rule == later.rule {
        Ok(Note::Repeated {
            rule: later.id,
            earlier: earlier.id,
        })
    } else {
        Err(clash(earlier, later))
    }
}

/// The error for two rules of which the later one cannot be stored.
fn clash(one: &StoredRule, other: &StoredRule) -> RuleSetError {
    let (earlier, rule) = (one.id.min(other.id), one.id.max(other.id));
    if one.rule.matches == other.rule.matches {
        RuleSetError::Conflict { rule, earlier }
    } else {
        RuleSetError::Overlap { rule, earlier }
    }
}
