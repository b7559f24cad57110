//! Two small encodings that many modules write: hexadecimal digits and tokens of JSON pointers.

/// Lower-case hexadecimal digits, two a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name as one token of a JSON pointer (RFC 6901).
pub fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The name behind one token of a JSON pointer.
pub fn unescape_pointer(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_pointer() {
        for name in ["a/b", "~1", "m~n", "订单", ""] {
            assert_eq!(unescape_pointer(&escape_pointer(name)), name);
        }
        assert_eq!(hex(&[0, 171, 255]), "00abff");
    }
}
