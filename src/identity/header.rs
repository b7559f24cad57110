//! A caller named in a header by a proxy on this machine, which has checked who it is.
//!
//! The value is `name; tenant; scope scope …`; tenant and scopes may be left out from the right.

use super::Offices;
use crate::types::{Caller, Scope};

/// Longer values are not read.
const MAX_BYTES: usize = 8 * 1024;
/// Longer names of callers and tenants are refused.
pub(super) const MAX_NAME_CHARS: usize = 256;

/// `None` for a value that is not of the form.
pub(super) fn caller(value: &str, offices: &Offices) -> Option<Caller> {
    if value.len() > MAX_BYTES || value.chars().any(char::is_control) {
        return None;
    }
    let mut parts = value.split(';').map(str::trim);
    let name = parts.next().filter(|name| is_name(name))?;
    let tenant = match parts.next() {
        None => name,
        Some(tenant) => Some(tenant).filter(|tenant| is_name(tenant))?,
    };
    let scopes = parts.next().unwrap_or_default().split_whitespace().map(|scope| Scope(scope.to_owned())).collect();
    // What stands behind a fourth `;` would be dropped without a word.
    parts.next().is_none().then(|| offices.caller(name, tenant, scopes))
}

pub(super) fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_NAME_CHARS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Administers;

    #[test]
    fn name_tenant_and_scopes_are_read_and_anything_else_is_refused() {
        let offices = Offices::default();
        let read = |value: &str| caller(value, &offices);
        let bot = read("客服;acme; orders:read pointsman:admin").unwrap();
        assert_eq!((bot.name.as_str(), bot.tenant.as_str()), ("客服", "acme"));
        assert_eq!(bot.administers(), Administers::OwnTenant);
        assert!(bot.holds(&Scope("orders:read".into())) && !bot.holds(&Scope("*".into())));
        let alone = read(" bot ").unwrap();
        assert_eq!((alone.tenant.as_str(), alone.administers()), ("bot", Administers::Nothing));
        let long = "a".repeat(MAX_NAME_CHARS + 1);
        for bad in ["", ";acme", "bot;", "bot; ;x", "bot;acme;a b;c", "bot\u{1};acme", &long] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }
}
