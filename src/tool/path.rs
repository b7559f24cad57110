//! Path templates of HTTP tools: `/orders/{order_id}`.
//!
//! Owns: what a template may look like and its parts, so that whoever checks a card and whoever fills the template agree.
//! Does not know: how values are encoded (`execute`) or which arguments a tool has (`registry`).

/// Longest template, in bytes.
const MAX_BYTES: usize = 1024;

/// A piece of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPart<'a> {
    /// Goes into the path as it is.
    Literal(&'a str),
    /// Name of the argument that stands here.
    Argument(&'a str),
}

/// The parts of `template` in order. A template starts with `/`, has no empty, `.` or `..` segment and holds nothing
/// that ends a path or is decoded on the way.
///
/// # Errors
/// What would be right, in words.
pub fn path_parts(template: &str) -> Result<Vec<PathPart<'_>>, String> {
    if !template.starts_with('/') {
        return Err("the path starts with `/`; scheme and host come from the target".into());
    }
    if template.len() > MAX_BYTES {
        return Err(format!("the path has at most {MAX_BYTES} bytes"));
    }
    let segments: Vec<&str> = template[1..].split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        // A slash at the end is a path of its own to some servers.
        let may_be_empty = index + 1 == segments.len();
        if matches!(*segment, "." | "..") || (segment.is_empty() && !may_be_empty) {
            return Err("the path has no empty, `.` or `..` segment".into());
        }
    }
    let mut parts = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let literal = &rest[..rest.find(['{', '}']).unwrap_or(rest.len())];
        check_literal(literal)?;
        if !literal.is_empty() {
            parts.push(PathPart::Literal(literal));
        }
        rest = &rest[literal.len()..];
        if rest.is_empty() {
            break;
        }
        let name = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(name, _)| name);
        let Some(name) = name.filter(|name| !name.is_empty() && !name.contains(['{', '/'])) else {
            return Err("an argument stands between `{` and `}`".into());
        };
        parts.push(PathPart::Argument(name));
        rest = &rest[name.len() + 2..];
    }
    Ok(parts)
}

/// Characters that mean themselves in a path (RFC 3986, `pchar` without percent-encoding).
fn check_literal(text: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/".contains(c);
    match text.chars().find(|c| !fits(*c)) {
        None => Ok(()),
        Some(found) => {
            let rule = "the path holds letters, digits and -._~!$&'()*+,;=:@ between its slashes";
            Err(format!("{rule}, found `{}`", found.escape_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_cut_into_literals_and_arguments() {
        use PathPart::{Argument, Literal};
        for (template, expected) in [
            ("/", vec![Literal("/")]),
            ("/orders/", vec![Literal("/orders/")]),
            ("/orders/{order_id}", vec![Literal("/orders/"), Argument("order_id")]),
            ("/a/{x}.{y}:go", vec![Literal("/a/"), Argument("x"), Literal("."), Argument("y"), Literal(":go")]),
            ("/订/{x}", Vec::new()),
            ("/{订单号}", vec![Literal("/"), Argument("订单号")]),
        ] {
            assert_eq!(path_parts(template).unwrap_or_default(), expected, "{template}");
        }
    }

    #[test]
    fn what_could_leave_the_path_is_refused() {
        for bad in [
            "",
            "orders",
            "http://evil.example/",
            "//evil.example/",
            "/a//b",
            "/a/../b",
            "/..",
            "/./a",
            "/a?b=1",
            "/a#b",
            "/a%2e%2e/b",
            "/a\\b",
            "/a b",
            "/a\r\nb",
            "/{}",
            "/{a",
            "/a}",
            "/{a/b}",
            "/{{a}}",
            &"/a".repeat(600),
        ] {
            assert!(path_parts(bad).is_err(), "{bad:?}");
        }
    }
}
