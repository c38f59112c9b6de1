//! Following the masters of a cluster.

use std::sync::Weak;

use super::Client;

/// As long as the client is there.
pub(super) async fn follow(client: Weak<Client>) {
    drop(client);
}
