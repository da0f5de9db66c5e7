//! Code of Cranelift looked at, not run: what it starts with, what it leaves open, which instructions it uses.

use std::collections::BTreeSet;

use pktjit_ir::{text as ir_text, verify};

use super::*;
use crate::audit::audit;
use crate::target::{Features, Isa};

const TABLES: &str = "layout len=4 { mark \"m\" at 0 little }
    verdicts 100
    table0 \"t\" row_bytes=64 {
      \"lo\" u32 x 8 at 0 max=0xffffffff
      \"narrow\" u16 x 8 at 32 max=0xffff
      \"bytes\" u8 x 8 at 48 max=0xff
      \"row\" u8 x 8 at 56 max=0x3
      data 00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
    }";

/// Looks into all columns, as vectors and as scalars.
const LANES: &str = "block0:
    v0 = const 0x0 v1 = row table0[v0] v2 = load_key.le32 0 v3 = splat.8 v2
    v4 = load_lanes.8 v1.0[0] v5 = load_lanes.8 v1.1[0] v6 = load_lanes.8 v1.2[0]
    v7 = in_range_lanes v3, v4, v5 v8 = masked_eq_lanes v3, v5, v6 v9 = le_lanes v3, v6
    v10 = and_masks v7, v8 v11 = or_masks v10, v9 v12 = lane_bits v11
    v13 = masked_min v4, v11, v5 v14 = horizontal_min v13
    v15 = const 0x80 v16 = or v12, v15 v17 = first_bit v16 v18 = load v1.3[v17]
    v19 = const 0x1 v20 = and v14, v19 v21 = add v18, v20
    v22 = in_range_halves v3, v4, v5 v23 = lane_bits v22 v24 = and v23, v19 v25 = add v21, v24
    return v25";

/// More scratch than a page, and a mask that is not known beforehand.
const SCRATCH: &str = "scratch 3000
    block0:
    v0 = const 0x0 v1 = row table0[v0] v2 = load_key.le32 0 v3 = load v1.0[v0] v4 = pext v2, v3
    v5 = const 0x3 v6 = and v4, v5 v7 = or_scratch [v6], v2 v8 = load_scratch [v5] v9 = and v8, v5
    return v9";

fn program(body: &str) -> VerifiedProgram {
    verify(ir_text::parse(&format!("{TABLES} {body}")).unwrap()).unwrap()
}

fn x64(features: Features) -> Target {
    Target {
        features,
        ..Target::cranelift(Isa::X86_64)
    }
}

/// What x86-64 machines have had, year after year.
fn generations() -> [Features; 5] {
    let core2 = Features {
        ssse3: true,
        ..Features::NONE
    };
    let nehalem = Features {
        sse41: true,
        popcnt: true,
        ..core2
    };
    let sandy_bridge = Features {
        avx: true,
        ..nehalem
    };
    let haswell = Features {
        avx2: true,
        bmi1: true,
        bmi2: true,
        ..sandy_bridge
    };
    [Features::NONE, core2, nehalem, sandy_bridge, haswell]
}

/// The auditor proves, among other things, that no instruction is newer than the features.
#[test]
fn code_for_each_generation_of_x86_64_passes_its_audit() {
    for body in [LANES, SCRATCH] {
        let program = program(body);
        for features in generations() {
            let code = compile(&program, &x64(features)).unwrap();
            let report = audit(&code, &program, code.profile());
            report.unwrap_or_else(|error| panic!("{features:?}: {error}"));
        }
    }
}

#[test]
fn newer_machines_get_newer_instructions() {
    let program = program(LANES);
    let used = generations().map(|features| {
        let code = compile(&program, &x64(features)).unwrap();
        let report = audit(&code, &program, code.profile()).unwrap();
        report.features.into_iter().collect::<Vec<_>>()
    });
    let used: Vec<&[&str]> = used.iter().map(Vec::as_slice).collect();
    assert!(used[0].is_empty(), "{used:?}");
    assert!(used[2].contains(&"sse4.1"), "{used:?}");
    assert!(used[3].contains(&"avx"), "{used:?}");
    assert!(used[4].contains(&"bmi1"), "{used:?}");
}

#[test]
fn entries_are_landing_pads_and_only_tables_are_left_open() {
    let program = program(LANES);
    let code = compile(&program, &x64(Features::NONE)).unwrap();
    let Entries {
        lookup,
        lookup_batch,
        lookup_batch_ptrs,
    } = code.entries();
    for entry in [lookup, lookup_batch, lookup_batch_ptrs] {
        assert!(entry.is_multiple_of(64));
        assert_eq!(code.bytes()[entry..entry + 4], [0xf3, 0x0f, 0x1e, 0xfa]);
    }
    let open: BTreeSet<TableId> = code.relocations().iter().map(|spot| spot.table).collect();
    assert_eq!(open, BTreeSet::from([TableId::new(0)]));
    assert_eq!(code.region_len(), 64);
    for relocation in code.relocations() {
        assert_eq!(code.bytes()[relocation.offset..][..8], [0; 8]);
    }
}

#[test]
fn the_listing_names_the_values_and_every_instruction_once() {
    let program = program(LANES);
    let code = compile(&program, &x64(Features::NONE)).unwrap();
    let offsets: Vec<usize> = code.listing().iter().map(|entry| entry.offset).collect();
    assert!(offsets.is_sorted_by(|a, b| a < b));
    let named: BTreeSet<_> = code
        .listing()
        .iter()
        .filter_map(|entry| entry.value)
        .collect();
    for value in [12, 14, 17, 18] {
        assert!(
            named.contains(&pktjit_ir::ValueId::new(value)),
            "v{value}: {named:?}"
        );
    }
}

#[cfg(feature = "all-arch")]
#[test]
fn every_instruction_set_gets_code() {
    for body in [LANES, SCRATCH] {
        let program = program(body);
        for isa in [Isa::AArch64, Isa::Riscv64, Isa::S390x] {
            let target = Target::cranelift(isa);
            let code = compile(&program, &target).unwrap_or_else(|e| panic!("{target}: {e}"));
            let listed = code.listing().len();
            assert!(listed > 100, "{target}: {listed} instructions");
            assert!(!code.relocations().is_empty());
            let text = text(&program, &target).unwrap();
            assert_eq!(text.matches("lookup").count(), 3, "{text}");
        }
    }
}

#[cfg(not(feature = "all-arch"))]
#[test]
fn an_instruction_set_that_the_build_leaves_out_is_unsupported() {
    let error = compile(&program(LANES), &Target::cranelift(Isa::S390x)).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
}
