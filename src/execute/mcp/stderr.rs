//! What a program says on its error stream.

use tokio::io::{AsyncRead, AsyncReadExt, BufReader};
use tokio::process::ChildStderr;

/// What of it reaches the log, per start.
const STDERR_LINES: usize = 50;
const STDERR_LINE: usize = 1_000;

/// Reads to the end, so that the program never waits for us, and logs the beginning.
pub(super) async fn log(name: String, stderr: ChildStderr) {
    let mut logged = 0;
    lines(stderr, |line| {
        if logged < STDERR_LINES {
            tracing::info!(source = name, line, "a live source's program says");
        } else if logged == STDERR_LINES {
            tracing::info!(source = name, "a live source's program says more, which is not logged");
        }
        logged += 1;
    })
    .await;
}

/// Hands over each line, none longer than [`STDERR_LINE`] bytes; the rest of a longer one is left out.
async fn lines(stream: impl AsyncRead + Unpin, mut tell: impl FnMut(&str)) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    let mut say = |line: &mut Vec<u8>| {
        let text = words_of(line);
        line.clear();
        if !text.trim().is_empty() {
            tell(&text);
        }
    };
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        for byte in &buffer[..read] {
            match byte {
                b'\n' => say(&mut line),
                _ if line.len() < STDERR_LINE => line.push(*byte),
                _ => {}
            }
        }
    }
    say(&mut line);
}

fn words_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_stream_is_cut_into_short_lines() {
        let text = format!("启动\n\u{1b}[31mred\r\n\n{}\nend", "x".repeat(5_000));
        let mut said = Vec::new();
        lines(text.as_bytes(), |line| said.push(line.to_owned())).await;
        assert_eq!(said.len(), 4);
        assert_eq!((said[0].as_str(), said[1].as_str(), said[3].as_str()), ("启动", " [31mred ", "end"));
        assert_eq!(said[2].len(), STDERR_LINE);
    }
}
