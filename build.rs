//! Compiles the protocol definitions; protox is a protobuf compiler in Rust, so no `protoc` is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files =
        ["proto/pointsman/v1/router.proto", "proto/pointsman/v1/registry.proto", "proto/pointsman/v1/gate.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    // What reflection serves; the code generator does not write it when it is given a finished descriptor set.
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("pointsman.v1.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        // Ordered maps: the same answer is the same bytes.
        .btree_map(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
