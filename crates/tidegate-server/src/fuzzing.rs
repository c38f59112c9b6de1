//! Doors for the fuzz targets, and no part of what this crate promises.

use std::sync::Arc;

use crate::service::Service;

/// What a RESP client is answered that sends these pieces, and whether it was hung up on.
pub fn resp(service: &Arc<Service>, password: Option<&str>, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    crate::resp::converse(service, password, pieces)
}
