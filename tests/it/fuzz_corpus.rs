//! The fuzz targets over their seeds and over mutations of them, drawn the same way each time: the short form of
//! `make fuzz`.

use std::path::{Path, PathBuf};

use pointsman::registry::Kind;

#[path = "../../fuzz/drive.rs"]
mod drive;

/// Mutations of each seed.
const MUTATIONS: u64 = 150;
/// What mutations put in: pieces that parsers and schemas stumble over.
const PIECES: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"\"$ref\":\"#\"",
    b"\"type\":[]",
    b"\\u0000",
    b"\xe8\xae\xa2\xe5\x8d\x95",
    b"\xef\xbc\x9a",
    b"\xff",
    b"\n- ",
    b"&a *a",
    b"<<: *a",
    b"  ",
    b"{}",
    b"\"properties\":{\"properties\":{}}",
    b"99999999999999999999",
];

fn seeds(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no seeds", folder.display());
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// A generator whose numbers depend on its seed alone (xorshift64*, Vigna 2016).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }
}

/// A few edits: bytes cut out, doubled, overwritten, pieces put in.
fn mutated(seed: &[u8], nth: u64) -> Vec<u8> {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15 ^ (nth + 1));
    let mut text = seed.to_vec();
    for _ in 0..=draw.below(6) {
        let at = draw.below(text.len());
        let end = (at + 1 + draw.below(24)).min(text.len());
        match draw.below(4) {
            0 => drop(text.drain(at..end)),
            1 => {
                let copy = text[at..end].to_vec();
                drop(text.splice(end..end, copy));
            }
            2 => drop(text.splice(at..end, PIECES[draw.below(PIECES.len())].iter().copied())),
            _ => drop(text.splice(at..at, PIECES[draw.below(PIECES.len())].iter().copied())),
        }
    }
    text
}

fn over(folder: &str, drive: impl Fn(&[u8])) {
    for (path, seed) in seeds(folder) {
        drive(&seed);
        for nth in 0..MUTATIONS {
            let text = mutated(&seed, nth);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive(&text)));
            assert!(outcome.is_ok(), "mutation {nth} of {}:\n{}", path.display(), String::from_utf8_lossy(&text));
        }
    }
}

#[test]
fn native_documents() {
    over("native", |data| drive::import(Kind::Native, data));
}

#[test]
fn flat_documents() {
    over("flat", |data| drive::import(Kind::Flat, data));
}

#[test]
fn openai_documents() {
    over("openai", |data| drive::import(Kind::OpenAi, data));
}

#[test]
fn anthropic_documents() {
    over("anthropic", |data| drive::import(Kind::Anthropic, data));
}

#[test]
fn mcp_documents() {
    over("mcp", |data| drive::import(Kind::Mcp, data));
}

#[test]
fn openapi_documents() {
    over("openapi", |data| drive::import(Kind::OpenApi, data));
}

#[test]
fn schemas() {
    over("schema", drive::schema);
}
