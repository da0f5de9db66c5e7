//! A function with a frame, and what it must not do with the stack.

use super::*;

/// Audits a lookup that declares `scratch` bytes; the other entries return at once.
fn framed(scratch: u32, lookup: impl Fn(&mut Asm) -> Done) -> Result<AuditReport, AuditError> {
    let function = |body: &dyn Fn(&mut Asm) -> Done| {
        let mut asm = CodeAssembler::new(64)?;
        asm.endbr64()?;
        body(&mut asm)?;
        asm.assemble(0)
    };
    let code = compiled([
        function(&lookup),
        function(&|a| a.ret()),
        function(&|a| a.ret()),
    ]);
    audit(&code, &program(3), Profile::Framed { scratch })
}

/// The faults of a lookup that declares 24 bytes of scratch, which are 32.
pub(super) fn faults(lookup: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    match framed(24, lookup) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

/// A lookup that saves rbp and rbx and has 32 bytes of scratch, with `body` in it.
fn with_frame(a: &mut Asm, body: impl Fn(&mut Asm) -> Done) -> Done {
    a.push(rbp)?;
    a.mov(rbp, rsp)?;
    a.push(rbx)?;
    a.sub(rsp, 32)?;
    body(a)?;
    a.add(rsp, 32)?;
    a.pop(rbx)?;
    a.pop(rbp)?;
    a.ret()
}

fn body_faults(body: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    faults(|a| with_frame(a, &body))
}

#[test]
fn sound_frame_passes() {
    let report = framed(24, |a| {
        with_frame(a, |a| {
            a.mov(ebx, dword_ptr(rdi))?;
            a.mov(qword_ptr(rsp), rbx)?;
            a.movaps(xmmword_ptr(rsp + 8), xmm0)?;
            a.and(ebx, 7)?;
            a.mov(dword_ptr(rsp + rbx * 4), ebx)?;
            a.mov(eax, dword_ptr(rbp - 12))
        })
    });
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.accesses.key, report.accesses.scratch), (1, 4));
}

#[test]
fn frame_pointer_restores_the_stack() {
    let found = faults(|a| {
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.lea(rsp, ptr(rsp - 32))?;
        a.mov(rsp, rbp)?;
        a.pop(rbp)?;
        a.ret()
    });
    assert_eq!(found, []);
}

/// A lookup with the prologue and epilogue of Cranelift, with `body` in it.
fn cranelift(body: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    faults(|a| {
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.sub(rsp, 32)?;
        a.mov(qword_ptr(rsp + 16), rbx)?;
        a.mov(qword_ptr(rsp + 24), r12)?;
        a.mov(rbx, rdi)?;
        a.mov(r12d, dword_ptr(rbx))?;
        body(a)?;
        a.mov(rbx, qword_ptr(rsp + 16))?;
        a.mov(r12, qword_ptr(rsp + 24))?;
        a.add(rsp, 32)?;
        a.mov(rsp, rbp)?;
        a.pop(rbp)?;
        a.ret()
    })
}

#[test]
fn registers_saved_by_stores_pass() {
    assert_eq!(cranelift(|a| a.mov(qword_ptr(rsp + 8), r12)), []);
}

#[test]
fn store_across_a_saved_register() {
    let found = cranelift(|a| a.mov(qword_ptr(rsp + 9), rax));
    only(FaultKind::CalleeSaved, &found);
    let found = cranelift(|a| a.mov(byte_ptr(rsp + 31), al));
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn store_at_an_index_that_may_hit_a_saved_register() {
    let found = cranelift(|a| {
        a.and(r12d, 4)?;
        a.mov(dword_ptr(rsp + r12 * 4), eax)
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn masked_store_to_a_saved_register() {
    let found = cranelift(|a| a.vmaskmovps(xmmword_ptr(rsp + 8), xmm0, xmm1));
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn exchange_with_a_saved_register() {
    let found = cranelift(|a| a.xchg(qword_ptr(rsp + 16), rbx));
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn saved_register_below_the_stack_pointer_is_lost() {
    let found = cranelift(|a| {
        a.add(rsp, 32)?;
        a.sub(rsp, 32)
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn saved_registers_restored_in_each_others_place() {
    let found = cranelift(|a| {
        a.mov(rbx, qword_ptr(rsp + 24))?;
        a.mov(qword_ptr(rsp + 16), rbx)
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn half_of_a_register_restored() {
    let found = faults(|a| {
        a.sub(rsp, 8)?;
        a.mov(qword_ptr(rsp), rbx)?;
        a.mov(ebx, dword_ptr(rsp))?;
        a.add(rsp, 8)?;
        a.ret()
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn register_saved_on_one_of_two_paths() {
    let found = faults(|a| {
        let mut join = a.create_label();
        a.sub(rsp, 8)?;
        a.test(edi, edi)?;
        a.je(join)?;
        a.mov(qword_ptr(rsp), rbx)?;
        a.set_label(&mut join)?;
        a.mov(rbx, qword_ptr(rsp))?;
        a.add(rsp, 8)?;
        a.ret()
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn frame_is_no_business_of_a_leaf() {
    let mut a = CodeAssembler::new(64).unwrap();
    a.endbr64().unwrap();
    with_frame(&mut a, |_| Ok(())).unwrap();
    let [_, batch, batch_ptrs] = [(); 3].map(|()| Ok(vec![0xf3, 0x0f, 0x1e, 0xfa, 0xc3]));
    let code = compiled([a.assemble(0), batch, batch_ptrs]);
    includes(FaultKind::Stack, run(&code).unwrap_err().faults());
}

#[test]
fn push_without_pop() {
    only(
        FaultKind::Stack,
        &faults(|a| {
            a.push(rbx)?;
            a.ret()
        }),
    );
}

#[test]
fn push_on_one_of_two_paths() {
    let found = faults(|a| {
        let mut join = a.create_label();
        a.test(edi, edi)?;
        a.je(join)?;
        a.push(rbx)?;
        a.set_label(&mut join)?;
        a.mov(eax, 0)?;
        a.ret()
    });
    only(FaultKind::Stack, &found);
}

#[test]
fn push_in_a_loop() {
    let found = faults(|a| {
        let mut head = a.create_label();
        a.xor(eax, eax)?;
        a.set_label(&mut head)?;
        a.push(rbx)?;
        a.inc(eax)?;
        a.cmp(eax, 3)?;
        a.jb(head)?;
        a.add(rsp, 24)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn pops_in_the_order_of_the_pushes() {
    let found = faults(|a| {
        a.push(rbx)?;
        a.push(r12)?;
        a.pop(rbx)?;
        a.pop(r12)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn pop_before_scratch_is_released() {
    let found = faults(|a| {
        a.push(rbx)?;
        a.sub(rsp, 8)?;
        a.pop(rbx)?;
        a.add(rsp, 8)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn push_of_a_register_that_was_written() {
    let found = faults(|a| {
        a.mov(ebx, 1)?;
        a.push(rbx)?;
        a.pop(rbx)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn push_of_an_argument() {
    let found = faults(|a| {
        a.push(rdi)?;
        a.add(rsp, 8)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn more_scratch_than_declared() {
    let found = faults(|a| {
        a.sub(rsp, 40)?;
        a.add(rsp, 40)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn more_scratch_than_may_be_declared() {
    let lookup = |bytes: i32| {
        framed(u32::MAX, move |a| {
            for _ in 0..bytes / 4096 {
                a.sub(rsp, 4096)?;
                a.mov(dword_ptr(rsp), esp)?;
            }
            a.add(rsp, bytes)?;
            a.ret()
        })
    };
    assert_eq!(lookup(64 << 10).map(|_| ()), Ok(()));
    includes(FaultKind::Stack, lookup(68 << 10).unwrap_err().faults());
}

#[test]
fn stack_pointer_from_memory() {
    includes(
        FaultKind::Stack,
        &body_faults(|a| a.mov(rsp, qword_ptr(rsp))),
    );
}

#[test]
fn stack_pointer_rounded_down() {
    includes(FaultKind::Stack, &body_faults(|a| a.and(rsp, -16)));
}

#[test]
fn stack_pointer_above_the_entry() {
    let found = faults(|a| {
        a.add(rsp, 8)?;
        a.sub(rsp, 8)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn write_to_the_return_address() {
    only(
        FaultKind::Write,
        &body_faults(|a| a.mov(qword_ptr(rbp + 8), rax)),
    );
}

#[test]
fn write_to_the_slot_of_a_saved_register() {
    only(
        FaultKind::Write,
        &body_faults(|a| a.mov(qword_ptr(rbp - 8), rax)),
    );
}

#[test]
fn write_across_the_end_of_the_scratch() {
    only(
        FaultKind::Write,
        &body_faults(|a| a.mov(qword_ptr(rsp + 25), rax)),
    );
}

#[test]
fn non_temporal_write_that_may_trap() {
    let stores: [fn(&mut Asm) -> Done; 3] = [
        |a| a.vmovntdq(ymmword_ptr(rsp), ymm0),
        |a| a.vmovntps(ymmword_ptr(rsp), ymm0),
        |a| a.vmovntpd(ymmword_ptr(rsp), ymm0),
    ];
    for store in stores {
        includes(FaultKind::Write, &body_faults(store));
    }
}

#[test]
fn write_at_an_index_that_may_be_outside() {
    let found = body_faults(|a| {
        a.mov(eax, dword_ptr(rdi))?;
        a.and(eax, 8)?;
        a.mov(dword_ptr(rsp + rax * 4), eax)
    });
    only(FaultKind::Write, &found);
}

#[test]
fn read_above_the_frame() {
    only(
        FaultKind::Read,
        &body_faults(|a| a.mov(rax, qword_ptr(rsp + 56))),
    );
}

#[test]
fn read_below_the_stack_pointer() {
    only(
        FaultKind::Read,
        &body_faults(|a| a.mov(rax, qword_ptr(rsp - 8))),
    );
}

#[test]
fn access_through_a_frame_pointer_to_released_scratch() {
    let found = faults(|a| {
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.mov(eax, dword_ptr(rbp - 8))?;
        a.pop(rbp)?;
        a.ret()
    });
    only(FaultKind::Read, &found);
}

#[test]
fn pointer_that_was_kept_in_scratch() {
    let found = body_faults(|a| {
        a.mov(qword_ptr(rsp), rdi)?;
        a.mov(rdi, qword_ptr(rsp))?;
        a.mov(eax, dword_ptr(rdi))
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn pointer_from_scratch_that_was_overwritten_is_none() {
    let found = body_faults(|a| {
        a.mov(qword_ptr(rsp), rdi)?;
        a.mov(byte_ptr(rsp + 7), al)?;
        a.mov(rdi, qword_ptr(rsp))?;
        a.mov(eax, dword_ptr(rdi))
    });
    only(FaultKind::Read, &found);
}

#[test]
fn vector_at_an_unaligned_address() {
    only(
        FaultKind::Write,
        &body_faults(|a| a.movaps(xmmword_ptr(rsp), xmm0)),
    );
}

/// A frame of 8 KiB, whose upper page `probe` touches or not.
fn large_frame(probe: impl Fn(&mut Asm) -> Done) -> Vec<Fault> {
    let result = framed(8192, |a| {
        a.sub(rsp, 4096)?;
        probe(a)?;
        a.sub(rsp, 4096)?;
        a.mov(eax, dword_ptr(rsp))?;
        a.add(rsp, 8192)?;
        a.ret()
    });
    match result {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

#[test]
fn each_page_is_probed() {
    assert_eq!(large_frame(|a| a.mov(dword_ptr(rsp), esp)), []);
    assert_eq!(large_frame(|a| a.test(dword_ptr(rsp), eax)), []);
}

#[test]
fn missing_probe_of_a_page() {
    includes(FaultKind::Stack, &large_frame(|_| Ok(())));
}

#[test]
fn probe_too_high_in_its_page() {
    includes(
        FaultKind::Stack,
        &large_frame(|a| a.mov(dword_ptr(rsp + 8), esp)),
    );
}

#[test]
fn probe_that_may_touch_nothing() {
    includes(
        FaultKind::Stack,
        &large_frame(|a| a.vmaskmovps(xmmword_ptr(rsp), xmm0, xmm1)),
    );
}

#[test]
fn probe_on_one_of_two_paths() {
    let found = large_frame(|a| {
        let mut join = a.create_label();
        a.test(edi, edi)?;
        a.je(join)?;
        a.mov(dword_ptr(rsp), esp)?;
        a.set_label(&mut join)?;
        a.nop()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn pages_at_once_after_probes_of_each_pass() {
    let result = framed(8192, |a| {
        a.sub(rsp, 4096)?;
        a.mov(dword_ptr(rsp), esp)?;
        a.add(rsp, 4096)?;
        a.sub(rsp, 8192)?;
        a.add(rsp, 8192)?;
        a.ret()
    });
    assert_eq!(result.map(|_| ()), Ok(()));
}

#[test]
fn return_with_scratch_allocated() {
    let found = faults(|a| {
        a.sub(rsp, 8)?;
        a.ret()
    });
    only(FaultKind::Stack, &found);
}

#[test]
fn register_of_the_caller_clobbered_without_saving() {
    let found = faults(|a| {
        a.mov(r12d, 1)?;
        a.ret()
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn register_of_the_caller_clobbered_after_the_pop() {
    let found = faults(|a| {
        a.push(rbx)?;
        a.pop(rbx)?;
        a.mov(bl, 1)?;
        a.ret()
    });
    only(FaultKind::CalleeSaved, &found);
}

#[test]
fn or_at_an_index_inside_passes_and_one_number_beyond_does_not() {
    let found = |numbers: i32| {
        body_faults(move |a| {
            a.mov(eax, dword_ptr(rdi))?;
            a.and(eax, numbers - 1)?;
            a.or(dword_ptr(rsp + rax * 4), ebx)
        })
    };
    assert_eq!(found(8), []);
    only(FaultKind::Write, &found(16));
    let past = body_faults(|a| {
        a.movzx(eax, byte_ptr(rdi))?;
        a.and(eax, 7)?;
        a.or(dword_ptr(rsp + rax * 4 + 4), 1)
    });
    only(FaultKind::Write, &past);
}

#[test]
fn vectors_at_the_start_of_scratch_pass_and_four_bytes_on_do_not() {
    let at = |offset: i32| {
        let store = body_faults(move |a| {
            a.vmovdqu(ymmword_ptr(rsp + offset), ymm0)?;
            a.vzeroupper()
        });
        let load = body_faults(move |a| {
            a.vpand(ymm0, ymm0, ymmword_ptr(rsp + offset))?;
            a.vzeroupper()
        });
        (store, load)
    };
    assert_eq!(at(0), (vec![], vec![]));
    let (store, load) = at(4);
    only(FaultKind::Write, &store);
    only(FaultKind::Read, &load);
}

/// The loop that clears 1024 bytes, with `trips` trips of 256.
fn clearing_loop(trips: i32) -> Vec<Fault> {
    let result = framed(1024, move |a| {
        let mut head = a.create_label();
        a.sub(rsp, 1024)?;
        a.xor(eax, eax)?;
        a.set_label(&mut head)?;
        a.mov(edx, eax)?;
        a.shl(edx, 5)?;
        for store in 0..8 {
            a.vmovdqu(ymmword_ptr(rsp + rdx * 8 + 32 * store), ymm0)?;
        }
        a.add(eax, 1)?;
        a.cmp(eax, trips)?;
        a.jb(head)?;
        a.vzeroupper()?;
        a.add(rsp, 1024)?;
        a.ret()
    });
    match result {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

#[test]
fn loop_that_clears_scratch_passes_and_one_more_trip_does_not() {
    assert_eq!(clearing_loop(4), []);
    only(FaultKind::Write, &clearing_loop(5));
}

#[test]
fn epilogue_without_the_last_pop() {
    let found = faults(|a| {
        a.push(rbx)?;
        a.push(r15)?;
        a.pop(r15)?;
        a.add(rsp, 8)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

#[test]
fn register_that_is_written_before_the_push() {
    let found = faults(|a| {
        a.push(rbx)?;
        a.xor(ebp, ebp)?;
        a.push(rbp)?;
        a.pop(rbp)?;
        a.pop(rbx)?;
        a.ret()
    });
    includes(FaultKind::Stack, &found);
}

/// The loop with which Cranelift probes a frame of 20 KiB and 16 bytes: `step` moves rsp, `touch` touches the page.
fn probe_loop(
    bytes: i32,
    step: impl Fn(&mut Asm) -> Done,
    touch: impl Fn(&mut Asm) -> Done,
) -> Vec<Fault> {
    let result = framed(0x5010, |a| {
        let mut head = a.create_label();
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.mov(r11, rsp)?;
        a.sub(r11, bytes)?;
        a.set_label(&mut head)?;
        step(a)?;
        touch(a)?;
        a.cmp(rsp, r11)?;
        a.jne(head)?;
        a.add(rsp, bytes)?;
        a.sub(rsp, 0x5010)?;
        a.mov(eax, dword_ptr(rsp))?;
        a.mov(rsp, rbp)?;
        a.pop(rbp)?;
        a.ret()
    });
    match result {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().to_vec(),
    }
}

#[test]
fn loop_of_probes_passes_unless_it_is_another() {
    let page: fn(&mut Asm) -> Done = |a| a.sub(rsp, 4096);
    let touch: fn(&mut Asm) -> Done = |a| a.mov(dword_ptr(rsp), 0);
    assert_eq!(probe_loop(0x6000, page, touch), []);
    for (bytes, step, touch) in [
        // Never equal, too far, not far enough.
        (0x6001, page, touch),
        (0x7000, page, touch),
        (0x3000, page, touch),
        (0x6000, |a: &mut Asm| a.sub(rsp, 8192), touch),
        (0x6000, page, |a: &mut Asm| a.mov(dword_ptr(rsp + 8), 0)),
        (0x6000, page, |a: &mut Asm| a.mov(dword_ptr(rsp + rax), 0)),
    ] {
        includes(FaultKind::Stack, &probe_loop(bytes, step, touch));
    }
}
