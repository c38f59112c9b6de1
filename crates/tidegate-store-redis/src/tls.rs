//! TLS to Redis: whom to trust, and what to show.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Files for TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// The certificates of those who may sign Redis's, instead of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate and the key to show to Redis.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with the files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {what} from `{path}`: {why}")]
    File { what: &'static str, path: String, why: String },
    #[error("no certificates of the system can be found{why}; name a file with those to trust")]
    NoRoots { why: String },
    #[error("the certificate `{path}` cannot be used: {why}")]
    Unfit { path: String, why: String },
    #[error("{0}")]
    Other(String),
}

/// Reads the files and makes what connections need.
pub(crate) fn connector(files: &TlsFiles) -> Result<TlsConnector, TlsError> {
    let roots = match &files.ca {
        Some(path) => roots_of(path)?,
        None => roots_of_system()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Other(error.to_string()))?
        .with_root_certificates(roots);
    let config = match &files.certificate {
        None => builder.with_no_client_auth(),
        Some((path, key)) => {
            let chain = certificates(path)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|why| unreadable("a private key", key, &why))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| TlsError::Unfit {
                path: path.display().to_string(),
                why: error.to_string(),
            })?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots_of(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|why| unreadable("certificates", path, &why))?;
    }
    Ok(roots)
}

/// One that the system has and that cannot be used does no harm, as long as there are others.
fn roots_of_system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(TlsError::NoRoots { why });
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(|all| all.collect::<Result<_, _>>())
        .map_err(|why| unreadable("certificates", path, &why))?;
    match all.is_empty() {
        false => Ok(all),
        true => {
            let why = std::io::Error::other("there are none in it");
            Err(unreadable("certificates", path, &why))
        }
    }
}

fn unreadable(what: &'static str, path: &Path, why: &dyn std::error::Error) -> TlsError {
    let mut text = why.to_string();
    if let Some(source) = why.source() {
        text = format!("{text}: {source}");
    }
    TlsError::File { what, path: path.display().to_string(), why: text }
}
