//! Generated from `proto/pointsman/v1`: messages, clients and server traits of package `pointsman.v1`.

#![allow(missing_docs, clippy::all, rustdoc::all)]

tonic::include_proto!("pointsman.v1");

/// The encoded file descriptor set behind reflection, comments included.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pointsman.v1.bin"));
