//! TLS, with and without certificates of clients, and Unix sockets.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tidegate_proto::Code::Ok as Fine;
use tidegate_server::{Address, TlsFiles};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::Endpoint;

use crate::support::{Client, Running, Setup, ask, domain};

const RULES: &str = "  - { key: user, rate_limit: { requests_per_unit: 9, unit: minute } }\n";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Issuer {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, in PEM.
fn issue(issuer: &Issuer, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

fn write(folder: &Path, issuer: &Issuer, with_clients: bool) -> TlsFiles {
    let (certificate, key) = issue(issuer, "localhost");
    let path = |name: &str| folder.join(name);
    fs::write(path("server.pem"), certificate).unwrap();
    fs::write(path("server.key"), key).unwrap();
    fs::write(path("ca.pem"), issuer.pem()).unwrap();
    TlsFiles {
        certificate: path("server.pem"),
        key: path("server.key"),
        client_ca: with_clients.then(|| path("ca.pem")),
    }
}

/// A client's side of TLS; `own` is its certificate and key.
fn trusting(issuer: &Issuer, own: Option<(String, String)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

async fn connect(
    running: &Running,
    config: Arc<ClientConfig>,
) -> Result<Client, tonic::transport::Error> {
    let address = running.address();
    let connector = tower::service_fn(move |_| {
        let (address, config) = (address.clone(), Arc::clone(&config));
        async move {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::try_from("localhost").unwrap();
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    Ok(Client::new(endpoint.connect_with_connector(connector).await?))
}

async fn start(files: TlsFiles) -> Running {
    let mut setup = Setup::new(&domain(RULES));
    setup.config.grpc_tls = Some(files);
    setup.start().await
}

/// Whether a client gets an answer. With TLS 1.3 it may only learn with its first request that its
/// certificate was missed.
async fn is_answered(running: &Running, config: Arc<ClientConfig>) -> bool {
    let Ok(mut client) = connect(running, config).await else { return false };
    let asked = crate::support::request(&[crate::support::descriptor("user=ada")]);
    crate::support::send(&mut client, asked).await.is_ok()
}

#[tokio::test]
async fn with_a_certificate_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let ours = issuer();
    let running = start(write(folder.path(), &ours, false)).await;
    let mut client = connect(&running, trusting(&ours, None)).await.unwrap();
    assert_eq!(ask(&mut client, &["user=ada"]).await.overall_code(), Fine);
    assert!(!is_answered(&running, trusting(&issuer(), None)).await, "who trusts another issuer");

    // Whoever speaks plainly is not understood, and disturbs nobody.
    let plain = Endpoint::from_shared(format!("http://{}", running.address())).unwrap();
    let plain = match plain.connect().await {
        Err(_) => false,
        Ok(channel) => {
            let asked = crate::support::request(&[crate::support::descriptor("user=ada")]);
            crate::support::send(&mut Client::new(channel), asked).await.is_ok()
        }
    };
    assert!(!plain);
    assert_eq!(ask(&mut client, &["user=ada"]).await.statuses[0].limit_remaining, 7);

    // A new certificate is for those who come from now on.
    let next = issuer();
    write(folder.path(), &next, false);
    running.server.reload_tls().unwrap();
    assert!(is_answered(&running, trusting(&next, None)).await);
    assert!(!is_answered(&running, trusting(&ours, None)).await);
    assert_eq!(ask(&mut client, &["user=ada"]).await.overall_code(), Fine, "who was there stays");
}

#[tokio::test]
async fn with_certificates_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let ours = issuer();
    let running = start(write(folder.path(), &ours, true)).await;
    assert!(is_answered(&running, trusting(&ours, Some(issue(&ours, "envoy")))).await);
    assert!(!is_answered(&running, trusting(&ours, None)).await, "without a certificate");
    let stranger = issue(&issuer(), "envoy");
    assert!(!is_answered(&running, trusting(&ours, Some(stranger))).await, "with somebody else's");
    assert!(is_answered(&running, trusting(&ours, Some(issue(&ours, "other")))).await);
}

#[tokio::test]
async fn by_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grpc.sock");
    let mut setup = Setup::new(&domain(RULES));
    setup.config.grpc = Address::Unix(path.clone());
    let running = setup.start().await;
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let mut client = Client::new(endpoint.connect_with_connector(connector).await.unwrap());
    assert_eq!(ask(&mut client, &["user=ada"]).await.overall_code(), Fine);
    drop(client);
    assert!(running.server.drain().await);
}
