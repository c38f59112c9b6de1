//! TLS for listeners, with certificates that are read again when they change.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::config::TlsFiles;

/// What is wrong with the files of a listener that speaks TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or holds nothing of its kind.
    #[error("cannot read {what} from `{path}`: {why}")]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The files do not fit together.
    #[error("the certificate `{path}` cannot be used: {why}")]
    Unfit {
        /// The certificate's file.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// Reads the files and makes what a listener needs. `protocols` are those of ALPN.
///
/// # Errors
/// If a file cannot be read, or they do not fit together.
pub fn server_config(files: &TlsFiles, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|why| unreadable("a private key", &files.key, &why))?;
    let unfit =
        |why: String| TlsError::Unfit { path: files.certificate.display().to_string(), why };
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(error.to_string()))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|why| unreadable("certificates", path, &why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|why| unreadable("certificates", path, &why))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| unfit(error.to_string()))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(|all| all.collect::<Result<_, _>>())
        .map_err(|why| unreadable("certificates", path, &why))?;
    match all.is_empty() {
        false => Ok(all),
        true => {
            let why = io::Error::new(io::ErrorKind::InvalidData, "there are none in it");
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
