//! Foreign words on a terminal.

/// What a card says, fit for a terminal: nothing in it moves the cursor, changes colours or hides.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let hidden =
            matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            c if c.is_control() || hidden => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_becomes_visible() {
        assert_eq!(plain("a\u{200b}b\u{202e}c\n退款\u{7}"), "a\\u{200b}b\\u{202e}c 退款\\u{7}");
    }
}
