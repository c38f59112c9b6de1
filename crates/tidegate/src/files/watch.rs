//! Watching rule files.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_rules::{Loaded, Options};

use super::error::{ReadError, WatchError};
use super::notifier::Notifier;
use super::read::{Reading, RuleFiles, Texts};
#[cfg(unix)]
use super::signal::Hangups;
use super::survey::Survey;
use super::wake::{Bell, Wake};

/// How often is looked whether anything changed without word of it.
const POLL_EVERY: Duration = Duration::from_secs(10);
/// So that polling never becomes spinning.
const POLL_EVERY_MIN: Duration = Duration::from_millis(1);
/// How often directories that move under the reader are followed before the next event has to do.
const FOLLOW_TRIES_MAX: usize = 5;

/// How to watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    load: Options,
    poll_every: Duration,
    poll_only: bool,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no signals"))]
    on_sighup: bool,
    since: Option<Texts>,
}

impl WatchOptions {
    /// Loads what has changed with these options.
    #[must_use]
    pub fn new(load: Options) -> Self {
        let poll_every = POLL_EVERY;
        Self { load, poll_every, poll_only: false, on_sighup: false, since: None }
    }

    /// How often to look for changes that the system did not tell of, as on network file systems;
    /// every 10 seconds otherwise, and at most every millisecond.
    ///
    /// A look costs no more than asking for the times and sizes of the files, unless they differ.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll_every = interval;
        self
    }

    /// Looks for changes so often and does not ask the system to tell of them.
    #[must_use]
    pub fn poll_only(mut self, interval: Duration) -> Self {
        self.poll_only = true;
        self.poll_every(interval)
    }

    /// Whether to reload when the process gets SIGHUP; not otherwise. Where there are no signals
    /// this does nothing.
    ///
    /// From then on SIGHUP does not end the process, also when the [`Watch`] is gone.
    #[must_use]
    pub fn on_sighup(mut self, listen: bool) -> Self {
        self.on_sighup = listen;
        self
    }

    /// What is known already: a difference to these texts is a change.
    ///
    /// Without it what counts is what the files hold when watching begins, and what was written
    /// between an earlier reading and that moment is never told of.
    #[must_use]
    pub fn since(mut self, texts: Texts) -> Self {
        self.since = Some(texts);
        self
    }
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

/// What the one who watches is told.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reload {
    /// What came of loading, or why the files could not be read. Unless there are
    /// [`rules`](Loaded::rules) in it, those in force had better stay.
    pub loaded: Result<Loaded, ReadError>,
    /// Why now.
    pub cause: Cause,
    /// Whether anything is different from what was read last.
    pub changed: bool,
    /// The names of the files that were read, in order; none if one could not be read.
    pub files: Vec<String>,
    /// Why the system does not tell of all changes, so that some are seen only by looking now and
    /// then. It is said once; [`Watch::notice`] says it at any time.
    pub notice: Option<Arc<str>>,
}

/// Why rules are loaded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// What is in the files is different, or whether they can be read.
    Changed,
    /// The process got SIGHUP.
    Signal,
    /// [`Watch::reload`] was called.
    Asked,
}

/// Watches files until it is dropped. When the drop is over, nothing is called any more.
#[must_use = "watching ends when this is dropped"]
pub struct Watch {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    #[cfg(unix)]
    _hangups: Option<Hangups>,
}

impl RuleFiles {
    /// Reads and loads the files again whenever what they hold has changed, and tells `on_change`.
    ///
    /// Changes are those of content: files written in place, replaced, removed and made again,
    /// added to a directory; a link on the way to them pointed elsewhere, as Kubernetes does to
    /// update a volume. To write the same again is none. Changes in quick succession count as one:
    /// files are read after 50 ms without any, or after 500 ms. If a file cannot be read, or the
    /// rules in it are bad, that is told too, once, and watching goes on.
    ///
    /// `on_change` is called on a thread of its own, one call after the other; while it runs,
    /// changes wait. It must not panic: that would end the watching. It may drop the [`Watch`].
    ///
    /// That files cannot be read now is no error here. They may come.
    pub fn watch(
        &self,
        options: WatchOptions,
        on_change: impl FnMut(Reload) + Send + 'static,
    ) -> Result<Watch, WatchError> {
        let bell = Arc::new(Bell::default());
        #[cfg(unix)]
        let hangups = match options.on_sighup {
            true => Some(Hangups::listen(Arc::clone(&bell))?),
            false => None,
        };
        let mut eye = Eye::new(self.clone(), options.poll_only, Arc::clone(&bell));
        let Reading { survey, texts } = eye.read();
        let texts = match options.since {
            Some(known) => {
                bell.change();
                Ok(known)
            }
            None => texts,
        };
        let thread = Thread {
            eye,
            load: options.load,
            poll_every: options.poll_every.max(POLL_EVERY_MIN),
            survey,
            texts,
            is_notice_told: false,
            on_change,
        };
        let thread = thread::Builder::new()
            .name("rules-watch".into())
            .spawn(move || thread.run())
            .map_err(WatchError::Thread)?;
        Ok(Watch {
            bell,
            thread: Some(thread),
            #[cfg(unix)]
            _hangups: hangups,
        })
    }
}

impl Watch {
    /// Reads and loads the files, also if nothing changed, and tells so soon. Does not wait for it;
    /// being asked several times before it happens counts as once.
    pub fn reload(&self) {
        self.bell.ask();
    }

    /// Why the system does not tell of all changes, so that some are seen only by looking now and
    /// then: its limit of watches is reached, say.
    pub fn notice(&self) -> Option<Arc<str>> {
        self.bell.notice.get().cloned()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bell.stop();
        let Some(thread) = self.thread.take() else { return };
        // A thread cannot wait for its own end.
        if thread.thread().id() != thread::current().id() {
            // If `on_change` panicked, that was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("notice", &self.bell.notice.get()).finish_non_exhaustive()
    }
}

/// Reads files such that no change after the reading goes unnoticed.
struct Eye {
    files: RuleFiles,
    notifier: Option<Notifier>,
    bell: Arc<Bell>,
}

impl Eye {
    fn new(files: RuleFiles, poll_only: bool, bell: Arc<Bell>) -> Self {
        let mut eye = Self { files, notifier: None, bell };
        if !poll_only {
            match Notifier::new(Arc::clone(&eye.bell)) {
                Ok(notifier) => eye.notifier = Some(notifier),
                Err(why) => eye.notice(&why),
            }
        }
        eye
    }

    /// Watches first, then reads: what changes after the one is seen by the other.
    fn read(&mut self) -> Reading {
        #[cfg(test)]
        self.bell.count_reading();
        let Some(notifier) = &mut self.notifier else { return self.files.read_steadily() };
        let mut places = self.files.survey().places;
        let mut tries = 1;
        let (reading, outcome) = loop {
            let outcome = notifier.follow(&places);
            let reading = self.files.read_steadily();
            if reading.survey.places == places {
                break (reading, outcome);
            }
            if tries == FOLLOW_TRIES_MAX {
                // Come again: not all of this is watched.
                self.bell.change();
                break (reading, outcome);
            }
            places.clone_from(&reading.survey.places);
            tries += 1;
        };
        if let Err(why) = outcome {
            self.notice(&why);
        }
        reading
    }

    fn notice(&self, why: &str) {
        let notice = format!("{why}; changes are looked for now and then instead");
        // The first reason is told; others are of the same kind.
        let _ = self.bell.notice.set(notice.into());
    }
}

/// What the watching thread knows.
struct Thread<F> {
    eye: Eye,
    load: Options,
    poll_every: Duration,
    /// What was there at the last reading.
    survey: Survey,
    /// What was told last.
    texts: Result<Texts, ReadError>,
    is_notice_told: bool,
    on_change: F,
}

impl<F: FnMut(Reload)> Thread<F> {
    fn run(mut self) {
        loop {
            let poll_at = Instant::now().checked_add(self.poll_every);
            let cause = match self.eye.bell.wait(poll_at) {
                Wake::Stop => return,
                Wake::Poll if self.looks_the_same() => continue,
                Wake::Poll | Wake::Changed => Cause::Changed,
                Wake::Signal => Cause::Signal,
                Wake::Asked => Cause::Asked,
            };
            let changed = self.read();
            if self.eye.bell.is_stopped() {
                return;
            }
            if changed || cause != Cause::Changed {
                self.tell(cause, changed);
            }
        }
    }

    /// Whether nothing can have changed, as far as the times and sizes of files tell.
    fn looks_the_same(&self) -> bool {
        self.texts.is_ok()
            && self.survey.is_settled()
            && self.eye.files.survey().is_like(&self.survey)
    }

    /// Reads, and says whether anything is different.
    fn read(&mut self) -> bool {
        let Reading { survey, texts } = self.eye.read();
        let same = match (&self.texts, &texts) {
            (Ok(known), Ok(texts)) => known == texts,
            (Err(known), Err(error)) => known.to_string() == error.to_string(),
            _ => false,
        };
        (self.survey, self.texts) = (survey, texts);
        !same
    }

    fn tell(&mut self, cause: Cause, changed: bool) {
        let notice = match self.is_notice_told {
            true => None,
            false => self.eye.bell.notice.get().cloned(),
        };
        self.is_notice_told |= notice.is_some();
        let (loaded, files) = match &self.texts {
            Ok(texts) => {
                (Ok(texts.load(&self.load)), texts.names().map(str::to_owned).collect::<Vec<_>>())
            }
            Err(error) => (Err(error.clone()), Vec::new()),
        };
        (self.on_change)(Reload { loaded, cause, changed, files, notice });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;

    use super::*;

    /// Nobody is told of a file that is written again as it was.
    #[test]
    fn the_same_again_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "domain: a").unwrap();
        let (told, tells) = mpsc::channel();
        let options = WatchOptions::default().poll_every(Duration::from_secs(3600));
        let watch =
            RuleFiles::new([&path]).watch(options, move |reload| told.send(reload).unwrap());
        let watch = watch.unwrap();
        watch.bell.await_readings(1);
        for readings in 2..5 {
            // By rename, so that no reading meets a file half written.
            fs::write(folder.path().join("a.tmp"), "domain: a").unwrap();
            fs::rename(folder.path().join("a.tmp"), &path).unwrap();
            watch.bell.await_readings(readings);
        }
        watch.reload();
        let reload = tells.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!((reload.cause, reload.changed), (Cause::Asked, false));
        drop(watch);
        assert_eq!(tells.try_iter().count(), 0);
    }
}
