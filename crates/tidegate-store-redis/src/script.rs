//! stub
pub(crate) const SCRIPT: &str = "";
