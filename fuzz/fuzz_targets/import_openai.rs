#![no_main]

#[path = "../drive.rs"]
mod drive;

use pointsman::registry::Kind;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive::import(Kind::OpenAi, data));
