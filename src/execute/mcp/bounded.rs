//! A stream of lines none of which may be endless.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Fails once a line is longer than `max` bytes: whoever collects lines would collect without end.
pub(super) struct Bounded<R> {
    inner: R,
    max: usize,
    /// Bytes since the last line began.
    line: usize,
}

impl<R> Bounded<R> {
    pub fn new(inner: R, max: usize) -> Self {
        Self { inner, max, line: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        for (index, piece) in read.split(|byte| *byte == b'\n').enumerate() {
            self.line = if index == 0 { self.line + piece.len() } else { piece.len() };
            if self.line > self.max {
                // A failed read has read nothing.
                buf.set_filled(before);
                return Poll::Ready(Err(io::Error::other("a line is too long")));
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(text: &str, max: usize) -> io::Result<String> {
        let mut read = String::new();
        Bounded::new(text.as_bytes(), max).read_to_string(&mut read).await.map(|_| read)
    }

    #[tokio::test]
    async fn long_lines_end_the_stream_and_many_short_ones_do_not() {
        assert_eq!(read("ab\ncd\n\nefg", 3).await.unwrap(), "ab\ncd\n\nefg");
        assert!(read("ab\nabcd", 3).await.is_err());
        assert!(read("abcd\n", 3).await.is_err());
        assert!(read(&"ab\n".repeat(10_000), 3).await.is_ok());
    }
}
