//! Asks engines and structures the same questions in every way that a caller can, and counts what was really asked.
//!
//! What the right answers are comes from outside: no engine is compared with itself.

use std::collections::BTreeMap;
use std::fmt;

use pktjit::{
    BuildError, Classifier, Cpu, Effort, EngineKind, KeyRef, MISS, NativeCode, OsMemory, PlanError,
    RuleId, RuleSet, Structure,
};
use pktjit_ir::VerifiedProgram;
use pktjit_jit::audit::{audit, has_auditor};

use crate::guard::GuardedBytes;

/// The numbers of keys in a batch, some of them at the borders of the blocks of 32 in which rows are asked for ahead.
const BATCHES: [usize; 10] = [0, 1, 7, 8, 31, 32, 33, 63, 64, 256];
/// What slots hold that no lookup may write.
const CANARY: u32 = 0xc0de_cafe;
/// Slots before and behind the results of a batch.
const MARGIN: usize = 8;
/// What lies between keys.
const GAP: u8 = 0xa5;

/// Why an engine is not asked: this machine cannot run it, or `PKTJIT_ONLY_ENGINES` names others, as for an emulator that
/// is too slow for all of them.
///
/// # Errors
/// The reason.
pub fn is_asked(engine: EngineKind) -> Result<(), String> {
    engine.check(Cpu::host())?;
    match std::env::var("PKTJIT_ONLY_ENGINES") {
        Ok(names) if !names.split(',').any(|name| name == engine.name()) => {
            Err(format!("only {names} are asked"))
        }
        _ => Ok(()),
    }
}

/// Whether there is an auditor of the code of an engine on this machine.
fn is_audited(engine: EngineKind) -> bool {
    let cranelift = || Cpu::host().cranelift_target();
    engine != EngineKind::Cranelift || cranelift().is_ok_and(|target| has_auditor(&target))
}

/// Every engine of this machine with every structure that it knows; `None` leaves the choice to the planner.
pub fn configurations() -> impl Iterator<Item = (EngineKind, Option<Structure>)> {
    EngineKind::ALL
        .into_iter()
        .filter(|&engine| is_asked(engine).is_ok())
        .flat_map(|engine| {
            let structures = match engine {
                EngineKind::Linear => vec![Some(Structure::Linear)],
                _ => [None].into_iter().chain(Structure::ALL.map(Some)).collect(),
            };
            structures.into_iter().map(move |s| (engine, s))
        })
}

/// Compiles `rules`, audited where there is an auditor; the inner error is the structure that was asked for and why it
/// cannot hold them.
///
/// # Errors
/// Anything else that stands in the way: every engine must take every plan, and `linear` every rule set.
pub fn compile(
    rules: &RuleSet,
    engine: EngineKind,
    structure: Option<Structure>,
    effort: Effort,
) -> Result<Result<Classifier, (Structure, String)>, String> {
    let builder = Classifier::builder()
        .engine(engine)
        .effort(effort)
        .audit(is_audited(engine));
    let builder = match structure {
        Some(structure) => builder.structure(structure),
        None => builder,
    };
    let error = match builder.compile(rules) {
        Ok(classifier) => return Ok(Ok(classifier)),
        Err(error) => error,
    };
    match (&error, structure) {
        (BuildError::Plan(PlanError::Refused(refusals)), Some(structure))
            if structure != Structure::Linear =>
        {
            let reasons = refusals.iter().map(|(_, refusal)| refusal.to_string());
            Ok(Err((structure, reasons.collect::<Vec<_>>().join("; "))))
        }
        _ => {
            let structure = structure.map_or("auto", Structure::name);
            Err(format!("{engine} {structure}: {error}"))
        }
    }
}

/// The engines of this machine that make code of programs of eight lanes.
pub fn code_engines() -> impl Iterator<Item = EngineKind> {
    let all = [EngineKind::Avx2, EngineKind::Neon, EngineKind::Cranelift];
    all.into_iter().filter(|&engine| is_asked(engine).is_ok())
}

/// Machine code of a program, audited where there is an auditor; the inner error is why the target cannot run it.
///
/// # Errors
/// Anything else that stands in the way.
pub fn native(
    program: &VerifiedProgram,
    engine: EngineKind,
) -> Result<Result<NativeCode, String>, String> {
    let target = match engine {
        EngineKind::Cranelift => Cpu::host().cranelift_target(),
        _ => Cpu::host().target(),
    }?;
    let code = match pktjit_jit::compile(program, &target) {
        Ok(code) => code,
        Err(error) if error.is_unsupported() => return Ok(Err(error.to_string())),
        Err(error) => return Err(error.to_string()),
    };
    // Of Cranelift's code the auditor understands what planned programs become, not all that any program may.
    if has_auditor(&target) && engine != EngineKind::Cranelift {
        audit(&code, program, code.profile()).map_err(|error| error.to_string())?;
    }
    match NativeCode::load(&code, &OsMemory::default()) {
        Ok(code) => Ok(Ok(code)),
        Err(error) => Err(error.to_string()),
    }
}

/// Keys laid out in all the ways in which they can be asked for, with the row that each must give.
pub struct Questions {
    /// Each key at the end of readable memory, and at its start.
    singles: Vec<[GuardedBytes; 2]>,
    rows: Vec<u32>,
    batches: Vec<Batch>,
}

/// Keys one after the other in memory.
struct Batch {
    memory: GuardedBytes,
    /// Where the first key starts.
    start: usize,
    stride: usize,
    /// Which keys these are.
    keys: Vec<usize>,
}

impl Questions {
    /// Questions about `rules`: the bytes of each key, and the rule that it must hit.
    ///
    /// # Panics
    /// Where a key has not the length that the layout asks for, or a rule is not in the set.
    #[must_use]
    pub fn new(rules: &RuleSet, keys: &[Vec<u8>], expected: &[Option<RuleId>]) -> Self {
        let len = rules.layout().len();
        assert_eq!(keys.len(), expected.len());
        assert!(keys.iter().all(|key| key.len() == len));
        let row = |rule: &Option<RuleId>| match *rule {
            None => MISS,
            Some(rule) => rules.row_of(rule).expect("the rule is in the set") as u32,
        };
        let guarded = |key: &Vec<u8>| [GuardedBytes::at_end(key), GuardedBytes::at_start(key)];
        Self {
            singles: keys.iter().map(guarded).collect(),
            rows: expected.iter().map(row).collect(),
            batches: if keys.is_empty() {
                Vec::new()
            } else {
                batches(keys, len)
            },
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.rows.len()
    }

    /// Asks `classifier` everything; returns the number of lookups.
    ///
    /// # Errors
    /// The first wrong answer, or slot that was written and should not have been.
    pub fn ask(&self, classifier: &Classifier) -> Result<usize, String> {
        let place = format!("{} {}", classifier.engine(), classifier.structure());
        let key = |bytes| {
            let key = classifier.layout().key(bytes);
            key.map_err(|error| format!("{place}: {error}"))
        };
        let check = |how: fmt::Arguments<'_>, row: u32, index: usize| {
            let expected = self.rows[index];
            let name = |row| classifier.hit(row).map(|hit| hit.rule.index());
            if row == expected {
                return Ok(());
            }
            Err(format!(
                "{place}, {how}: key {:02x?} gives rule {:?} (row {row}), not {:?}",
                &*self.singles[index][0],
                name(row),
                name(expected)
            ))
        };
        let mut lookups = 0;

        for (index, guarded) in self.singles.iter().enumerate() {
            for bytes in guarded {
                check(
                    format_args!("single"),
                    classifier.lookup_row(key(bytes)?),
                    index,
                )?;
                lookups += 1;
            }
            let hit = classifier.lookup(key(&guarded[0])?);
            let expected = classifier.hit(self.rows[index]);
            if hit != expected {
                return Err(format!(
                    "{place}: lookup gives {hit:?} and its row {expected:?}"
                ));
            }
        }

        for batch in &self.batches {
            let span = &batch.memory[batch.start..];
            let (stride, n) = (batch.stride, batch.keys.len());
            let rows = with_canaries(n, |out| classifier.lookup_batch(span, stride, out))
                .map_err(|error| format!("{place}, {n} keys every {stride} bytes: {error}"))?;
            for (&row, &index) in rows.iter().zip(&batch.keys) {
                check(format_args!("{n} keys every {stride} bytes"), row, index)?;
            }
            let len = classifier.layout().len();
            for (position, &index) in batch.keys.iter().enumerate().take(4) {
                let at = position * stride;
                let row = classifier.lookup_row(key(&span[at..at + len])?);
                check(format_args!("single at {:p}", &span[at..]), row, index)?;
            }
            lookups += n + n.min(4);
        }

        for (turn, n) in BATCHES.into_iter().enumerate() {
            if self.singles.is_empty() {
                break;
            }
            let indices: Vec<usize> = (0..n).map(|i| (31 * turn + i) % self.keys()).collect();
            let keys: Vec<KeyRef<'_>> = indices
                .iter()
                .map(|&index| key(&*self.singles[index][index % 2]))
                .collect::<Result<_, _>>()?;
            let rows = with_canaries(n, |out| classifier.lookup_batch_keys(&keys, out))
                .map_err(|error| format!("{place}, {n} pointers: {error}"))?;
            for (&row, &index) in rows.iter().zip(&indices) {
                check(format_args!("{n} pointers"), row, index)?;
            }
            lookups += n;
        }
        Ok(lookups)
    }
}

/// Batches of all sizes and strides up against both ends of readable memory, and one at every alignment.
fn batches(keys: &[Vec<u8>], len: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut first = 0;
    let mut next = |n: usize, stride: usize| {
        let indices: Vec<usize> = (first..first + n).map(|i| i % keys.len()).collect();
        first += n;
        let mut bytes = Vec::new();
        for &index in &indices {
            bytes.resize(bytes.len().next_multiple_of(stride), GAP);
            bytes.extend(&keys[index]);
        }
        (indices, bytes)
    };
    for n in BATCHES {
        for stride in [len, len + 1, len.max(64)] {
            for place in [GuardedBytes::at_end, GuardedBytes::at_start] {
                let (keys, bytes) = next(n, stride);
                batches.push(Batch {
                    memory: place(&bytes),
                    start: 0,
                    stride,
                    keys,
                });
            }
        }
    }
    for alignment in 0..64 {
        let (keys, bytes) = next(33, len);
        // Pages are aligned to far more than 64 bytes.
        let padded = [vec![GAP; alignment], bytes].concat();
        batches.push(Batch {
            memory: GuardedBytes::at_start(&padded),
            start: alignment,
            stride: len,
            keys,
        });
    }
    batches
}

/// Runs `lookup` on so many slots that lie between others, and returns them if the others are as they were.
fn with_canaries<E: fmt::Display>(
    n: usize,
    lookup: impl FnOnce(&mut [u32]) -> Result<(), E>,
) -> Result<Vec<u32>, String> {
    let mut slots = vec![CANARY; MARGIN + n + MARGIN];
    lookup(&mut slots[MARGIN..MARGIN + n]).map_err(|error| error.to_string())?;
    let behind = slots.split_off(MARGIN + n);
    let rows = slots.split_off(MARGIN);
    if slots.iter().chain(&behind).any(|&slot| slot != CANARY) {
        return Err(format!(
            "slots around the results were written: {slots:x?} {behind:x?}"
        ));
    }
    Ok(rows)
}

/// What was really asked.
#[derive(Debug, Default)]
pub struct Coverage {
    engines: BTreeMap<&'static str, Asked>,
}

/// What one engine was asked.
#[derive(Debug, Default)]
struct Asked {
    rule_sets: usize,
    keys: usize,
    lookups: usize,
    /// How often each structure held the rules.
    held: BTreeMap<Structure, usize>,
    /// How often each structure did not, and why.
    refused: BTreeMap<(Structure, String), usize>,
}

impl Coverage {
    /// Asks every engine of this machine with every structure about `rules`, for each effort that the planner may take.
    ///
    /// # Errors
    /// What [`compile`] and [`Questions::ask`] find.
    pub fn ask_all(
        &mut self,
        rules: &RuleSet,
        questions: &Questions,
        efforts: &[Effort],
    ) -> Result<(), String> {
        for engine in EngineKind::ALL {
            let asked = self.engines.entry(engine.name()).or_default();
            asked.rule_sets += 1;
            asked.keys += questions.keys();
        }
        for (engine, structure) in configurations() {
            // Efforts differ in the plan, which other engines run too, and Cranelift takes its time.
            let efforts = match engine {
                EngineKind::Cranelift => &efforts[..efforts.len().min(1)],
                _ => efforts,
            };
            for &effort in efforts {
                self.ask(rules, questions, engine, structure, effort)?;
            }
        }
        Ok(())
    }

    fn ask(
        &mut self,
        rules: &RuleSet,
        questions: &Questions,
        engine: EngineKind,
        structure: Option<Structure>,
        effort: Effort,
    ) -> Result<(), String> {
        let asked = self.engines.entry(engine.name()).or_default();
        match compile(rules, engine, structure, effort)? {
            Ok(classifier) => {
                asked.lookups += questions.ask(&classifier)?;
                *asked.held.entry(classifier.structure()).or_default() += 1;
            }
            Err((structure, reason)) => {
                // One line for all numbers of rules and names of fields.
                let reason = reason.split('`').step_by(2).collect::<Vec<_>>().join("..");
                let words = reason.split(' ').map(|word| match word.parse::<u64>() {
                    Ok(_) => "N",
                    Err(_) => word,
                });
                let reason = words.collect::<Vec<_>>().join(" ");
                *asked.refused.entry((structure, reason)).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Adds what was asked elsewhere.
    pub fn add(&mut self, other: Self) {
        for (engine, more) in other.engines {
            let asked = self.engines.entry(engine).or_default();
            asked.rule_sets += more.rule_sets;
            asked.keys += more.keys;
            asked.lookups += more.lookups;
            for (structure, times) in more.held {
                *asked.held.entry(structure).or_default() += times;
            }
            for (refusal, times) in more.refused {
                *asked.refused.entry(refusal).or_default() += times;
            }
        }
    }

    /// Whether every engine of this machine answered, and every structure held something on each that has structures.
    ///
    /// # Errors
    /// What was never asked.
    pub fn is_complete(&self) -> Result<(), String> {
        if configurations().next().is_none() {
            return Err("no engine was asked".into());
        }
        for (engine, structure) in configurations() {
            let asked = self.engines.get(engine.name());
            let held = asked.map_or(0, |asked| match structure {
                Some(structure) => asked.held.get(&structure).copied().unwrap_or(0),
                None => asked.lookups,
            });
            if held == 0 {
                return Err(format!("{engine} {structure:?} was never asked"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for engine in EngineKind::ALL {
            if let Err(reason) = is_asked(engine) {
                writeln!(f, "{engine}: skipped: {reason}")?;
                continue;
            }
            let Some(asked) = self.engines.get(engine.name()) else {
                writeln!(f, "{engine}: never asked")?;
                continue;
            };
            writeln!(
                f,
                "{engine}: {} rule sets, {} keys, {} lookups",
                asked.rule_sets, asked.keys, asked.lookups
            )?;
            for (structure, times) in &asked.held {
                writeln!(f, "  {structure} held {times} times")?;
            }
            for ((structure, reason), times) in &asked.refused {
                writeln!(f, "  {structure} cannot hold, {times} times: {reason}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pktjit::{Field, KeyLayout, Match, Rule};

    fn ports() -> (RuleSet, Vec<Vec<u8>>) {
        let layout = KeyLayout::packed([Field::inet_service("dport")]).unwrap();
        let ports = [80, 443].map(|port| Rule::new([Match::Exact(port)]));
        let builder = ports
            .into_iter()
            .fold(RuleSet::builder(layout.clone()), |builder, rule| {
                builder.rule(rule)
            });
        let keys = [80, 443, 81].map(|port| layout.encode(&[port]));
        (builder.build().unwrap(), keys.into())
    }

    #[test]
    fn any_wrong_rule_is_noticed() {
        let (rules, keys) = ports();
        let right = [Some(RuleId::new(0)), Some(RuleId::new(1)), None];
        let ask = |expected: &[Option<RuleId>; 3]| {
            let questions = Questions::new(&rules, &keys, expected);
            Coverage::default().ask_all(&rules, &questions, &[Effort::Balanced])
        };
        assert_eq!(ask(&right), Ok(()));
        for index in 0..3 {
            for wrong in [Some(RuleId::new(0)), Some(RuleId::new(1)), None] {
                let mut expected = right;
                expected[index] = wrong;
                assert_eq!(ask(&expected).is_ok(), expected == right, "{expected:?}");
            }
        }
    }

    #[test]
    fn what_was_not_asked_is_told() {
        let (rules, keys) = ports();
        let questions = Questions::new(
            &rules,
            &keys,
            &[Some(RuleId::new(0)), Some(RuleId::new(1)), None],
        );
        let mut coverage = Coverage::default();
        assert!(coverage.is_complete().is_err());
        coverage
            .ask_all(&rules, &questions, &[Effort::Balanced])
            .unwrap();
        assert_eq!(coverage.is_complete(), Ok(()));
    }
}
