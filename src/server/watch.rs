//! Watches the registry files, the rule file and the policy, and reloads when they have changed.
//!
//! Owns: when a file counts as changed, and when it has been left alone for long enough to be read.
//! Does not know: what is in the files.
//!
//! Looking at size, time and inode once in a while works on every file system, network volumes and the swapped symlinks
//! of mounted configuration included, where the notifications of an operating system do not. A change is read once two
//! looks in a row show the same: a file that is still being written differs from one look to the next.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::app::App;
use crate::pipeline::{self, Cause, StartError};

/// Looks between two attempts at a reload that failed for another reason than what the files hold.
const PAUSE: u32 = 30;

/// How a file looks from outside; `None` where there is none, or where it cannot be looked at.
type Look = Vec<Option<Outside>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outside {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Changes with each write, also where a writer sets back the time above.
    changed: (i64, i64),
}

impl Outside {
    /// Of the file at the end of all symlinks.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// What was seen, and what of it has been read.
#[derive(Debug)]
struct Seen {
    /// What the catalog being served was read from, or what could not be read.
    read: Look,
    last: Look,
    /// Looks to let pass before the next attempt.
    pause: u32,
}

impl Seen {
    fn new(look: Look) -> Self {
        Self { read: look.clone(), last: look, pause: 0 }
    }

    /// Whether what is seen now should be read.
    fn is_due(&mut self, now: &Look) -> bool {
        let still = self.last == *now;
        self.last.clone_from(now);
        if !still {
            self.pause = 0;
        }
        let waits = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        still && !waits && self.read != *now
    }

    /// `now` has been read, or it never will be: the next content is tried again.
    fn settled(&mut self, now: Look) {
        self.read = now;
    }

    /// `now` could not be read for a reason that may pass.
    fn put_off(&mut self) {
        self.pause = PAUSE;
    }
}

/// The files of a configuration, watched from before they are read for the first time.
pub(super) struct Watch {
    paths: Arc<Vec<PathBuf>>,
    seen: Seen,
    interval: Duration,
}

impl Watch {
    /// `None` when nothing is to be watched. What changes from now on is noticed, also while the catalog loads.
    pub async fn begin(app: &App) -> Option<Self> {
        let interval = app.server.watch?;
        let paths = Arc::new(paths(&app.pipeline));
        if paths.is_empty() {
            return None;
        }
        let seen = Seen::new(look(&paths).await?);
        Some(Self { paths, seen, interval })
    }

    /// Reloads whenever the files have changed, for as long as it is polled.
    pub async fn follow(mut self, app: Arc<App>) {
        if !app.ready().await {
            return;
        }
        let mut looks = tokio::time::interval(self.interval);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let Some(now) = look(&self.paths).await else { continue };
            if !self.seen.is_due(&now) {
                continue;
            }
            match reload(&app).await {
                Reloaded::Yes | Reloaded::NotThese => self.seen.settled(now),
                Reloaded::Later => self.seen.put_off(),
            }
        }
    }
}

enum Reloaded {
    Yes,
    /// What the files hold cannot be used.
    NotThese,
    Later,
}

/// Runs to its end even if the watch ends meanwhile.
async fn reload(app: &Arc<App>) -> Reloaded {
    let Some(router) = app.router().cloned() else { return Reloaded::Later };
    let reloaded = app.writes.spawn(async move { router.reload_because(Cause::FileWatch).await });
    let change = match reloaded.await {
        Ok(Ok(change)) => change,
        Ok(Err(error)) => {
            let later = !is_of_the_files(&error);
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, later, "files have changed and cannot be used; the current catalog keeps serving");
            return if later { Reloaded::Later } else { Reloaded::NotThese };
        }
        Err(error) => {
            tracing::error!(%error, "a reload died; the current catalog keeps serving");
            return Reloaded::Later;
        }
    };
    let (added, changed, removed) = (change.added.len(), change.changed.len(), change.removed.len());
    let quarantined = change.quarantined.len();
    tracing::info!(
        version = change.catalog_version,
        added,
        changed,
        removed,
        quarantined,
        "files have changed: reloaded"
    );
    Reloaded::Yes
}

/// Whether reading the same files again would fail again.
fn is_of_the_files(error: &StartError) -> bool {
    match error {
        StartError::Registry(_)
        | StartError::Strict(_)
        | StartError::Rules(_)
        | StartError::Policy(_)
        | StartError::NotOwn { .. }
        | StartError::Operators { .. }
        | StartError::NoSuchVersion { .. }
        | StartError::NotHeld { .. } => true,
        StartError::Embed(_)
        | StartError::Store(_)
        | StartError::Build(_)
        | StartError::Log(_)
        | StartError::Execute(_)
        | StartError::Llm(_)
        | StartError::Live(_)
        | StartError::Fusion { .. }
        | StartError::Confidence { .. }
        | StartError::Unreadable { .. }
        | StartError::Interrupted(_) => false,
    }
}

fn paths(settings: &pipeline::Settings) -> Vec<PathBuf> {
    let files = settings.registries.iter().chain(&settings.rules.file).chain(&settings.policy);
    files.cloned().collect()
}

/// `None` when the look itself died. A volume that hangs must not hold up the threads that serve.
async fn look(paths: &Arc<Vec<PathBuf>>) -> Option<Look> {
    let paths = Arc::clone(paths);
    let look = move || paths.iter().map(|path| Outside::of(path)).collect();
    tokio::task::spawn_blocking(look).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(size: u64) -> Look {
        vec![Some(Outside { device: 1, inode: 1, size, modified: (0, 0), changed: (0, 0) })]
    }

    #[test]
    fn a_change_is_due_once_it_has_been_still_for_one_look() {
        let mut seen = Seen::new(at(1));
        let due = |seen: &mut Seen, size: u64| seen.is_due(&at(size));
        assert!(!due(&mut seen, 1));
        assert!(!due(&mut seen, 2) && !due(&mut seen, 3) && !due(&mut seen, 4), "still being written");
        assert!(due(&mut seen, 4));
        seen.settled(at(4));
        assert!(!due(&mut seen, 4), "read or refused, once");
        assert!(!seen.is_due(&vec![None]) && seen.is_due(&vec![None]), "a file that is gone is a change");
        seen.settled(vec![None]);
        assert!(!due(&mut seen, 4) && due(&mut seen, 4), "and so is its return");
    }

    #[test]
    fn what_may_pass_is_tried_again_later_and_a_new_content_at_once() {
        let mut seen = Seen::new(at(1));
        assert!(!seen.is_due(&at(2)) && seen.is_due(&at(2)));
        seen.put_off();
        assert_eq!((0..PAUSE).filter(|_| seen.is_due(&at(2))).count(), 0);
        assert!(seen.is_due(&at(2)));
        seen.put_off();
        assert!(!seen.is_due(&at(3)) && seen.is_due(&at(3)));
    }

    #[tokio::test]
    async fn a_write_a_rename_and_a_swapped_symlink_are_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("registry.yaml"), folder.path().join("next.yaml"));
        std::fs::write(&path, "tools: []\n").unwrap();
        let link = folder.path().join("mounted.yaml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let paths = Arc::new(vec![path.clone(), link.clone(), folder.path().join("missing")]);
        let first = look(&paths).await.unwrap();
        assert_eq!(first, look(&paths).await.unwrap());
        assert_eq!(first[2], None);

        std::fs::write(&other, "tools: []\n").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("mounted.new")).unwrap();
        std::fs::rename(folder.path().join("mounted.new"), &link).unwrap();
        let swapped = look(&paths).await.unwrap();
        assert_eq!(swapped[0], first[0]);
        assert_ne!(swapped[1], first[1]);

        std::fs::rename(&other, &path).unwrap();
        assert_ne!(look(&paths).await.unwrap()[0], first[0]);
    }
}
