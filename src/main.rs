//! The `pointsman` binary: flags, logs, exporters, exit codes. Everything it does is a call into the library.

mod cmd;

fn main() -> std::process::ExitCode {
    cmd::run()
}
