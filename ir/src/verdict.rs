//! What a rule says about the packets that it matches.

/// Most bytes of data that a map element may hold, as in nftables.
pub const MAX_DATA_BYTES: usize = 64;

/// The value that a lookup yields for the winning rule.
///
/// Verdicts are kept in a table beside the code; generated code only ever handles the row number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Verdict {
    /// The key is in the set; sets without values have nothing more to say.
    #[default]
    Match,
    /// Let the packet pass.
    Accept,
    /// Drop the packet.
    Drop,
    /// Go on with the next rule.
    Continue,
    /// Go back to the calling chain.
    Return,
    /// Call the named chain.
    Jump(Box<str>),
    /// Continue in the named chain for good.
    Goto(Box<str>),
    /// The value of a map element, at most 64 bytes.
    Data(Box<[u8]>),
}
