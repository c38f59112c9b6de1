//! A client of gRPC's own library, in another language, with code made from our .proto files.

use std::process::Stdio;

use crate::support::{Setup, domain, python};

const RULES: &str = "
  - { key: user, rate_limit: { name: per-user, requests_per_unit: 2, unit: minute } }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_understands_it() {
    let running = Setup::new(&domain(RULES)).start().await;
    let folder = tempfile::tempdir().unwrap();
    let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/../tidegate-proto/proto");
    let compiled = python()
        .args(["-m", "grpc_tools.protoc", "-I", protos])
        .arg(format!("--python_out={}", folder.path().display()))
        .arg(format!("--grpc_python_out={}", folder.path().display()))
        .args([
            "envoy/service/ratelimit/v3/rls.proto",
            "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
            "envoy/type/v3/ratelimit_unit.proto",
            "envoy/config/core/v3/base.proto",
        ])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    // The package that brings the program of Envoy has the same name; the first one counts.
    std::fs::write(folder.path().join("envoy/__init__.py"), "").unwrap();

    let address = running.address();
    let mut script = python();
    script
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc/python/client.py"))
        .arg(address)
        .env("PYTHONPATH", folder.path())
        .stdin(Stdio::null());
    let told = tokio::task::spawn_blocking(move || script.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{out}{err}");
    assert_eq!(out.trim(), "all as expected");
}
