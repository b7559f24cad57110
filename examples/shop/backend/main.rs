//! A small online shop over HTTP, with state, for trying out tools that Pointsman runs.
//!
//! `cargo run --release --example shop_backend -- --listen 127.0.0.1:8077`; see `README.md` beside this file.

mod shop;

use std::error::Error;
use std::process::ExitCode;

use shop::{Options, Shop};

const USAGE: &str = "usage: shop_backend [--listen ADDRESS:PORT] [--honour-keys]";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop_backend: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut listen = "127.0.0.1:8077".to_owned();
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--listen" => listen = args.next().ok_or(USAGE)?,
            "--honour-keys" => options.honour_keys = true,
            _ => return Err(USAGE.into()),
        }
    }
    let shop = Shop::start(&listen, options).await?;
    println!("the shop is open at {}", shop.url());
    shop.closed().await;
    Ok(())
}
