//! RESP over TLS.

use std::sync::Arc;
use std::time::Duration;

use rcgen::CertifiedKey;
use rustls_pki_types::ServerName;
use tidegate_server::TlsFiles;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::support::start;

/// TLS may take what it is given and hold it back while the system has no room; whoever takes that for
/// sent leaves the client without its last answers.
#[test]
fn a_pipeline_is_answered_whole() {
    let folder = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("cert"), cert.pem()).unwrap();
    std::fs::write(path("key"), signing_key.serialize_pem()).unwrap();
    let files = TlsFiles { certificate: path("cert"), key: path("key"), client_ca: None };
    let running = start(|config| config.resp_tls = Some(files));
    let port = running.port;
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let all = runtime.block_on(async move {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        // Far more than the system keeps for somebody who does not read.
        let word = "x".repeat(16_000);
        let commands = format!("*2\r\n$4\r\nECHO\r\n$16000\r\n{word}\r\n").repeat(1_000);
        let sender = tokio::spawn(async move {
            writer.write_all(commands.as_bytes()).await.unwrap();
            writer.flush().await.unwrap();
            writer
        });
        let mut answer = vec![0; "$16000\r\n\r\n".len() + 16_000];
        let mut count = 0;
        let read = async {
            for _ in 0..1_000 {
                reader.read_exact(&mut answer).await.unwrap();
                count += 1;
            }
        };
        let outcome = tokio::time::timeout(Duration::from_secs(30), read).await;
        outcome.unwrap_or_else(|_| panic!("an answer is held back"));
        drop(sender.await.unwrap());
        count
    });
    assert_eq!(all, 1_000);
    assert!(running.drain());
}
