//! The three entries as functions of CLIF: the body of a lookup with the loops of the batches around it.

use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, InstBuilder, MemFlagsData, Signature, Type, UserFuncName,
    Value, types,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use pktjit_ir::VerifiedProgram;

use super::lower::{self, Note};
use super::machine;
use crate::target::Target;

/// One of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// `lookup(key)`
    Lookup,
    /// `lookup_batch(keys, stride, n, out)`
    Batch,
    /// `lookup_batch_ptrs(ptrs, n, out)`
    BatchPtrs,
}

/// What an address is.
const POINTER: Type = types::I64;
/// Bytes of an address.
const POINTER_BYTES: i64 = 8;
/// Reads and writes what the caller passes.
const CALLER: MemFlagsData = MemFlagsData::new().with_notrap();
/// Bytes of a result.
const RESULT_BYTES: i64 = 4;

/// The function of an entry.
pub(super) fn function(
    entry: Entry,
    program: &VerifiedProgram,
    target: &Target,
    isa: &dyn TargetIsa,
) -> Function {
    let mut signature = Signature::new(isa.default_call_conv());
    let arguments = match entry {
        Entry::Lookup => 1,
        Entry::Batch => 4,
        Entry::BatchPtrs => 3,
    };
    signature.params = vec![AbiParam::new(POINTER); arguments];
    if entry == Entry::Lookup {
        signature.returns = vec![machine::result(target.isa)];
    }
    let mut function = Function::with_name_signature(UserFuncName::default(), signature);
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let start = b.create_block();
    b.append_block_params_for_function_params(start);
    b.switch_to_block(start);
    b.set_srcloc(Note::Entry.location());
    match (entry, b.block_params(start)) {
        (Entry::Lookup, &[key]) => {
            let row = lower::body(&mut b, program, target, key);
            b.set_srcloc(Note::Exit.location());
            b.ins().return_(&[row]);
        }
        (Entry::Batch, &[keys, stride, n, out]) => {
            for_each_key(&mut b, [keys, n, out], |b, key| {
                let row = lower::body(b, program, target, key);
                b.set_srcloc(Note::Loop.location());
                (row, b.ins().iadd(key, stride))
            });
        }
        (Entry::BatchPtrs, &[pointers, n, out]) => {
            for_each_key(&mut b, [pointers, n, out], |b, pointer| {
                let key = b.ins().load(POINTER, CALLER, pointer, 0);
                let row = lower::body(b, program, target, key);
                b.set_srcloc(Note::Loop.location());
                (row, b.ins().iadd_imm_u(pointer, POINTER_BYTES))
            });
        }
        _ => unreachable!("the signature has as many parameters"),
    }
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    function
}

/// Calls for no key where n is 0. `lookup` makes the row of the current key from where the key is, and where the next one is.
fn for_each_key(
    b: &mut FunctionBuilder<'_>,
    [keys, n, out]: [Value; 3],
    lookup: impl FnOnce(&mut FunctionBuilder<'_>, Value) -> (Value, Value),
) {
    let (head, exit) = (b.create_block(), b.create_block());
    let [key, left, slot] = [(); 3].map(|()| b.append_block_param(head, POINTER));
    while_left(b, n, head, [keys, n, out], exit);
    b.switch_to_block(head);
    let (row, next_key) = lookup(b, key);
    b.ins().store(CALLER, row, slot, 0);
    let left = b.ins().iadd_imm_s(left, -1);
    let next_slot = b.ins().iadd_imm_u(slot, RESULT_BYTES);
    while_left(b, left, head, [next_key, left, next_slot], exit);
    b.switch_to_block(exit);
    b.set_srcloc(Note::Exit.location());
    b.ins().return_(&[]);
}

/// On to the next key if some are left.
fn while_left(
    b: &mut FunctionBuilder<'_>,
    left: Value,
    head: Block,
    next: [Value; 3],
    exit: Block,
) {
    b.ins()
        .brif(left, head, &next.map(BlockArg::Value), exit, &[]);
}
