//! Following links one by one, so that each of them can be watched.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

/// The most links on the way to one file; Linux has the same bound.
const LINKS_MAX: usize = 40;

/// Where a way of links broke off.
pub(super) struct Broken {
    /// What is missing or cannot be followed.
    pub(super) at: PathBuf,
    pub(super) why: Why,
    /// Whether a link led here.
    pub(super) by_link: bool,
}

pub(super) enum Why {
    Loop,
    Error(io::Error),
}

/// The path without links, `.` and `..`.
///
/// `decisive` is told each directory and the name in it on which the outcome depends: those of
/// links, that of the end, and that of what is missing. Ordinary directories on the way are left
/// out, since watching all up to the root would have the process woken by everything around it.
pub(super) fn follow(
    path: &Path,
    mut decisive: impl FnMut(&Path, &OsStr),
) -> Result<PathBuf, Broken> {
    let mut real = PathBuf::new();
    let mut left: Vec<OsString> = steps(path);
    let mut links = 0;
    while let Some(step) = left.pop() {
        let name = match Path::new(&step).components().next() {
            Some(Component::Normal(name)) => name,
            Some(Component::ParentDir) => {
                real.pop();
                continue;
            }
            Some(Component::RootDir | Component::Prefix(_)) => {
                real.push(&step);
                continue;
            }
            Some(Component::CurDir) | None => continue,
        };
        let next = real.join(name);
        let broken = |why| Broken { at: next.clone(), why, by_link: links > 0 };
        let target = match next.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => next.read_link().map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        if left.is_empty() || !matches!(target, Ok(None)) {
            decisive(&real, name);
        }
        match target {
            Err(error) => return Err(broken(Why::Error(error))),
            Ok(None) => real = next,
            Ok(Some(_)) if links == LINKS_MAX => return Err(broken(Why::Loop)),
            Ok(Some(target)) => {
                links += 1;
                if target.is_absolute() {
                    real = PathBuf::new();
                }
                left.extend(steps(&target));
            }
        }
    }
    Ok(real)
}

/// The components, last first.
fn steps(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
}
