//! Replaces one table of a TOML text and leaves the rest as it was written.
//!
//! Owns: where a table begins and ends, and the check that nothing else changed.
//! Does not know: what a table holds.

use std::io::Write;
use std::path::Path;

/// Why a table cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("not TOML: {0}")]
    Syntax(#[from] toml::de::Error),
    /// The table is written in a way that its lines cannot be told from the rest: inline, or with dotted keys.
    #[error("`{0}` is not written as a table of its own; give it a line [{0}]")]
    Form(String),
    #[error("cannot read or write {path}: {source}")]
    File { path: String, source: std::io::Error },
}

/// `text` with `body` as the table `name`: in the place of the old one, sub-tables included, or at the end.
///
/// `body` holds the lines below the header. Comments outside the table, the order of the tables and line ends stay.
///
/// # Errors
/// [`TableError::Syntax`] when `text` or `body` is no TOML; [`TableError::Form`] when another table would change.
pub fn replace_table(text: &str, name: &str, body: &str) -> Result<String, TableError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut table = format!("[{name}]\n{}\n", body.trim()).replace("\r\n", "\n").replace('\n', newline);
    let mut wanted: toml::Table = toml::from_str(text)?;
    wanted.remove(name);
    wanted.extend(toml::from_str::<toml::Table>(&table)?);

    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut out = String::new();
    let mut placed = false;
    let mut at = 0;
    while at < lines.len() {
        if !header(lines[at]).is_some_and(|header| belongs(header, name)) {
            out.push_str(lines[at]);
            at += 1;
            continue;
        }
        if !placed {
            out.push_str(&std::mem::take(&mut table));
            placed = true;
        }
        at += length(&lines[at..]);
        // Blank lines between a table and its own sub-table go with them.
        let blank = lines[at..].iter().take_while(|line| line.trim().is_empty()).count();
        if lines.get(at + blank).and_then(|line| header(line)).is_some_and(|header| belongs(header, name)) {
            at += blank;
        }
    }
    if !placed {
        if !out.is_empty() {
            out.truncate(out.trim_end().len());
            out.push_str(newline);
            out.push_str(newline);
        }
        out.push_str(&table);
    }
    // Strings over several lines may hold what looks like a header: compare instead of trusting the lines.
    match toml::from_str::<toml::Table>(&out) {
        Ok(found) if found == wanted => Ok(out),
        Ok(_) | Err(_) => Err(TableError::Form(name.to_owned())),
    }
}

/// [`replace_table`] on a file; a reader sees the old text or the new one, never a part.
///
/// # Errors
/// As [`replace_table`], and [`TableError::File`].
pub fn replace_table_in(file: &Path, name: &str, body: &str) -> Result<(), TableError> {
    let failed = |source| TableError::File { path: file.display().to_string(), source };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let changed = replace_table(&text, name, body)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    temporary.write_all(changed.as_bytes()).map_err(failed)?;
    // A temporary file is its owner's alone; the manifest stays as readable as it was.
    let permissions = std::fs::metadata(file).map_err(failed)?.permissions();
    temporary.as_file().set_permissions(permissions).map_err(failed)?;
    temporary.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

/// The name in a line that opens a table.
fn header(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.strip_prefix("[[").or_else(|| line.strip_prefix('['))?;
    let (name, rest) = line.split_once(']')?;
    let rest = rest.strip_prefix(']').unwrap_or(rest).trim();
    (rest.is_empty() || rest.starts_with('#')).then(|| name.trim())
}

fn belongs(header: &str, name: &str) -> bool {
    header.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Lines of the table that starts `lines`. What stands between its last value and the next header belongs there.
fn length(lines: &[&str]) -> usize {
    let end = lines.iter().skip(1).position(|line| header(line).is_some()).map_or(lines.len(), |at| at + 1);
    let is_value = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    lines[..end].iter().rposition(is_value).map_or(1, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# top\nname = \"a\" # kept\n\n[fusion]\n# old\nlexical = 0.3\n\n# about prefix\n[prefix]\nquery = \"\"\n\n[fusion.long]\nx = 1\n\n[[files]]\nn = 1\n";

    #[test]
    fn only_the_named_table_changes() {
        let out = replace_table(TEXT, "fusion", "# new\nlexical = 0.4\n\n[fusion.long]\nx = 2\n").unwrap();
        let expect = "# top\nname = \"a\" # kept\n\n[fusion]\n# new\nlexical = 0.4\n\n[fusion.long]\nx = 2\n\n# about prefix\n[prefix]\nquery = \"\"\n\n\n[[files]]\nn = 1\n";
        assert_eq!(out, expect);
        // A second time changes nothing more.
        assert_eq!(replace_table(&out, "fusion", "# new\nlexical = 0.4\n\n[fusion.long]\nx = 2").unwrap(), expect);
    }

    #[test]
    fn a_table_that_is_not_there_is_appended() {
        let out = replace_table(TEXT, "confidence", "bias = 1.5").unwrap();
        assert_eq!(out, format!("{TEXT}\n[confidence]\nbias = 1.5\n"));
        assert_eq!(replace_table("", "confidence", "bias = 1.5").unwrap(), "[confidence]\nbias = 1.5\n");
        let windows = replace_table("a = 1\r\n", "b", "c = 1\nd = 2").unwrap();
        assert_eq!(windows, "a = 1\r\n\r\n[b]\r\nc = 1\r\nd = 2\r\n");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let check = |text: &str, body: &str, expect: &str| {
            let text = replace_table(text, "b", body).unwrap_err().to_string();
            assert!(text.contains(expect), "{text}");
        };
        check("b = { c = 1 }\n", "c = 2", "not written as a table of its own");
        check("a = \"\"\"\n[b]\nc = 1\n\"\"\"\n", "c = 2", "not written as a table of its own");
        check("a =\n", "c = 2", "not TOML");
        check("a = 1\n", "c =", "not TOML");
        // A body must not reach into other tables.
        check("[a]\nx = 1\n", "c = 2\n[a]\nx = 2", "not written as a table of its own");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("manifest.toml");
        std::fs::write(&file, TEXT).unwrap();
        replace_table_in(&file, "confidence", "bias = 1").unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().ends_with("[confidence]\nbias = 1\n"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let text = replace_table_in(&dir.path().join("no.toml"), "a", "").unwrap_err().to_string();
        assert!(text.contains("no.toml"), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_ends_in_a_table_or_an_error(text in "([a-c\\[\\]\"#=.1 ]{0,8}\n){0,8}", body in "([a-c\\[\\]#=1 ]{0,6}\n){0,3}") {
            if let Ok(out) = replace_table(&text, "b", &body) {
                let table: toml::Table = toml::from_str(&out).unwrap();
                prop_assert!(table.contains_key("b"));
            }
        }
    }
}
