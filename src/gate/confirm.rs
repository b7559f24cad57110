//! Confirm tokens: HMAC-SHA-256 over everything that consent is bound to.
//!
//! Owns: the form of a token, signing, checking in constant time.
//! Does not know: whether a token was used, which the call's state tells.
//!
//! Source: HMAC, RFC 2104.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::key;
use crate::store::SigningKey;
use crate::types::UnixMs;
use crate::types::encoding::hex;

/// Longest token that is read.
const LONGEST: usize = 256;
const FORM: &str = "pt1";

/// What a token is good for: another call differs in one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Binding<'a> {
    /// First call of the intent.
    pub origin: &'a str,
    pub tenant: &'a str,
    pub caller: &'a str,
    pub conversation: &'a str,
    pub key: &'a str,
    pub tool: &'a str,
    pub card_hash: &'a str,
    pub arguments: &'a str,
    pub policy_version: &'a str,
    pub preview: &'a str,
    pub until: UnixMs,
}

impl Binding<'_> {
    fn bytes(&self) -> String {
        let until = self.until.0.to_string();
        key::digest(&[
            "pointsman confirm token 1",
            self.origin,
            self.tenant,
            self.caller,
            self.conversation,
            self.key,
            self.tool,
            self.card_hash,
            self.arguments,
            self.policy_version,
            self.preview,
            &until,
        ])
    }
}

/// A token as it is read. Nothing in it is to be believed before it is [verified](Token::verify).
#[derive(PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub key_id: &'a str,
    pub origin: &'a str,
    pub until: UnixMs,
    mac: [u8; 32],
}

impl<'a> Token<'a> {
    /// `None` for anything that has not the form of our tokens.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parts = text.split('.');
        let (form, key_id, origin) = (parts.next()?, parts.next()?, parts.next()?);
        let (until, mac) = (parts.next()?, parts.next()?);
        if form != FORM || parts.next().is_some() {
            return None;
        }
        Some(Self { key_id, origin, until: UnixMs(until.parse().ok()?), mac: unhex(mac)? })
    }

    /// Whether `key` signed exactly `binding`; takes the same time wherever the two differ.
    pub(super) fn verify(&self, key: &SigningKey, binding: &Binding<'_>) -> bool {
        let names_it = key.id == self.key_id && self.origin == binding.origin && self.until == binding.until;
        names_it && mac(key).is_some_and(|mac| mac.chain_update(binding.bytes()).verify_slice(&self.mac).is_ok())
    }
}

/// The token for `binding`: the same each time.
pub(super) fn sign(key: &SigningKey, binding: &Binding<'_>) -> String {
    let mac = mac(key).map(|mac| mac.chain_update(binding.bytes()).finalize().into_bytes());
    let mac = mac.map(|bytes| hex(&bytes)).unwrap_or_default();
    format!("{FORM}.{}.{}.{}.{mac}", key.id, binding.origin, binding.until.0)
}

fn mac(key: &SigningKey) -> Option<Hmac<Sha256>> {
    Hmac::new_from_slice(&key.bytes).ok()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()).collect();
    bytes.filter(|_| rest.is_empty())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(id: &str, byte: u8) -> SigningKey {
        SigningKey { id: id.into(), bytes: [byte; 32] }
    }

    const FIELDS: usize = 11;

    fn binding(fields: &[String]) -> Binding<'_> {
        let [origin, tenant, caller, conversation, key, tool, card_hash, arguments, policy_version, preview] =
            std::array::from_fn(|at| fields[at].as_str());
        let until = UnixMs(fields[FIELDS - 1].len() as i64);
        Binding {
            origin,
            tenant,
            caller,
            conversation,
            key,
            tool,
            card_hash,
            arguments,
            policy_version,
            preview,
            until,
        }
    }

    proptest! {
        #[test]
        fn a_token_counts_for_its_binding_alone(
            mut fields in prop::collection::vec("[a-z0-9退款 ]{0,6}", FIELDS),
            at in 0usize..FIELDS,
        ) {
            fields[0] = "c_0".into();
            let text = sign(&key("k1", 7), &binding(&fields));
            let token = Token::read(&text).unwrap();
            prop_assert!(token.verify(&key("k1", 7), &binding(&fields)));
            prop_assert!(!token.verify(&key("k1", 8), &binding(&fields)));
            prop_assert!(!token.verify(&key("k2", 7), &binding(&fields)));
            let mut other = fields.clone();
            other[at].push('x');
            prop_assert!(!token.verify(&key("k1", 7), &binding(&other)), "field {}", at);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,300}", tail in "[0-9a-f.]{0,90}") {
            let _ = Token::read(&text);
            let _ = Token::read(&format!("pt1.{tail}"));
        }

        #[test]
        fn no_changed_token_counts(at in 0usize..120, with in "[0-9a-f.]") {
            let fields: Vec<String> = (0..FIELDS).map(|n| format!("c_{n}")).collect();
            let text = sign(&key("k1", 7), &binding(&fields));
            let mut changed: Vec<char> = text.chars().collect();
            let at = at % changed.len();
            changed[at] = with.chars().next().unwrap();
            let changed: String = changed.into_iter().collect();
            let counts =
                Token::read(&changed).is_some_and(|token| token.verify(&key("k1", 7), &binding(&fields)));
            prop_assert_eq!(counts, changed == text);
        }
    }
}
