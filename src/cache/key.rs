//! Everything that may change a decision, in one digest.

use sha2::{Digest, Sha256};

use crate::text::Query;

/// Digest of a request's [`KeyParts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

/// What a decision depends on. A new input of the pipeline has to be added here, and the compiler then asks for it.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    pub tenant: &'a str,
    /// Digest of the eligible tools with their card hashes: an edited card may be the one that should now win.
    pub eligible: [u128; 2],
    /// Version of the rule file, and the rule that narrowed the choice.
    pub rules: &'a str,
    pub rule: &'a str,
    /// Decider, model and prompt version.
    pub decider: &'a str,
    /// Canonical JSON of the session's state and values.
    pub session: &'a str,
    pub query: &'a Query,
    pub max_calls: usize,
}

impl Key {
    pub fn of(parts: &KeyParts<'_>) -> Self {
        let KeyParts { tenant, eligible, rules, rule, decider, session, query, max_calls } = parts;
        let mut digest = Sha256::new();
        for field in [tenant, rules, rule, decider, session, query.text.as_str()].map(str::as_bytes) {
            // Lengths keep neighbouring fields apart.
            digest.update((field.len() as u64).to_be_bytes());
            digest.update(field);
        }
        digest.update(eligible[0].to_be_bytes());
        digest.update(eligible[1].to_be_bytes());
        digest.update((*max_calls as u64).to_be_bytes());
        // A longer utterance with the same beginning is answered as a cut one.
        digest.update((query.cut_chars as u64).to_be_bytes());
        Self(digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::normalise;

    #[test]
    fn every_part_changes_the_key() {
        let (query, other) = (normalise("打开促销推送").unwrap(), normalise("关闭促销推送").unwrap());
        let base = KeyParts {
            tenant: "a",
            eligible: [1, 2],
            rules: "",
            rule: "",
            decider: "local",
            session: "{}",
            query: &query,
            max_calls: 1,
        };
        let variants = [
            base,
            KeyParts { tenant: "b", ..base },
            KeyParts { eligible: [2, 1], ..base },
            KeyParts { rules: "v1", ..base },
            KeyParts { rule: "v1", ..base },
            KeyParts { decider: "llm", ..base },
            KeyParts { session: "{\"x\":1}", ..base },
            KeyParts { query: &other, ..base },
            KeyParts { max_calls: 2, ..base },
            KeyParts { tenant: "al", decider: "ocal", ..base },
        ];
        let keys: std::collections::HashSet<Key> = variants.iter().map(Key::of).collect();
        assert_eq!(keys.len(), variants.len());
        assert_eq!(Key::of(&base), Key::of(&base.clone()));
    }
}
