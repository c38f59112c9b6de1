//! Why files could not be read or watched.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::survey::{DEPTH_MAX, FILE_BYTES_MAX, FILES_MAX, FOLDERS_MAX, TOTAL_BYTES_MAX};

const MIB: u64 = 1 << 20;

/// Why rule files could not be read. The text says what was read, what was found and what to do.
///
/// Paths are those that were given, with what lies below them joined on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is nothing to read.
    #[error("no path to read rules from was given; give a file or a directory")]
    NoPath,
    /// Nothing is there.
    #[error("reading rules from `{path}`: it does not exist; create it, or correct the path")]
    NotFound {
        /// What was to be read.
        path: PathBuf,
    },
    /// A link to what is not there.
    #[error(
        "reading rules from `{path}`: it is a link to `{target}`, which does not exist; correct \
         the link, or remove it"
    )]
    DanglingLink {
        /// What was to be read.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Links that lead to one another and nowhere else.
    #[error("reading rules from `{path}`: its links lead in a circle; correct or remove them")]
    LinkLoop {
        /// What was to be read.
        path: PathBuf,
    },
    /// The system refused.
    #[error("reading rules from `{path}`: cannot {doing}: {source}{}", remedy(.source))]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// What was tried: `open the file`.
        doing: &'static str,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A pipe, a socket or a device: reading it may never end.
    #[error("reading rules from `{path}`: it is {kind}; give a regular file or a directory")]
    NotAFile {
        /// What was to be read.
        path: PathBuf,
        /// What it is: `a pipe`.
        kind: &'static str,
    },
    /// A directory without a file that would be read.
    #[error(
        "reading rules from `{path}`: it is a directory without rule files (names that begin with \
         `.` and what editors leave behind do not count); put a file there, or, if `{path}` was to \
         be a file, see why it is not: a container's mount of a missing file becomes a directory"
    )]
    EmptyDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Not text.
    #[error(
        "reading rules from `{path}`: byte {offset} (from 0), in line {line}, is not UTF-8{}; save \
         the file as UTF-8", if *.utf16 { ", and the file looks like UTF-16" } else { "" }
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The first byte that is wrong, from zero.
        offset: usize,
        /// The line it is in, from one.
        line: usize,
        /// Whether the file begins as UTF-16 does.
        utf16: bool,
    },
    /// A file beyond [`FILE_BYTES_MAX`].
    #[error(
        "reading rules from `{path}`: the file is larger than {} MiB; is it a rule file? if so, \
         split it", FILE_BYTES_MAX / MIB
    )]
    FileTooLarge {
        /// The file.
        path: PathBuf,
    },
    /// All files together are beyond [`TOTAL_BYTES_MAX`].
    #[error(
        "reading rules from `{path}`: with it the files are larger than {} MiB together; give \
         fewer or smaller ones", TOTAL_BYTES_MAX / MIB
    )]
    TooManyBytes {
        /// The file with which the bound was passed.
        path: PathBuf,
    },
    /// More than [`FILES_MAX`] files or [`FOLDERS_MAX`] directories.
    #[error(
        "reading rules from `{path}`: with it there are more than {FILES_MAX} files or \
         {FOLDERS_MAX} directories; is it the right directory? if so, join files"
    )]
    TooManyFiles {
        /// Where the bound was passed.
        path: PathBuf,
    },
    /// Directories in directories beyond [`DEPTH_MAX`].
    #[error(
        "reading rules from `{path}`: it lies more than {DEPTH_MAX} directories deep; is it the \
         right directory? if so, move it up"
    )]
    TooDeep {
        /// The directory.
        path: PathBuf,
    },
}

/// What to do about it, where the system does not say.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; let the user of this process read it",
        io::ErrorKind::NotADirectory => "; correct the path: a file is used as a directory",
        _ => "",
    }
}

/// Why files cannot be watched at all.
///
/// That the system will not tell of changes is no such reason: then they are looked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no thread for it.
    #[error("cannot start the thread that watches rule files")]
    Thread(#[source] io::Error),
    /// The signal cannot be had.
    #[error("cannot listen for SIGHUP to reload rule files")]
    Signal(#[source] io::Error),
}
