//! What the tests stand on: a real server on free ports, the program itself, registry files that go away.

// Not every helper is used by every group of tests.
#![allow(dead_code)]

/// The sample shop's backend, as `examples/shop/backend` runs it.
#[path = "../../../examples/shop/backend/shop/mod.rs"]
pub mod backend;
pub mod cards;
pub mod cli;
pub mod downstream;
pub mod mcp_server;
pub mod scripted_llm;
pub mod served;
pub mod server;
pub mod shop;

use std::path::PathBuf;

use tempfile::TempDir;

/// The sample registry that ships with the repository.
pub fn shop() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/shop/registry.yaml")
}

/// A registry file in a folder of its own, both removed on drop.
pub struct RegistryFile {
    _dir: TempDir,
    pub path: PathBuf,
}

impl RegistryFile {
    /// `name` ends in `.yaml`, `.toml`, `.json` or `.jsonl`.
    pub fn new(name: &str, content: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        Self { _dir: dir, path }
    }

    /// A native registry with one card for each name, its description the name in words.
    pub fn of(names: &[&str]) -> Self {
        Self::new("registry.yaml", &native(names))
    }

    pub fn write(&self, content: &str) {
        std::fs::write(&self.path, content).unwrap();
    }

    pub fn as_str(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// See [`RegistryFile::of`].
pub fn native(names: &[&str]) -> String {
    let mut text = String::from("registry: test\nversion: 1\ntools:\n");
    for name in names {
        let words = name.replace('_', " ");
        text += &format!(
            "  - name: {name}\n    version: 1\n    description:\n      what: \"{words}\"\n      when_to_use: [\"{words}\"]\n      \
             when_not_to_use: []\n      returns: \"one object\"\n    parameters: {{type: object, properties: {{}}}}\n    \
             side_effect: read\n    idempotent: true\n    permissions: []\n    timeout_ms: 1000\n"
        );
    }
    text
}
