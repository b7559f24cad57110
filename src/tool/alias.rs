//! The name an LLM sees: providers accept only `^[a-zA-Z0-9_-]{1,64}$`.

use sha2::{Digest, Sha256};

use crate::types::ToolId;
use crate::types::encoding::hex;

const MAX_LEN: usize = 64;
/// Hex digits of the hash kept in an alias; 48 bits keep a catalog of a million tools collision-free in practice.
const HASH_LEN: usize = 12;

/// Whether providers accept `name` as it is.
pub fn is_valid_alias(name: &str) -> bool {
    (1..=MAX_LEN).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A name that providers accept, different for different ids.
///
/// A valid id is its own alias. Any other id is cleaned, cut and followed by `-x` and a hash of the id, so that `a.b`,
/// `a/b` and `a_b` stay apart; an id that already looks like such an alias is hashed as well.
pub fn alias(id: &ToolId) -> String {
    let name = id.as_str();
    if is_valid_alias(name) && !looks_hashed(name) { name.to_owned() } else { hashed(name, "") }
}

/// The same for the name of an argument, where providers accept dots as well.
pub fn argument_alias(name: &str) -> String {
    let fits = (1..=MAX_LEN).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if fits && !looks_hashed(name) { name.to_owned() } else { hashed(name, ".") }
}

/// `name` in the characters that are accepted, `more` among them, and its hash.
fn hashed(name: &str, more: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let hash = hex(&digest[..HASH_LEN / 2]);
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' || more.contains(c) { c } else { '_' })
        .take(MAX_LEN - HASH_LEN - 2)
        .collect();
    format!("{clean}-x{hash}")
}

fn looks_hashed(name: &str) -> bool {
    name.len() >= HASH_LEN + 2
        && name.is_char_boundary(name.len() - HASH_LEN - 2)
        && name[name.len() - HASH_LEN - 2..]
            .strip_prefix("-x")
            .is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_names_stay_and_others_are_kept_apart() {
        let of = |s: &str| alias(&ToolId::new(s));
        assert_eq!(of("get_order"), "get_order");
        let odd = ["a.b", "a/b", "a_b", "a b", "查询订单", "查询订購", "Github.Get File", "user-profile/update"];
        let aliases: std::collections::BTreeSet<String> = odd.iter().map(|s| of(s)).collect();
        assert_eq!(aliases.len(), odd.len());
        assert!(aliases.iter().all(|a| is_valid_alias(a)), "{aliases:?}");
    }

    proptest! {
        #[test]
        fn aliases_fit_and_never_collide(a in "\\PC{0,90}", b in "\\PC{0,90}") {
            let (x, y) = (alias(&ToolId::new(a.as_str())), alias(&ToolId::new(b.as_str())));
            prop_assert!(is_valid_alias(&x) && is_valid_alias(&y));
            prop_assert_eq!(a == b, x == y);
            let (p, q) = (argument_alias(&a), argument_alias(&b));
            prop_assert!((1..=64).contains(&p.len()) && is_valid_alias(&p.replace('.', "_")));
            prop_assert_eq!(a == b, p == q);
            // An alias used as a name gets an alias of its own.
            prop_assert!(x == a || alias(&ToolId::new(x.as_str())) != x);
        }
    }
}
