//! How an HTTP request becomes descriptors.

use crate::read::{Fields, Reader};

/// An entry of the `http` section.
#[derive(Debug)]
pub(crate) struct HttpEntry;

/// Reads the `http` section.
pub(crate) fn read<'t>(_reader: &mut Reader<'_, 't>, _root: &Fields<'_, 't>) -> Vec<HttpEntry> {
    Vec::new()
}
