//! Bars on standard error; nothing where nobody watches.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pointsman::evaluate::Progress;

/// A callback for [`pointsman::pipeline::Router::start`]: done, total.
pub fn embedding() -> impl Fn(usize, usize) + Send + Sync + 'static {
    let bar = std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("embedding cards {wide_bar} {pos}/{len} {eta}")
            .expect("the template is constant and valid");
        ProgressBar::new(0).with_style(style)
    });
    move |done, total| {
        let Some(bar) = &bar else { return };
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        if done >= total {
            bar.finish_and_clear();
        }
    }
}

/// One line that says what is being done.
pub fn line() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").unwrap_or(ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// For work on labelled rows; see [`show`].
pub fn rows_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {msg:>9} {wide_bar} {pos}/{len} {eta}")
        .unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

/// Tells a bar how far the work has come.
pub fn show(bar: &ProgressBar, progress: Progress) {
    let (message, done, total) = match progress {
        Progress::Embedding { done, total } => ("embedding", done, total),
        Progress::Scoring { done, total } => ("scoring", done, total),
    };
    bar.set_message(message);
    bar.set_length(total as u64);
    bar.set_position(done as u64);
}
