//! What must hold for every valid program: the verifier takes it, its text form loses nothing, and no value leaves the
//! bounds that the verifier has proved.

use std::collections::{BTreeMap, HashSet};

use pktjit_fallback::Interpreter;
use pktjit_fuzz::ValidProgram;
use pktjit_fuzz::r#gen::program::{self, MAX_LIVE_SCALARS, MAX_LIVE_VECTORS};
use pktjit_ir::program::{BinaryOp, Block, CompareOp, Inst, Terminator, Type};
use pktjit_ir::{BlockId, MISS, Program, ValueId, VerifiedProgram, text, verify};
use quickcheck::{Arbitrary, Gen, QuickCheck};

fn quickcheck(tests: u64) -> QuickCheck {
    QuickCheck::new().tests(tests).min_tests_passed(tests)
}

fn verified(program: &Program) -> VerifiedProgram {
    verify(program.clone()).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

#[test]
fn qc_generated_programs_are_accepted() {
    fn property(seed: u64) -> bool {
        let mut g = Gen::from_size_and_seed(20, seed);
        [4, 8, 16]
            .into_iter()
            .all(|lanes| verify(program::program(&mut g, lanes)).is_ok())
    }
    quickcheck(300).quickcheck(property as fn(u64) -> bool);
}

#[test]
fn qc_text_of_verified_program_parses_to_it() {
    fn property(program: ValidProgram) -> bool {
        let text = verified(&program.0).to_string();
        text::parse(&text).as_ref() == Ok(&program.0)
    }
    quickcheck(200).quickcheck(property as fn(ValidProgram) -> bool);
}

#[test]
fn qc_few_values_are_live_at_once() {
    fn property(program: ValidProgram) -> bool {
        let (scalars, vectors) = most_live(&verified(&program.0));
        scalars <= MAX_LIVE_SCALARS && vectors <= MAX_LIVE_VECTORS
    }
    quickcheck(300).quickcheck(property as fn(ValidProgram) -> bool);
}

/// The largest numbers of scalars (and rows) and of vectors that are live at one place.
fn most_live(program: &VerifiedProgram) -> (usize, usize) {
    let blocks = &program.program().blocks;
    let mut live_in: Vec<HashSet<ValueId>> = vec![HashSet::new(); blocks.len()];
    let mut most = (0, 0);
    loop {
        let before = live_in.clone();
        for (b, block) in blocks.iter().enumerate().rev() {
            let mut live = HashSet::new();
            for to in targets(&block.terminator) {
                live.extend(&live_in[to.index()]);
            }
            let count = |live: &HashSet<ValueId>| {
                let vectors = live.iter().filter(|&&value| {
                    matches!(program.facts(value).ty, Type::Lanes(_) | Type::Mask(_))
                });
                let vectors = vectors.count();
                (live.len() - vectors, vectors)
            };
            let mut note = |live: &HashSet<ValueId>| {
                let (scalars, vectors) = count(live);
                most = (usize::max(most.0, scalars), usize::max(most.1, vectors));
            };
            // The counter is live from the head to the `repeat`, which tests it.
            if let Terminator::Repeat { head, .. } = block.terminator {
                live.insert(blocks[head.index()].params[0].0);
            }
            block
                .terminator
                .for_each_operand(|value| live.extend([value]));
            note(&live);
            for (value, inst) in block.insts.iter().rev() {
                live.remove(value);
                inst.for_each_operand(|value| live.extend([value]));
                note(&live);
            }
            for (param, _) in &block.params {
                live.remove(param);
            }
            live_in[b] = live;
        }
        if live_in == before {
            return most;
        }
    }
}

fn targets(terminator: &Terminator) -> Vec<BlockId> {
    match *terminator {
        Terminator::Jump { to, .. } => vec![to],
        Terminator::BranchIf {
            then, otherwise, ..
        } => vec![then, otherwise],
        Terminator::Repeat { head, exit, .. } => vec![head, exit],
        Terminator::Return { .. } => vec![],
    }
}

#[test]
fn qc_values_stay_in_the_bounds_that_the_verifier_proved() {
    fn property(seed: u64, which: usize) -> bool {
        let mut g = Gen::from_size_and_seed(20, seed);
        let lanes = *g.choose(&[4, 8, 16]).unwrap();
        let program = program::program(&mut g, lanes);
        let guarded = verified(&guarded(&verified(&program), which));
        let layout = guarded.program().layout.clone();
        let interpreter = Interpreter::new(guarded);
        (0..20).all(|_| {
            let key = program::key(&mut g, &layout);
            interpreter.lookup(layout.key(&key).unwrap()) != OUT_OF_BOUNDS
        })
    }
    quickcheck(2000).quickcheck(property as fn(u64, usize) -> bool);
}

/// What a guarded program returns when a value is not as the verifier said.
const OUT_OF_BOUNDS: u32 = 0x0bad_0bad;

/// The program with a test of one scalar behind its definition: not above its maximum, and with the bits that are certain.
fn guarded(program: &VerifiedProgram, which: usize) -> Program {
    let mut guarded = program.program().clone();
    // Its row may go to another block, and says nothing about values.
    guarded.staged = None;
    let mut places = Vec::new();
    for (b, block) in guarded.blocks.iter().enumerate() {
        let params = block.params.iter().map(|&(value, _)| (b, 0, value));
        let insts = block
            .insts
            .iter()
            .enumerate()
            .map(|(i, &(value, _))| (b, i + 1, value));
        let all = params.chain(insts);
        places.extend(all.filter(|&(_, _, value)| program.facts(value).ty == Type::Scalar));
    }
    let (b, at, value) = places[which % places.len()];
    let facts = program.facts(value);

    let mut next = program.value_count() as u32;
    let mut add = |insts: &mut Vec<(ValueId, Inst)>, inst| {
        insts.push((ValueId::new(next), inst));
        next += 1;
        ValueId::new(next - 1)
    };
    // Split the block: later blocks move up by one, and the last block is the one that tells.
    for block in &mut guarded.blocks {
        shift_targets(&mut block.terminator, b);
    }
    let block = &mut guarded.blocks[b];
    let rest = Block {
        params: Vec::new(),
        trips: None,
        insts: block.insts.split_off(at),
        terminator: block.terminator.clone(),
    };
    let insts = &mut block.insts;
    let max = add(insts, Inst::Const(facts.max));
    let small = add(
        insts,
        Inst::Compare {
            op: CompareOp::Le,
            a: value,
            b: max,
        },
    );
    let ones = add(insts, Inst::Const(facts.ones));
    let set = add(
        insts,
        Inst::Binary {
            op: BinaryOp::And,
            a: value,
            b: ones,
        },
    );
    let all_set = add(
        insts,
        Inst::Compare {
            op: CompareOp::Eq,
            a: set,
            b: ones,
        },
    );
    let cond = add(
        insts,
        Inst::Binary {
            op: BinaryOp::And,
            a: small,
            b: all_set,
        },
    );
    let mut told = Vec::new();
    let told_value = add(&mut told, Inst::Const(OUT_OF_BOUNDS.into()));
    block.terminator = Terminator::BranchIf {
        cond,
        then: BlockId::new(b as u32 + 1),
        then_args: Vec::new(),
        otherwise: BlockId::new(program.program().blocks.len() as u32 + 1),
        else_args: Vec::new(),
    };
    guarded.blocks.insert(b + 1, rest);
    guarded.blocks.push(Block {
        params: Vec::new(),
        trips: None,
        insts: told,
        terminator: Terminator::Return { value: told_value },
    });
    guarded
}

/// Adds one to each target behind block `b`.
fn shift_targets(terminator: &mut Terminator, b: usize) {
    let shift = |to: &mut BlockId| {
        if to.index() > b {
            *to = BlockId::new(to.as_u32() + 1);
        }
    };
    match terminator {
        Terminator::Jump { to, .. } => shift(to),
        Terminator::BranchIf {
            then, otherwise, ..
        } => {
            shift(then);
            shift(otherwise);
        }
        Terminator::Repeat { head, exit, .. } => {
            shift(head);
            shift(exit);
        }
        Terminator::Return { .. } => {}
    }
}

#[test]
fn generator_writes_every_instruction_and_terminator() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..300 {
        let program = program::program(&mut Gen::from_size_and_seed(20, seed), 8);
        for block in &program.blocks {
            for (_, inst) in &block.insts {
                let name = inst.to_string();
                *seen
                    .entry(name.split(' ').next().unwrap().to_owned())
                    .or_default() += 1;
            }
            let name = block.terminator.to_string();
            *seen
                .entry(name.split(' ').next().unwrap().to_owned())
                .or_default() += 1;
        }
    }
    let all = "const load_key.be8 load_key.be16 load_key.be32 load_key.be64 load_key.le8 load_key.le16 load_key.le32 \
               load_key.le64 and or xor add sub mul min max pext shl shr eq ne lt le select first_bit row load \
               load_lanes.8 load_scratch load_scratch_lanes.8 or_scratch and_lanes splat.8 eq_lanes le_lanes in_range_lanes in_range_halves masked_eq_lanes and_masks or_masks and_not_masks \
               lane_bits masked_min horizontal_min jump branch_if repeat return";
    for name in all.split_whitespace() {
        assert!(
            seen.get(name).is_some_and(|&count| count >= 20),
            "{name}: {seen:?}"
        );
    }
    assert_eq!(seen.len(), all.split_whitespace().count(), "{seen:?}");
}

#[test]
fn generated_programs_stage_rows_that_differ_from_key_to_key() {
    let staged = (0..300).filter(|&seed| {
        let program = program::program(&mut Gen::from_size_and_seed(20, seed), 8);
        let rows = program.blocks[0].insts.iter();
        let mut indices = rows.filter_map(|(value, inst)| match inst {
            Inst::Row { index, .. } if program.staged == Some(*value) => Some(*index),
            _ => None,
        });
        let program = verified(&program);
        indices.any(|index| program.facts(index).max > 0)
    });
    let staged = staged.count();
    assert!(staged >= 20, "{staged} of 300");
}

#[test]
fn generated_programs_answer_differently_for_different_keys() {
    let mut varied = 0;
    for seed in 0..100 {
        let mut g = Gen::from_size_and_seed(20, seed);
        let program = verified(&ValidProgram::arbitrary(&mut g).0);
        let layout = program.program().layout.clone();
        let interpreter = Interpreter::new(program);
        let rows: HashSet<u32> = (0..20)
            .map(|_| interpreter.lookup(layout.key(&program::key(&mut g, &layout)).unwrap()))
            .filter(|&row| row != MISS)
            .collect();
        varied += u32::from(rows.len() > 1);
    }
    // Some programs throw all of the key away; most must not, or a comparison of engines would prove little.
    assert!(varied >= 60, "{varied} of 100");
}

/// How many of 300 generated programs answer some key differently once they are changed.
fn programs_that_notice(change: impl Fn(&mut Program)) -> u32 {
    let notices = |seed: &u64| {
        let mut g = Gen::from_size_and_seed(20, *seed);
        let program = program::program(&mut g, 8);
        let mut changed = program.clone();
        change(&mut changed);
        let layout = program.layout.clone();
        let [program, changed] = [program, changed].map(|p| Interpreter::new(verified(&p)));
        (0..20).any(|_| {
            let key = program::key(&mut g, &layout);
            let key = layout.key(&key).unwrap();
            program.lookup(key) != changed.lookup(key)
        })
    };
    (0..300).filter(notices).count() as u32
}

#[test]
fn generated_programs_notice_a_load_before_the_bits_are_set() {
    let noticed = programs_that_notice(|program| {
        for block in &mut program.blocks {
            let insts = &mut block.insts;
            for i in (0..insts.len()).rev() {
                let is_load = |&(_, inst): &_| {
                    matches!(
                        inst,
                        Inst::LoadScratch { .. } | Inst::LoadScratchLanes { .. }
                    )
                };
                if matches!(insts[i].1, Inst::OrScratch { .. })
                    && let Some(next_load) = insts[i..].iter().position(is_load)
                {
                    insts[i..=i + next_load].rotate_left(1);
                }
            }
        }
    });
    assert!(noticed >= 30, "{noticed} of 300");
}

#[test]
fn generated_programs_notice_scratch_that_does_not_start_as_zeros() {
    let noticed = programs_that_notice(|program| {
        let mut next = verified(program).value_count() as u32;
        let mut insts = Vec::new();
        let mut add = |inst| {
            insts.push((ValueId::new(next), inst));
            next += 1;
            insts[insts.len() - 1].0
        };
        for number in 0..program.scratch.into() {
            let index = add(Inst::Const(number));
            let bits = add(Inst::Const(1 << (number % 32)));
            add(Inst::OrScratch { index, bits });
        }
        program.blocks[0].insts.splice(0..0, insts);
    });
    assert!(noticed >= 60, "{noticed} of 300");
}

#[test]
fn shrunk_programs_are_valid_and_simpler() {
    let program = ValidProgram::arbitrary(&mut Gen::from_size_and_seed(20, 1));
    let smaller: Vec<ValidProgram> = program.shrink().collect();
    assert!(!smaller.is_empty());
    for smaller in smaller {
        verified(&smaller.0);
        assert_ne!(smaller.0, program.0);
    }
}
