//! Rules from files: read, and read again when the files change.
//!
//! ```
//! use tidegate::files::{RuleFiles, WatchOptions};
//! use tidegate::rules::Options;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("api.yaml");
//! # std::fs::write(&path, "domain: api\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: 2, unit: second }\n")?;
//!
//! let files = RuleFiles::new([&path]);
//! let texts = files.read()?;
//! let loaded = texts.load(&Options::default());
//! println!("{} rules\n{}", loaded.report.rules, loaded.report);
//!
//! // From here on another thread tells of every change, until `watch` is dropped.
//! let options = WatchOptions::new(Options::default()).since(texts);
//! let watch = files.watch(options, |reload| match reload.loaded {
//!     Ok(loaded) => println!("{} rules\n{}", loaded.report.rules, loaded.report),
//!     Err(error) => println!("the old rules stay: {error}"),
//! })?;
//! # drop(watch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is not here: what to do with the rules. A bad file is reported and nothing else happens, so
//! whoever keeps the rules that are in force keeps them by doing nothing.

mod error;
mod links;
mod notifier;
mod read;
#[cfg(unix)]
mod signal;
mod survey;
mod wake;
mod watch;

pub use error::{ReadError, WatchError};
pub use read::{RuleFiles, Texts};
pub use survey::{DEPTH_MAX, FILE_BYTES_MAX, FILES_MAX, FOLDERS_MAX, TOTAL_BYTES_MAX};
pub use watch::{Cause, Reload, Watch, WatchOptions};
