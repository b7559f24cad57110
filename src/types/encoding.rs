//! Small encodings that many modules use: hexadecimal digits, tokens of JSON pointers, escapes of addresses.

use std::borrow::Cow;

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

/// The text behind `%41` and the like; one that would be no UTF-8 stays as it is.
pub(crate) fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits =
            bytes.get(at + 1..at + 3).filter(|digits| *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(code.unwrap_or(*byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
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

    #[test]
    fn escapes_are_read_where_they_are_whole_and_mean_text() {
        for (text, meant) in
            [("/%24defs/%E8%AE%A2单", "/$defs/订单"), ("100%", "100%"), ("%4", "%4"), ("%+f", "%+f"), ("%ff", "%ff")]
        {
            assert_eq!(percent_decoded(text), meant);
        }
    }
}
