//! The file of callers: names, tenants, digests of tokens or names in certificates, scopes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::certificate::{Certificate, Mark};
use crate::types::{Caller, Scope};

const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// A caller with this scope holds every scope that a tool may need.
const EVERY_SCOPE: &str = "*";

/// The file of callers cannot be used. Never repeats a token or its digest.
#[derive(Debug, thiserror::Error)]
pub enum CallersError {
    #[error("cannot read the callers in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("callers in {}: more than {MAX_FILE_BYTES} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("callers in {}: {message}", path.display())]
    Parse { path: PathBuf, message: String },
    #[error("callers in {}:{}", path.display(), list(faults))]
    Faults { path: PathBuf, faults: Vec<Fault> },
}

/// One entry that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// 1 for the first entry of the file.
    pub entry: usize,
    pub message: String,
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(|Fault { entry, message }| format!("\n  entry {entry}: {message}")).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    callers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    tenant: Option<String>,
    token_sha256: Option<String>,
    certificate: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    admin: bool,
    #[serde(default)]
    operator: bool,
}

/// Everybody who is admitted. A token is looked up by its digest, so how long a look-up takes tells nothing about a
/// token.
#[derive(Default)]
pub(super) struct Callers {
    tokens: BTreeMap<[u8; 32], Arc<Caller>>,
    certificates: BTreeMap<Mark, Arc<Caller>>,
    count: usize,
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let callers = self.tokens.values().chain(self.certificates.values());
        f.debug_set().entries(callers.map(|caller| &caller.name)).finish()
    }
}

/// Whom the names in one certificate belong to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    One(Caller),
    /// Different entries name it: which of them counts must not depend on their order.
    Several,
}

impl Callers {
    pub fn read(path: &Path) -> Result<Self, CallersError> {
        let mut text = String::new();
        let file = std::fs::File::open(path);
        file.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
            .map_err(|source| CallersError::Read { path: path.into(), source })?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(CallersError::TooLong { path: path.into() });
        }
        // The parser's own message shows the line, and with it a digest.
        let file: File = toml::from_str(&text).map_err(|error| CallersError::Parse {
            path: path.into(),
            message: match error.span() {
                Some(span) => {
                    let line = text.get(..span.start).unwrap_or_default().matches('\n').count() + 1;
                    format!("line {line}: {}", error.message())
                }
                None => error.message().to_owned(),
            },
        })?;
        Self::of(file).map_err(|faults| CallersError::Faults { path: path.into(), faults })
    }

    /// All faults at once.
    fn of(file: File) -> Result<Self, Vec<Fault>> {
        let mut callers = Self::default();
        let mut names = BTreeSet::new();
        let mut faults = Vec::new();
        if file.callers.is_empty() {
            faults.push(Fault { entry: 1, message: "missing; nobody would be admitted".into() });
        }
        for (index, entry) in file.callers.into_iter().enumerate() {
            let mut fault = |message: &str| faults.push(Fault { entry: index + 1, message: message.into() });
            flaws(&entry).for_each(&mut fault);
            if !names.insert(entry.name.clone()) {
                fault("another entry has the same `name`");
            }
            callers.add(entry, &mut fault);
        }
        if faults.is_empty() { Ok(callers) } else { Err(faults) }
    }

    fn add(&mut self, entry: Entry, fault: &mut impl FnMut(&str)) {
        let digest = entry.token_sha256.as_deref().map(digest_of);
        let mark = entry.certificate.as_deref().map(Mark::parse);
        if digest.is_none() && mark.is_none() {
            fault("neither `token_sha256` nor `certificate`: one of them has to tell who calls");
        }
        let caller = Arc::new(caller(entry));
        self.count += 1;
        match digest {
            None => {}
            Some(None) => fault("`token_sha256` has to be 64 hex digits: the SHA-256 of the token"),
            Some(Some(digest)) => {
                let before = self.tokens.insert(digest, Arc::clone(&caller));
                if before.is_some() {
                    fault("another entry has the same token");
                }
            }
        }
        match mark {
            None => {}
            Some(None) => fault("`certificate` has to be CN=…, DNS=…, URI=… or SHA256=… with 64 hex digits"),
            Some(Some(mark)) => {
                let before = self.certificates.insert(mark, caller);
                if before.is_some() {
                    fault("another entry has the same `certificate`");
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether some entry is told by a certificate.
    pub fn know_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    pub fn find(&self, token: &str) -> Option<Caller> {
        self.tokens.get(&<[u8; 32]>::from(Sha256::digest(token))).map(|caller| Caller::clone(caller))
    }

    pub fn owner(&self, certificate: &Certificate) -> Owner {
        let mut found = certificate.marks().filter_map(|mark| self.certificates.get(mark));
        let Some(first) = found.next() else { return Owner::Nobody };
        // Two marks of one certificate may well name the same entry.
        if found.all(|other| Arc::ptr_eq(first, other)) { Owner::One(Caller::clone(first)) } else { Owner::Several }
    }
}

fn flaws(entry: &Entry) -> impl Iterator<Item = &'static str> {
    let blank = |text: &String| text.trim().is_empty();
    let name = blank(&entry.name).then_some("`name` is empty");
    let tenant = entry.tenant.as_ref().is_some_and(blank).then_some("`tenant` is empty; leave it out to use the name");
    let scope = entry.scopes.iter().any(blank).then_some("a scope is empty");
    name.into_iter().chain(tenant).chain(scope)
}

fn caller(entry: Entry) -> Caller {
    let tenant = entry.tenant.unwrap_or_else(|| entry.name.clone());
    let caller = if entry.scopes.iter().any(|scope| scope == EVERY_SCOPE) {
        Caller::with_every_scope(tenant)
    } else {
        Caller::with_scopes(tenant, entry.scopes.into_iter().map(Scope))
    };
    let caller = caller.named(entry.name);
    match (entry.operator, entry.admin) {
        (true, _) => caller.operating(),
        (false, true) => caller.administering(),
        (false, false) => caller,
    }
}

/// 64 hex digits.
pub(super) fn digest_of(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Administers;
    use crate::types::encoding::hex;

    fn read(text: &str) -> Result<Callers, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Callers::read(file.path())
            .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "callers.toml"))
    }

    fn digest(token: &str) -> String {
        hex(&Sha256::digest(token))
    }

    #[test]
    fn a_caller_has_a_tenant_scopes_and_perhaps_the_registry() {
        let text = format!(
            "[[callers]]\nname = \"bot\"\ntoken_sha256 = \"{}\"\nscopes = [\"orders:read\"]\n\
             [[callers]]\nname = \"ops\"\ntenant = \"acme\"\ntoken_sha256 = \"{}\"\nscopes = [\"*\"]\nadmin = true\n\
             [[callers]]\nname = \"root\"\ntoken_sha256 = \"{}\"\noperator = true\n",
            digest("one"),
            digest("two").to_uppercase(),
            digest("root"),
        );
        let callers = read(&text).unwrap();
        let (bot, ops) = (callers.find("one").unwrap(), callers.find("two").unwrap());
        let scope = |name: &str| Scope(name.into());
        assert_eq!((bot.name.as_str(), bot.tenant.as_str(), bot.administers()), ("bot", "bot", Administers::Nothing));
        assert!(bot.holds(&scope("orders:read")) && !bot.holds(&scope("orders:write")));
        assert_eq!(
            (ops.name.as_str(), ops.tenant.as_str(), ops.administers()),
            ("ops", "acme", Administers::OwnTenant)
        );
        assert!(ops.holds(&scope("anything")));
        assert_eq!(callers.find("root").unwrap().administers(), Administers::Everything);
        assert_eq!(callers.len(), 3);
        assert!(callers.find("three").is_none() && callers.find("").is_none());
        assert_eq!(format!("{callers:?}").matches(&digest("one")).count(), 0);
    }

    #[test]
    fn all_faults_are_told_together_and_no_digest_with_them() {
        let text = format!(
            "[[callers]]\nname = \"a\"\ntoken_sha256 = \"{0}\"\n\
             [[callers]]\nname = \"a\"\ntenant = \" \"\ntoken_sha256 = \"{0}\"\nscopes = [\"\"]\n\
             [[callers]]\nname = \"\"\ntoken_sha256 = \"a-plain-token\"\n\
             [[callers]]\nname = \"b\"\n[[callers]]\nname = \"c\"\ncertificate = \"CN=\"\n\
             [[callers]]\nname = \"d\"\ncertificate = \"CN=x\"\n[[callers]]\nname = \"e\"\ncertificate = \"CN = x\"\n",
            digest("one"),
        );
        let error = read(&text).unwrap_err();
        let expect = "callers in callers.toml:\n  \
                      entry 2: `tenant` is empty; leave it out to use the name\n  \
                      entry 2: a scope is empty\n  \
                      entry 2: another entry has the same `name`\n  \
                      entry 2: another entry has the same token\n  \
                      entry 3: `name` is empty\n  \
                      entry 3: `token_sha256` has to be 64 hex digits: the SHA-256 of the token\n  \
                      entry 4: neither `token_sha256` nor `certificate`: one of them has to tell who calls\n  \
                      entry 5: `certificate` has to be CN=…, DNS=…, URI=… or SHA256=… with 64 hex digits\n  \
                      entry 7: another entry has the same `certificate`";
        assert_eq!(error, expect);
        assert!(read("").unwrap_err().contains("nobody would be admitted"));
    }

    #[test]
    fn a_file_that_cannot_be_parsed_names_the_line_and_shows_none() {
        let error = read(&format!("[[callers]]\nname = \"a\"\ntoken = \"{}\"\n", digest("one"))).unwrap_err();
        assert!(error.starts_with("callers in callers.toml: line 3: unknown field `token`"), "{error}");
        assert!(!error.contains(&digest("one")), "{error}");
        assert!(Callers::read(Path::new("no/such/file")).is_err());
    }
}
