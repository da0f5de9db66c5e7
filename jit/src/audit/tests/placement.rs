//! Faults of placement: sizes, tables, relocations; and how faults are reported.

use iced_x86::code_asm::*;

use super::*;

#[test]
fn pool_that_is_not_the_programs() {
    let mut code = sound();
    code.bytes[POOL + 3] ^= 1;
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn table_in_the_region_that_is_not_the_programs() {
    let mut code = sound();
    code.region[0].1 = Arc::from(vec![1; CELLS_BYTES]);
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn table_beyond_the_region() {
    let mut code = sound();
    code.region[0].1 = Arc::from(vec![0; CELLS_BYTES - 64]);
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn tables_that_overlap() {
    let mut code = sound();
    let buckets: Arc<[u8]> = Arc::from(vec![7; BUCKETS * BUCKET_BYTES]);
    code.region.push((CELLS_BYTES - 64, buckets));
    code.tables[1] = Placement::Region(CELLS_BYTES - 64);
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn relocation_of_something_else_than_an_immediate() {
    let mut code = sound();
    let offset = code.relocations[0].offset + 1;
    code.relocations.push(Relocation {
        offset,
        table: TableId::new(0),
    });
    only(FaultKind::Placement, run(&code).unwrap_err().faults());
}

#[test]
fn faults_are_bounded_and_name_the_entry() {
    let found = faults(Spot::LoopBody, |a, _| {
        for _ in 0..40 {
            a.mov(r11d, dword_ptr(r11))?;
        }
        Ok(())
    });
    only(FaultKind::Read, &found);
    assert_eq!(found.len(), MAX_FAULTS);
    assert_eq!(found[0].entry, Some("lookup"));
    assert!(
        found[0].to_string().starts_with("lookup 0x"),
        "{}",
        found[0]
    );
}
