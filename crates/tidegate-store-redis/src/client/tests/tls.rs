//! Redis behind TLS.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::support::*;
use crate::client::{Client, ClientError};
use crate::tls::TlsFiles;

/// An authority, and files of those whom it vouches for.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // As with real ones, no two authorities have the same name.
        let name = format!("authority {}", getrandom::u32().unwrap());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    /// Writes a certificate for a name, and its key.
    fn vouch(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_path, key_path) =
            (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&cert_path, certificate.pem()).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        (cert_path, key_path)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A server with a certificate for this name, and the port where it speaks TLS.
    fn server(&self, name: &str, clients: &str) -> (Server, u16) {
        let (cert, key) = self.vouch(name);
        let port = free_port();
        let server = Server::start(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &self.path("ca.pem"),
            "--tls-auth-clients",
            clients,
            "--requirepass",
            "pw",
        ]);
        (server, port)
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { ca: Some(self.path("ca.pem").into()), certificate: None }
    }
}

fn with(files: TlsFiles) -> crate::client::ClientOptions {
    let mut options = options();
    options.tls = files;
    options
}

async fn why_not(client: &Client, why: &str) {
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    until_async(why, async || client.why_down().is_some_and(|text| text.contains(why))).await;
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_its_name() {
    let authority = Authority::new();
    let (_server, port) = authority.server("localhost", "no");
    let url = format!("rediss://:pw@localhost:{port}");
    let (client, _) = open(&url, with(authority.files()));
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    let mut all = tokio::task::JoinSet::new();
    for n in 0..200 {
        let client = std::sync::Arc::clone(&client);
        // More than one record of TLS.
        let text = format!("{n}").repeat(300);
        all.spawn(async move { assert_eq!(client.run(eval("k", &text)).await, bulk(&text)) });
    }
    while let Some(result) = all.join_next().await {
        result.unwrap();
    }
    // The same server by a name that is not in its certificate.
    let (client, _) = open(&format!("rediss://:pw@127.0.0.1:{port}"), with(authority.files()));
    why_not(&client, "not valid for name").await;
    // Another authority.
    let (client, _) = open(&url, with(Authority::new().files()));
    why_not(&client, "UnknownIssuer").await;
    // A server that does not speak TLS.
    let plain = Server::start(&[]);
    let (client, _) = open(&format!("rediss://localhost:{}", plain.port), with(authority.files()));
    until_async("it fails", async || client.run(eval("k", "x")).await == Err(ClientError::Down))
        .await;
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let authority = Authority::new();
    let (_server, port) = authority.server("localhost", "yes");
    let url = format!("rediss://:pw@localhost:{port}");
    let (cert, key) = authority.vouch("client");
    let mut files = authority.files();
    let (client, _) = open(&url, with(files.clone()));
    assert!(!client.wait_ready(std::time::Duration::from_millis(100)).await);
    files.certificate = Some((cert.into(), key.into()));
    let (client, _) = open(&url, with(files));
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let (cert, key) = authority.vouch("a");
    let (_, other_key) = authority.vouch("b");
    let open = |ca: &str, certificate: Option<(&str, &str)>| {
        let certificate = certificate.map(|(cert, key)| (cert.into(), key.into()));
        let files = TlsFiles { ca: Some(ca.into()), certificate };
        let target = "rediss://localhost".parse().unwrap();
        Client::open(target, with(files), Default::default()).err().unwrap().to_string()
    };
    assert!(open("/nowhere/ca.pem", None).contains("/nowhere/ca.pem"));
    assert!(open(&key, None).contains("none in it"));
    let ca = authority.path("ca.pem");
    assert!(open(&ca, Some((&cert, "/nowhere/key"))).contains("a private key from `/nowhere/key`"));
    assert!(open(&ca, Some((&cert, &other_key))).contains("cannot be used"));
}
