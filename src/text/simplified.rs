//! Traditional characters as simplified ones, one by one: how both cards and utterances are searched.

use std::collections::HashMap;
use std::sync::LazyLock;

static SIMPLIFIED: LazyLock<HashMap<char, char>> = LazyLock::new(|| {
    let pairs = include_str!("data/simplified.txt").lines();
    pairs.filter_map(|line| line.chars().next().zip(line.chars().nth(1))).collect()
});

/// The simplified form of a traditional character; any other character as it is.
pub fn simplify(c: char) -> char {
    // All of them lie beyond the Latin, Greek and Cyrillic letters.
    if c < '\u{3400}' { c } else { SIMPLIFIED.get(&c).copied().unwrap_or(c) }
}

/// [`simplify`] for a whole text.
pub fn simplify_text(text: &str) -> String {
    text.chars().map(simplify).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traditional_forms_become_simplified_and_nothing_else_changes() {
        let check = |text: &str, expect: &str| assert_eq!(simplify_text(text), expect);
        check("我要退貨，訂單SO-1還沒發貨", "我要退货，订单SO-1还没发货");
        check("優惠券、發票、藍牙耳機", "优惠券、发票、蓝牙耳机");
        check("著名作家的后台 refund ＳＯ", "著名作家的后台 refund ＳＯ");
        for line in include_str!("data/simplified.txt").lines() {
            let (c, to) = (line.chars().next().unwrap(), line.chars().nth(1).unwrap());
            assert!(line.chars().count() == 2 && simplify(c) == to && simplify(to) == to, "{line}");
        }
    }
}
