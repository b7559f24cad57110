//! A bar on standard error while cards are embedded; nothing where nobody watches.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

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
