//! From the text of files to rules, with everything that is wrong with them.

mod document;
mod limit;
mod map;
mod spec;
mod value;

pub(crate) use self::document::read_file;
pub(crate) use self::map::{Fields, Reader, Replaced};
