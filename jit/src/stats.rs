//! What one lookup does, counted from the finished code: figures that depend on no clock and no machine.
//!
//! Instructions and loads are those of the entry `lookup`, each times the trips of the loops around it. Of a branch both
//! sides count, and no loop is left early: where code branches, the figures are what a lookup takes at most.

mod a64;
mod x64;

use pktjit_ir::program::{Inst, Terminator};
use pktjit_ir::{Program, ValueId, VerifiedProgram};

use crate::code::CompiledCode;
use crate::target::Isa;

/// What one lookup does at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupStats {
    /// Machine instructions, from the entry to the return.
    pub instructions: u64,
    /// Those that read memory: the key, tables, constants in the pool, and scratch, which is read to be changed too.
    pub loads: u64,
    /// Loads from tables on the longest chain in which each has to wait for the one before. The first one waits for the
    /// key alone. What comes out of scratch waits for all that has gone into it, but for what the loop that reads it puts
    /// there: loops that fill scratch read what others have put there.
    pub dependent_load_depth: u32,
}

/// Counts what a lookup does with `code`, which was compiled from `program`; `None` for an instruction set that this cannot
/// read.
#[must_use]
pub fn lookup_stats(code: &CompiledCode, program: &VerifiedProgram) -> Option<LookupStats> {
    let program = program.program();
    let lookup = code.entries.lookup..code.entries.lookup_batch;
    let offsets = code.listing.iter().map(|entry| entry.offset);
    let offsets = offsets.filter(|offset| lookup.contains(offset));
    let bytes = &code.bytes[..lookup.end];
    let counted: Vec<Counted> = match code.target.isa {
        Isa::X86_64 => x64::counted(bytes, offsets),
        Isa::AArch64 => a64::counted(bytes, offsets),
        Isa::Riscv64 | Isa::S390x => return None,
    };
    let loops: Vec<Loop> = counted
        .iter()
        .filter_map(|counted| counted.ends_loop)
        .collect();
    let mut stats = LookupStats {
        dependent_load_depth: load_depth(program),
        ..LookupStats::default()
    };
    for counted in &counted {
        let around = loops.iter().filter(|a_loop| a_loop.contains(counted.at));
        let times = around.map(|a_loop| a_loop.trips).product::<u64>();
        stats.instructions += times;
        stats.loads += if counted.reads_memory { times } else { 0 };
    }
    Some(stats)
}

/// An instruction of a lookup, up to the return.
struct Counted {
    at: u64,
    reads_memory: bool,
    /// The loop, if this is its branch back.
    ends_loop: Option<Loop>,
}

/// Code from the head of a loop to its branch back.
#[derive(Clone, Copy)]
struct Loop {
    head: u64,
    back: u64,
    trips: u64,
}

impl Loop {
    fn contains(&self, at: u64) -> bool {
        (self.head..=self.back).contains(&at)
    }
}

/// The most table loads on one chain of values: walks the blocks as an execution does that takes both sides of each
/// branch, and goes round a loop again only while what it carries still gets deeper.
fn load_depth(program: &Program) -> u32 {
    let mut depths = Depths::default();
    let mut trips_done = vec![0; program.blocks.len()];
    let mut at = 0;
    while let Some(block) = program.blocks.get(at) {
        let outermost = outermost_loop(program, at);
        if outermost.is_none_or(|head| head == at && trips_done[at] == 0) {
            depths.of_scratch = depths.of_changes;
        }
        for &(value, ref inst) in &block.insts {
            let mut depth = 0;
            inst.for_each_operand(|operand| depth = depth.max(depths.get(operand)));
            match inst {
                Inst::Load { .. } | Inst::LoadLanes { .. } => depth += 1,
                Inst::LoadScratch { .. } | Inst::LoadScratchLanes { .. } => {
                    depth = depth.max(match outermost {
                        Some(_) => depths.of_scratch,
                        None => depths.of_changes,
                    });
                }
                Inst::OrScratch { .. } => depths.of_changes = depths.of_changes.max(depth),
                _ => {}
            }
            depths.raise(value, depth);
        }
        let mut pass = |to: usize, skip: usize, args: &[ValueId]| {
            let params = program.blocks[to].params.iter().skip(skip);
            params.zip(args).fold(false, |deeper, (&(param, _), &arg)| {
                let depth = depths.get(arg);
                depths.raise(param, depth) | deeper
            })
        };
        match &block.terminator {
            Terminator::Return { .. } => {}
            Terminator::Jump { to, args } => {
                pass(to.index(), 0, args);
            }
            Terminator::BranchIf {
                then,
                then_args,
                otherwise,
                else_args,
                ..
            } => {
                pass(then.index(), 0, then_args);
                pass(otherwise.index(), 0, else_args);
            }
            Terminator::Repeat {
                head,
                args,
                exit,
                exit_args,
            } => {
                let head = head.index();
                let deeper = pass(head, 1, args);
                pass(exit.index(), 0, exit_args);
                trips_done[head] += 1;
                if deeper && Some(trips_done[head]) < program.blocks[head].trips {
                    at = head;
                    continue;
                }
                trips_done[head] = 0;
            }
        }
        at += 1;
    }
    depths.of_values.into_iter().max().unwrap_or(0)
}

/// The head of the outermost loop around a block.
fn outermost_loop(program: &Program, block: usize) -> Option<usize> {
    let blocks = program.blocks[block..].iter();
    let heads = blocks.filter_map(|block| match block.terminator {
        Terminator::Repeat { head, .. } => Some(head.index()),
        _ => None,
    });
    heads.filter(|&head| head <= block).min()
}

/// The load depth of each value so far.
#[derive(Default)]
struct Depths {
    of_values: Vec<u32>,
    /// Of what has gone into scratch.
    of_changes: u32,
    /// Of what had gone there before the outermost loop around the current block.
    of_scratch: u32,
}

impl Depths {
    fn get(&self, value: ValueId) -> u32 {
        self.of_values.get(value.index()).copied().unwrap_or(0)
    }

    /// Makes a value at least as deep as `depth`; whether that changed anything.
    fn raise(&mut self, value: ValueId, depth: u32) -> bool {
        if self.of_values.len() <= value.index() {
            self.of_values.resize(value.index() + 1, 0);
        }
        let old = std::mem::replace(&mut self.of_values[value.index()], depth);
        self.of_values[value.index()] = old.max(depth);
        old < depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Target, compile};
    use pktjit_ir::{text, verify};

    fn stats(body: &str) -> LookupStats {
        stats_for(body, &Target::x86_64_avx2())
    }

    fn stats_for(body: &str, target: &Target) -> LookupStats {
        let text = format!(
            "layout len=4 {{ mark \"m\" at 0 little }}
             verdicts 100
             table0 \"t\" row_bytes=4 {{ \"c\" u32 x 1 at 0 max=0x3 data 01000000 02000000 03000000 00000000 }}
             {body}"
        );
        let program = verify(text::parse(&text).unwrap()).unwrap();
        lookup_stats(&compile(&program, target).unwrap(), &program).unwrap()
    }

    #[test]
    fn straight_line_counts_each_instruction_once() {
        // endbr64, movzx, ret
        let stats = stats("block0: v0 = load_key.le8 0 return v0");
        assert_eq!((stats.instructions, stats.loads), (3, 1));
        assert_eq!(stats.dependent_load_depth, 0, "the key is no table");
    }

    #[test]
    fn loads_that_wait_for_each_other_are_deep_and_others_are_not() {
        let first = "block0: v0 = load_key.le8 0 v1 = const 0x3 v2 = and v0, v1 v3 = row table0[v2] v4 = load v3.0";
        assert_eq!(stats(&format!("{first} return v4")).dependent_load_depth, 1);
        let chain = format!("{first} v5 = row table0[v4] v6 = load v5.0 return v6");
        assert_eq!(stats(&chain).dependent_load_depth, 2);
        let side_by_side =
            format!("{first} v5 = row table0[v1] v6 = load v5.0 v7 = add v4, v6 return v7");
        assert_eq!(stats(&side_by_side).dependent_load_depth, 1);
    }

    /// A loop whose trips each load the row that the loop carries, or the row that the counter names.
    fn a_loop(trips: u32, index: &str) -> LookupStats {
        stats(&loop_body(trips, index))
    }

    fn loop_body(trips: u32, index: &str) -> String {
        format!(
            "block0: v0 = const 0x0 v1 = const 0x3 jump block1(v0, v1)
             block1(v2: scalar, v3: scalar) trips={trips}:
               v4 = and {index}, v1 v5 = row table0[v4] v6 = load v5.0 repeat block1(v6), block2(v6)
             block2(v7: scalar): return v7"
        )
    }

    #[test]
    fn clearing_scratch_is_no_load_and_changing_it_is_one() {
        let lookup = |scratch: u32, body: &str| {
            stats(&format!(
                "scratch {scratch} block0: v0 = load_key.le8 0 v1 = const 0x1 {body}"
            ))
        };
        let change = "v2 = or_scratch [v1], v0";
        assert_eq!(lookup(8, "return v0").loads, 1);
        assert_eq!(lookup(8, &format!("{change} return v0")).loads, 2);
        let all = lookup(8, &format!("{change} v3 = load_scratch [v1] return v3"));
        assert_eq!((all.loads, all.dependent_load_depth), (3, 0));
    }

    #[test]
    fn the_loop_that_clears_scratch_counts_its_trips() {
        let lookup = |scratch| {
            stats(&format!(
                "scratch {scratch} block0: v0 = load_key.le8 0 return v0"
            ))
        };
        // Eight stores of eight numbers each, and five instructions around them.
        let (some, more) = (lookup(640), lookup(704));
        assert_eq!(more.instructions - some.instructions, 13);
        let trips = |n| lookup(n).instructions;
        assert!(trips(10_000) > 13 * 156, "{}", trips(10_000));
    }

    #[test]
    fn what_comes_out_of_scratch_waits_for_what_went_in_before_the_loop() {
        let depth = |rest: &str| {
            let first = "scratch 8 block0: v0 = load_key.le8 0 v1 = const 0x3 v2 = and v0, v1 v3 = row table0[v2]
                 v4 = load v3.0 v5 = const 0x0";
            stats(&format!("{first} {rest}")).dependent_load_depth
        };
        let change = "v7 = or_scratch [v1], v4";
        let load = "v8 = load_scratch [v1] v9 = and v8, v1 v10 = row table0[v9] v11 = load v10.0";
        let straight = format!("v6 = const 0x0 {change} {load} return v11");
        assert_eq!(depth(&straight), 2);
        let in_one = format!(
            "jump block1(v5) block1(v6: scalar) trips=9: {change} {load} repeat block1, block2
             block2: return v11"
        );
        assert_eq!(depth(&in_one), 1);
        let in_two = format!(
            "jump block1(v5) block1(v6: scalar) trips=9: {change} repeat block1, block2(v5)
             block2(v12: scalar) trips=9: {load} repeat block2, block3
             block3: return v11"
        );
        assert_eq!(depth(&in_two), 2);
    }

    #[test]
    fn loops_multiply_what_is_inside_of_them() {
        let [one, two, ten] = [1, 2, 10].map(|trips| a_loop(trips, "v2"));
        let inside = two.instructions - one.instructions;
        assert!(inside > 3, "{inside}");
        assert_eq!(ten.instructions, one.instructions + 9 * inside);
        assert_eq!((one.loads, ten.loads), (1, 10));
    }

    #[test]
    fn loops_multiply_in_the_code_of_each_generator() {
        let mut targets = vec![Target::x86_64_avx2(), Target::aarch64_neon()];
        #[cfg(all(feature = "cranelift", target_arch = "x86_64"))]
        targets.push(Target::cranelift(Isa::X86_64));
        #[cfg(all(feature = "cranelift", target_arch = "aarch64"))]
        targets.push(Target::cranelift(Isa::AArch64));
        for target in targets {
            let [two, three, thousand] =
                [2, 3, 1000].map(|trips| stats_for(&loop_body(trips, "v3"), &target));
            let inside = three.instructions - two.instructions;
            assert!(inside > 3, "{target}: {inside}");
            assert_eq!(
                thousand.instructions,
                two.instructions + 998 * inside,
                "{target}"
            );
            assert_eq!(thousand.loads - two.loads, 998, "{target}");
        }
    }

    #[test]
    fn only_a_load_that_waits_for_the_trip_before_gets_deeper_with_the_trips() {
        assert_eq!(a_loop(10, "v2").dependent_load_depth, 1);
        assert_eq!(a_loop(10, "v3").dependent_load_depth, 10);
    }
}
