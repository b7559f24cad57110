//! What a client's certificate says about who calls.
//!
//! The transport has checked the chain, the dates and the possession of the key before anything is read here.

use sha2::{Digest, Sha256};
use x509_cert::attr::AttributeValue;
use x509_cert::der::asn1::{BmpString, Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::callers::digest_of;

/// Object id of the common name in a subject (RFC 5280, appendix A.1: `id-at-commonName`).
const COMMON_NAME: &str = "2.5.4.3";
/// Larger certificates are not read.
const MAX_BYTES: usize = 64 * 1024;
/// Names beyond this many in one certificate are not read.
const MAX_NAMES: usize = 100;

/// Something by which a caller of the file is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    CommonName(String),
    /// Lower case.
    Dns(String),
    Uri(String),
    Sha256([u8; 32]),
}

impl Mark {
    /// `CN=…`, `DNS=…`, `URI=…`, `SHA256=…`; blanks around name and value do not count, colons between the digits of a
    /// digest neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, value) = text.split_once('=')?;
        let value = value.trim();
        if value.is_empty() {
            return None;
        }
        match kind.trim().to_ascii_uppercase().as_str() {
            "CN" => Some(Self::CommonName(value.to_owned())),
            "DNS" => Some(Self::Dns(value.to_ascii_lowercase())),
            "URI" => Some(Self::Uri(value.to_owned())),
            "SHA256" => digest_of(&value.replace(':', "")).map(Self::Sha256),
            _ => None,
        }
    }
}

/// The marks of one certificate.
#[derive(Debug)]
pub(super) struct Certificate(Vec<Mark>);

impl Certificate {
    /// `None` for bytes that are no certificate. Names that cannot be read are left out.
    pub fn read(der: &[u8]) -> Option<Self> {
        if der.len() > MAX_BYTES {
            return None;
        }
        let parsed = x509_cert::Certificate::from_der(der).ok()?;
        let body = parsed.tbs_certificate();
        let mut marks = vec![Mark::Sha256(Sha256::digest(der).into())];
        let named = body.subject().iter().filter(|attribute| attribute.oid.to_string() == COMMON_NAME);
        let names: Vec<_> = named.take(2).collect();
        // A subject with several common names has none that counts.
        if let [only] = names.as_slice() {
            marks.extend(text(&only.value).map(Mark::CommonName));
        }
        if let Ok(Some((_, SubjectAltName(names)))) = body.get_extension::<SubjectAltName>() {
            marks.extend(names.iter().take(MAX_NAMES).filter_map(|name| match name {
                GeneralName::DnsName(name) => Some(Mark::Dns(name.as_str().to_ascii_lowercase())),
                GeneralName::UniformResourceIdentifier(uri) => Some(Mark::Uri(uri.as_str().to_owned())),
                _ => None,
            }));
        }
        Some(Self(marks))
    }

    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.0.iter()
    }
}

/// The forms of text that a name may have (RFC 5280, section 4.1.2.4).
fn text(value: &AttributeValue) -> Option<String> {
    match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok().map(|text| text.as_str().to_owned()),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok().map(|text| text.as_str().to_owned()),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok().map(|text| text.as_str().to_owned()),
        Tag::BmpString => value.decode_as::<BmpString>().ok().map(|text| text.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn marks_are_read_as_people_write_them() {
        let mark = |text: &str| Mark::parse(text);
        assert_eq!(mark("CN=客服 bot"), Some(Mark::CommonName("客服 bot".into())));
        assert_eq!(mark(" dns = Bot.Example "), Some(Mark::Dns("bot.example".into())));
        assert_eq!(mark("URI=spiffe://a/b=c"), Some(Mark::Uri("spiffe://a/b=c".into())));
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(mark(&format!("SHA256={colons}")), Some(Mark::Sha256([0xab; 32])));
        for bad in ["", "CN", "CN=", "O=acme", "bot", "SHA256=12"] {
            assert_eq!(mark(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_certificate_is_known_by_its_names_and_its_digest() {
        let mut params = CertificateParams::new(vec!["Bot.Example".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "客服");
        params.distinguished_name.push(DnType::OrganizationName, "acme");
        params.subject_alt_names.push(SanType::URI("spiffe://acme/bot".try_into().unwrap()));
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = Certificate::read(made.der()).unwrap();
        let expect = [
            Mark::Sha256(Sha256::digest(made.der()).into()),
            Mark::CommonName("客服".into()),
            Mark::Dns("bot.example".into()),
            Mark::Uri("spiffe://acme/bot".into()),
        ];
        assert_eq!(read.marks().cloned().collect::<Vec<_>>(), expect);
        assert!(Certificate::read(b"no certificate").is_none() && Certificate::read(&[]).is_none());
    }
}
