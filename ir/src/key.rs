//! Where the fields of a key lie in the caller's bytes, and the one place that knows it.
//!
//! A [`KeyLayout`] is checked once, when it is made; a [`KeyRef`] is checked once, when its bytes are wrapped. What comes
//! after cannot fail: reading a field, and looking a key up, are total.
//!
//! Wide fields are never compared as a whole. [`KeyLayout::words`] splits each field into words of 4, 2 and 1 bytes, the
//! most significant first, and structures work on those; scalar code takes the [`long_words`](KeyLayout::long_words).

use crate::entity::FieldId;
use crate::error::{KeyError, LayoutError};
use crate::field::{ByteOrder, Field};

/// Most fields of one key, as in nftables.
pub const MAX_FIELDS: usize = 16;
/// Most bytes that the fields of one key may have together, as in nftables.
pub const MAX_FIELD_BYTES_SUM: usize = 64;
/// Most bytes from the start of a key to the end of its last field.
pub const MAX_SPAN: usize = 256;

/// Byte offset and width of each field in the caller's key.
///
/// Fields may lie at any offset, in any order, and may overlap, so that a key can be a packed struct or the packet's
/// headers themselves. At most 16 fields whose widths sum to 64 bytes, within a span of 256 bytes.
///
/// ```
/// use pktjit_ir::{Field, KeyLayout};
/// let fields = [Field::ipv4_addr("saddr"), Field::inet_service("dport")];
/// assert_eq!(KeyLayout::packed(fields.clone()).unwrap().len(), 6);
/// // nft pads each field to a 4-byte register.
/// assert_eq!(KeyLayout::nft_registers(fields.clone()).unwrap().len(), 8);
/// // The IPv4 source address and the TCP destination port of a packet, counted from the start of the IPv4 header.
/// let packet = KeyLayout::at(fields.into_iter().zip([12, 22])).unwrap();
/// assert_eq!(packet.len(), 24);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyLayout {
    fields: Vec<Field>,
    offsets: Vec<u16>,
    len: u16,
}

/// A part of a field that one scalar register can hold, and one vector lane where it has at most 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// The field that this is a part of.
    pub field: FieldId,
    /// Byte offset in the key.
    pub offset: u16,
    /// Width: 1, 2 or 4 bytes, up to 8 for a long word.
    pub bytes: u8,
    /// Byte order of the word in the key, that of its field.
    pub order: ByteOrder,
    /// How far the word's lowest bit is from the lowest bit of its field.
    pub shift: u8,
}

impl Word {
    /// This word of a field value.
    #[must_use]
    pub fn of(&self, value: u128) -> u64 {
        ((value >> self.shift) as u64) & self.max()
    }

    /// The largest value, all bits set.
    #[must_use]
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.bytes))
    }
}

impl KeyLayout {
    /// Fields one after the other without gaps.
    ///
    /// # Errors
    /// No field, more than 16, or more than 64 bytes together.
    pub fn packed(fields: impl IntoIterator<Item = Field>) -> Result<Self, LayoutError> {
        Self::in_slots(fields, 1)
    }

    /// Fields one after the other, each padded to a multiple of 4 bytes, as nftables keeps them in its registers.
    ///
    /// # Errors
    /// No field, more than 16, or more than 64 bytes together.
    pub fn nft_registers(fields: impl IntoIterator<Item = Field>) -> Result<Self, LayoutError> {
        let layout = Self::in_slots(fields, 4)?;
        // The padding of the last field belongs to the key.
        let len = layout.len().next_multiple_of(4);
        layout.with_len(len)
    }

    /// The same layout with keys of `len` bytes: what follows the last field is padding.
    ///
    /// # Errors
    /// Where `len` is before the end of a field or beyond byte 256.
    pub fn with_len(mut self, len: usize) -> Result<Self, LayoutError> {
        let ends = self
            .field_ids()
            .map(|id| self.offset(id) + usize::from(self.field(id).bytes()));
        let end = ends.max().unwrap_or(0);
        match u16::try_from(len) {
            Ok(fits) if (end..=MAX_SPAN).contains(&len) => self.len = fits,
            _ => {
                return Err(LayoutError::Length {
                    len,
                    end,
                    max: MAX_SPAN,
                });
            }
        }
        Ok(self)
    }

    fn in_slots(fields: impl IntoIterator<Item = Field>, slot: usize) -> Result<Self, LayoutError> {
        let mut offset = 0usize;
        Self::at(fields.into_iter().map(|field| {
            let here = offset;
            offset += usize::from(field.bytes()).next_multiple_of(slot);
            (field, here)
        }))
    }

    /// Fields at byte offsets of the caller's choice.
    ///
    /// # Errors
    /// No field, more than 16, more than 64 bytes together, or an end beyond byte 256.
    pub fn at(fields: impl IntoIterator<Item = (Field, usize)>) -> Result<Self, LayoutError> {
        let mut layout = Self {
            fields: Vec::new(),
            offsets: Vec::new(),
            len: 0,
        };
        let mut sum = 0;
        for (field, offset) in fields {
            if layout.fields.len() == MAX_FIELDS {
                return Err(LayoutError::TooManyFields { max: MAX_FIELDS });
            }
            sum += usize::from(field.bytes());
            if sum > MAX_FIELD_BYTES_SUM {
                return Err(LayoutError::TooWide {
                    bytes: sum,
                    max: MAX_FIELD_BYTES_SUM,
                });
            }
            let end = offset
                .checked_add(field.bytes().into())
                .filter(|&end| end <= MAX_SPAN);
            let (Some(end), Ok(offset)) = (end, u16::try_from(offset)) else {
                return Err(LayoutError::BeyondSpan {
                    name: field.name().into(),
                    offset,
                    max: MAX_SPAN,
                });
            };
            layout.len = layout.len.max(end as u16);
            layout.offsets.push(offset);
            layout.fields.push(field);
        }
        if layout.fields.is_empty() {
            return Err(LayoutError::NoFields);
        }
        Ok(layout)
    }

    /// The number of bytes that a key has, and that a lookup may read.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a layout has at least one field"
    )]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// The fields in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// One field.
    ///
    /// # Panics
    /// Where `id` is not of this layout.
    #[must_use]
    pub fn field(&self, id: FieldId) -> &Field {
        &self.fields[id.index()]
    }

    /// The ids of the fields in order.
    pub fn field_ids(&self) -> impl ExactSizeIterator<Item = FieldId> + use<> {
        (0..self.fields.len() as u32).map(FieldId::new)
    }

    /// Byte offset of a field in the key.
    ///
    /// # Panics
    /// Where `id` is not of this layout.
    #[must_use]
    pub fn offset(&self, id: FieldId) -> usize {
        self.offsets[id.index()].into()
    }

    /// The words of a field, the most significant first; each as wide as what is left allows.
    ///
    /// # Panics
    /// Where `id` is not of this layout.
    pub fn words(&self, id: FieldId) -> impl Iterator<Item = Word> + use<> {
        self.words_by(id, |left| match left {
            0 | 1 => left,
            2 | 3 => 2,
            _ => 4,
        })
    }

    /// The words of up to 8 bytes of a field, the most significant first: few enough that scalar code need not know of
    /// narrower ones. Where the key is too short for a load that covers such a word, they are [`words`](Self::words).
    ///
    /// # Panics
    /// Where `id` is not of this layout.
    pub fn long_words(&self, id: FieldId) -> impl Iterator<Item = Word> + use<> {
        let room = self.len;
        self.words_by(id, move |left| match left {
            0..=2 => left,
            3 if room < 4 => 2,
            3 | 4 => left,
            _ if room < 8 => 4,
            _ => left.min(8),
        })
    }

    /// The words of a field; `take` says how many of the bytes that are left the next one has.
    fn words_by<F: Fn(u8) -> u8>(
        &self,
        id: FieldId,
        take: F,
    ) -> impl Iterator<Item = Word> + use<F> {
        let (width, order) = (self.field(id).bytes(), self.field(id).byte_order());
        let start = self.offsets[id.index()];
        let mut left = width;
        std::iter::from_fn(move || {
            let bytes = take(left);
            left -= bytes;
            let offset = match order {
                ByteOrder::Big => width - left - bytes,
                ByteOrder::Little => left,
            };
            (bytes > 0).then_some(Word {
                field: id,
                offset: start + u16::from(offset),
                bytes,
                order,
                shift: left * 8,
            })
        })
    }

    /// Wraps the bytes of a key after checking their number once.
    ///
    /// # Errors
    /// Where `bytes` is not exactly [`len`](Self::len) long.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Result<KeyRef<'a>, KeyError> {
        if bytes.len() == self.len() {
            Ok(KeyRef { bytes })
        } else {
            Err(KeyError {
                expected: self.len(),
                actual: bytes.len(),
            })
        }
    }

    /// The value of a field of a key, in host order. Zero where the key is of another, shorter layout.
    ///
    /// # Panics
    /// Where `id` is not of this layout.
    #[must_use]
    pub fn read(&self, key: KeyRef<'_>, id: FieldId) -> u128 {
        let start = self.offset(id);
        let field = self.field(id);
        let Some(bytes) = key.bytes.get(start..start + usize::from(field.bytes())) else {
            return 0;
        };
        let push = |value: u128, &byte: &u8| value << 8 | u128::from(byte);
        match field.byte_order() {
            ByteOrder::Big => bytes.iter().fold(0, push),
            ByteOrder::Little => bytes.iter().rev().fold(0, push),
        }
    }

    /// Writes field values into a new key; bytes that no field covers are zero.
    ///
    /// Bits beyond a field's width are cut off; missing values are zero.
    #[must_use]
    pub fn encode(&self, values: &[u128]) -> Vec<u8> {
        let mut key = vec![0; self.len()];
        for (id, &value) in self.field_ids().zip(values) {
            let bytes = self.field_bytes(id, value);
            key[self.offset(id)..][..bytes.len()].copy_from_slice(&bytes);
        }
        key
    }

    /// The bytes of one field, as they lie in the key.
    pub(crate) fn field_bytes(&self, id: FieldId, value: u128) -> Vec<u8> {
        let field = self.field(id);
        let mut bytes = value.to_le_bytes()[..usize::from(field.bytes())].to_vec();
        if field.byte_order() == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }
}

/// The bytes of one key, known to be as many as the layout that made it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef<'a> {
    bytes: &'a [u8],
}

impl<'a> KeyRef<'a> {
    /// The bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }
}
