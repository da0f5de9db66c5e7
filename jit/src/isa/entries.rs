//! The code around a body: the three entries of a lookup, two of which are loops over keys.
//!
//! ```text
//! arguments to their registers
//! blocks of keys, if the program stages a row (`staged`)
//! while keys are left: load the key; body; store the result; next key
//! ```
//!
//! Which register holds what, the `abi` of each instruction set tells in a table. The body obeys the columns of the
//! batch loops in `lookup` too, so that it is lowered once and emitted three times.

use super::inst::{Class, Label, Reg, Size};
use super::lower::Machine;
use super::staged::Pass;

/// Where one body starts or ends, or a piece of the code around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<I> {
    /// An instruction and its note for the listing.
    Inst(I, &'static str),
    /// A place to jump to.
    Bind(Label),
    /// Sets up the frame, if there is one.
    Enter,
    /// The body of a pass, which leaves its result in [`Machine::RESULT`].
    Body(Pass),
    /// Takes the frame down.
    Leave,
}

/// How a batch finds its keys.
pub(super) struct Keys<I: 'static> {
    /// Which argument goes to which register, one after the other: to, from.
    pub(super) arguments: &'static [(Reg, Reg)],
    /// Makes the next key the current one.
    pub(super) load: &'static [I],
    /// Goes on to the key after it.
    pub(super) next: &'static [I],
    /// Of a block, makes the key that [`Around::IN_BLOCK`] counts the current one.
    pub(super) load_nth: &'static [I],
    /// Goes on to the keys of the next block.
    pub(super) next_block: &'static [I],
    /// What keeps the first key of a block, if `load_nth` overwrites that.
    pub(super) block: Option<Reg>,
}

/// What instruction sets differ in around a body.
pub(super) trait Around: Machine + 'static {
    /// Where indirect calls may land.
    const LANDING_PAD: Self;
    /// Returns to the caller.
    const RETURN: Self;
    /// The register of what a function returns.
    const RETURNED: Reg;
    /// The current key.
    const KEY: Reg;
    /// Of a block, which key.
    const IN_BLOCK: Reg;
    /// Puts the result where the next one goes.
    const STORE: Self;
    /// Puts the result where that of the current key of a block goes.
    const STORE_IN_BLOCK: Self;
    /// Keys that are a number of bytes apart.
    const STRIDED: Keys<Self>;
    /// Keys whose addresses are given.
    const POINTERS: Keys<Self>;

    /// Goes to a label if no keys are left.
    fn unless_key_left(to: Label) -> Vec<Self>;

    /// Goes on to the next result, and to a label if keys are left for it.
    fn next_key(to: Label) -> Vec<Self>;

    /// Goes to a label if there are fewer keys left than a block has.
    fn unless_block_left(to: Label) -> [Self; 2];

    /// Goes on to the results of the next block, and counts its keys as done.
    fn next_block() -> [Self; 2];

    /// Goes to a label for the next key of a block, if there is one: the form of a loop from which the auditor proves
    /// bounds.
    fn next_in_block(to: Label) -> [Self; 3];
}

/// Start of the loop over the keys.
const NEXT_KEY: Label = Label(0);
/// After the loop over the keys.
const NO_KEYS: Label = Label(1);
const NEXT_BLOCK: Label = Label(2);
const FETCH: Label = Label(3);
const FINISH: Label = Label(4);
const NO_BLOCK: Label = Label(5);
/// How many labels the code around a body uses.
pub(super) const LABELS: u32 = 6;

/// `lookup(key)`
pub(super) fn lookup<I: Around>() -> Vec<Part<I>> {
    let mut parts = vec![
        Part::Inst(I::LANDING_PAD, "entry"),
        Part::Enter,
        Part::Body(Pass::Whole),
    ];
    if I::RETURNED != I::RESULT {
        let result = I::mov(Size::S32, I::RETURNED, I::RESULT);
        parts.push(Part::Inst(result, "result"));
    }
    parts.extend([Part::Leave, Part::Inst(I::RETURN, "exit")]);
    parts
}

/// `lookup_batch(keys, stride, n, out)` or `lookup_batch_ptrs(ptrs, n, out)`
pub(super) fn batch<I: Around>(keys: &Keys<I>, is_staged: bool) -> Vec<Part<I>> {
    let mut parts = vec![Part::Inst(I::LANDING_PAD, "entry"), Part::Enter];
    for &(to, from) in keys.arguments {
        parts.push(Part::Inst(copy(to, from), "entry"));
    }
    if is_staged {
        blocks(keys, &mut parts);
    }
    add(&mut parts, "entry", I::unless_key_left(NO_KEYS));
    parts.push(Part::Bind(NEXT_KEY));
    add(&mut parts, "loop", keys.load.iter().copied());
    parts.extend([Part::Body(Pass::Whole), Part::Inst(I::STORE, "result")]);
    add(&mut parts, "loop", keys.next.iter().copied());
    add(&mut parts, "loop", I::next_key(NEXT_KEY));
    let end = [
        Part::Bind(NO_KEYS),
        Part::Leave,
        Part::Inst(I::RETURN, "exit"),
    ];
    parts.extend(end);
    parts
}

/// All whole blocks of a batch.
fn blocks<I: Around>(keys: &Keys<I>, parts: &mut Vec<Part<I>>) {
    add(parts, "block", keys.block.map(|first| copy(first, I::KEY)));
    parts.push(Part::Bind(NEXT_BLOCK));
    add(parts, "block", I::unless_block_left(NO_BLOCK));
    for (pass, head) in [(Pass::Fetch, FETCH), (Pass::Finish, FINISH)] {
        add(parts, "block", I::constant(I::IN_BLOCK, 0));
        parts.push(Part::Bind(head));
        add(parts, "block", keys.load_nth.iter().copied());
        parts.push(Part::Body(pass));
        add(parts, "block", [I::STORE_IN_BLOCK]);
        add(parts, "block", I::next_in_block(head));
    }
    add(parts, "block", keys.next_block.iter().copied());
    add(parts, "block", I::next_block());
    add(parts, "block", [I::jump(NEXT_BLOCK)]);
    parts.push(Part::Bind(NO_BLOCK));
    add(parts, "block", keys.block.map(|first| copy(I::KEY, first)));
}

fn copy<I: Around>(to: Reg, from: Reg) -> I {
    I::copy(Class::General, to, from)
}

fn add<I>(parts: &mut Vec<Part<I>>, note: &'static str, insts: impl IntoIterator<Item = I>) {
    parts.extend(insts.into_iter().map(|inst| Part::Inst(inst, note)));
}
