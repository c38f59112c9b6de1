//! Following a master by asking Sentinels.

use std::sync::Weak;

use super::Client;

/// As long as the client is there.
pub(super) async fn follow(client: Weak<Client>, master: String) {
    drop((client, master));
}
