//! Reading whole files: gzip is undone where it is found, and no input grows beyond [`MAX_BYTES`].

use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// Most bytes that a rule file may have, unpacked: some ten million elements, and less than a gzip bomb expands to.
pub(super) const MAX_BYTES: usize = 1 << 30;

/// The first bytes of every gzip member.
pub(super) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Why a file could not be read; the caller knows its name.
pub(super) type ReadError = String;

/// Reads a file and unpacks it where it is gzip.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let text = read_at_most(file, MAX_BYTES)?;
    if text.starts_with(&GZIP_MAGIC) {
        unpack(&text)
    } else {
        Ok(text)
    }
}

/// Unpacks the members of a gzip file.
pub(super) fn unpack(packed: &[u8]) -> Result<Vec<u8>, ReadError> {
    read_at_most(MultiGzDecoder::new(packed), MAX_BYTES)
        .map_err(|error| format!("bad gzip data: {error}"))
}

fn read_at_most(input: impl Read, limit: usize) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    let result = input.take(limit as u64 + 1).read_to_end(&mut text);
    match result {
        Ok(_) if text.len() > limit => Err(format!("more than {limit} bytes")),
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err("the file ends in the middle".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn pack(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_of_a_gzip_file_are_joined() {
        let packed = [pack(b"table "), pack(b"ip t")].concat();
        assert_eq!(unpack(&packed).unwrap(), b"table ip t");
    }

    #[test]
    fn a_gzip_file_cut_anywhere_is_an_error() {
        let packed = pack(b"table ip t { set s { type ipv4_addr } }");
        for len in 2..packed.len() {
            let error = unpack(&packed[..len]).unwrap_err();
            assert!(error.starts_with("bad gzip data: "), "{len}: {error}");
        }
    }

    #[test]
    fn rubbish_behind_a_gzip_member_is_an_error() {
        assert!(unpack(&[pack(b"table"), b"rubbish".to_vec()].concat()).is_err());
    }

    #[test]
    fn one_byte_above_the_limit_is_refused() {
        assert_eq!(read_at_most(&b"12345"[..], 5).unwrap(), b"12345");
        assert_eq!(
            read_at_most(&b"123456"[..], 5).unwrap_err(),
            "more than 5 bytes"
        );
    }
}
