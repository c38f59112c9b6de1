//! Reading rule files.

use std::fs::{File as Opened, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate_rules::{File, Loaded, Options, Rules};

use super::error::ReadError;
use super::survey::{FILE_BYTES_MAX, Found, Survey, TOTAL_BYTES_MAX, kind_of, unreadable};

/// How often files that change under the reader are read before what was read is taken.
const TRIES_MAX: usize = 5;

/// Files of rules, and directories of such files.
///
/// A file that was given is read whatever its name. In a directory every regular file is read, at
/// any depth and through links, in the order of the paths; passed over are names that begin with
/// `.`, what editors leave behind (`*~`, `*.swp`, `*.swx`, `*.tmp`, `*.bak`, `*.orig`, `#*#`,
/// `4913`), pipes, sockets and devices, and links back to a directory that is being read.
///
/// Bounds: [`FILE_BYTES_MAX`], [`TOTAL_BYTES_MAX`], [`FILES_MAX`](super::FILES_MAX),
/// [`FOLDERS_MAX`](super::FOLDERS_MAX), [`DEPTH_MAX`](super::DEPTH_MAX).
#[derive(Clone, Debug)]
pub struct RuleFiles {
    /// As given, and absolute.
    roots: Vec<(PathBuf, PathBuf)>,
}

/// The names and texts of files that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    files: Vec<(String, String)>,
}

/// Texts, and what was there when they were read.
pub(super) struct Reading {
    pub(super) survey: Survey,
    pub(super) texts: Result<Texts, ReadError>,
}

impl RuleFiles {
    /// Files and directories, in the order in which they are to be read; nothing is read yet.
    ///
    /// A relative path is one from where the process is now, also if it moves later.
    pub fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        let mut roots: Vec<(PathBuf, PathBuf)> = Vec::new();
        for path in paths {
            let given = path.as_ref().to_owned();
            if roots.iter().all(|(known, _)| *known != given) {
                let absolute = std::path::absolute(&given).unwrap_or_else(|_| given.clone());
                roots.push((given, absolute));
            }
        }
        Self { roots }
    }

    /// The paths, as given; each once.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|(given, _)| &**given)
    }

    /// Reads all files, or says why one of them cannot be read.
    ///
    /// The texts are of one moment if possible: when files change meanwhile, all are read again, a
    /// few times.
    pub fn read(&self) -> Result<Texts, ReadError> {
        self.read_steadily().texts
    }

    /// Reads all files and loads the rules in them.
    pub fn load(&self, options: &Options) -> Result<Loaded, ReadError> {
        Ok(self.read()?.load(options))
    }

    pub(super) fn survey(&self) -> Survey {
        Survey::take(self.roots.iter().map(|(given, path)| (&**given, &**path)))
    }

    pub(super) fn read_steadily(&self) -> Reading {
        let mut survey = self.survey();
        let mut tries = 1;
        loop {
            let texts = match &survey.files {
                Ok(files) => read_all(files),
                Err(error) => Err(error.clone()),
            };
            let after = self.survey();
            if tries == TRIES_MAX || after.is_like(&survey) {
                // The survey from before: what was written while reading is new to it.
                return Reading { survey, texts };
            }
            survey = after;
            tries += 1;
        }
    }
}

impl Texts {
    /// The files, to load rules from or to show.
    pub fn files(&self) -> Vec<File<'_>> {
        self.files.iter().map(|(name, text)| File { name, text }).collect()
    }

    /// The names: the paths that were given, with what lies below them joined on.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.files.iter().map(|(name, _)| &**name)
    }

    /// Loads the rules.
    pub fn load(&self, options: &Options) -> Loaded {
        Rules::load(&self.files(), options)
    }
}

fn read_all(files: &[Found]) -> Result<Texts, ReadError> {
    let mut left = TOTAL_BYTES_MAX;
    let mut texts = Texts::default();
    for found in files {
        let bytes = read_one(found, left)?;
        left -= bytes.len() as u64;
        let text = String::from_utf8(bytes).map_err(|error| {
            let (bytes, offset) = (error.as_bytes(), error.utf8_error().valid_up_to());
            ReadError::NotUtf8 {
                path: found.name.clone(),
                offset,
                line: bytes.iter().take(offset).filter(|byte| **byte == b'\n').count() + 1,
                utf16: bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]),
            }
        })?;
        texts.files.push((found.name.display().to_string(), text));
    }
    Ok(texts)
}

/// Reads a file of no more than `left` bytes.
fn read_one(found: &Found, left: u64) -> Result<Vec<u8>, ReadError> {
    let name = &found.name;
    let file = open(&found.real).map_err(|error| unreadable(name, "open the file", error))?;
    let metadata = file.metadata().map_err(|error| unreadable(name, "look at it", error))?;
    if !metadata.is_file() {
        let kind = kind_of(metadata.file_type());
        return Err(ReadError::NotAFile { path: name.clone(), kind });
    }
    let check = |bytes: u64| match bytes {
        bytes if bytes > FILE_BYTES_MAX => Err(ReadError::FileTooLarge { path: name.clone() }),
        bytes if bytes > left => Err(ReadError::TooManyBytes { path: name.clone() }),
        _ => Ok(()),
    };
    check(metadata.len())?;
    let mut bytes = Vec::new();
    // A file may hold more than it says. One byte beyond what is allowed tells.
    file.take(FILE_BYTES_MAX.min(left) + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, "read the file", error))?;
    check(bytes.len() as u64)?;
    Ok(bytes)
}

/// Opens without waiting for anyone: a file may have become a pipe since it was looked at.
fn open(path: &Path) -> std::io::Result<Opened> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NONBLOCK);
    }
    options.open(path)
}
