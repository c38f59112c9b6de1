//! The code in `src/generated` is what the .proto files come to.
//!
//! After a change to them, `TIDEGATE_BLESS=1 cargo test -p tidegate-proto` writes it anew.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use prost::Message as _;

/// Every file by its name.
type Files = BTreeMap<OsString, Vec<u8>>;

#[test]
fn the_committed_code_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/generated");
    let made = tempfile::tempdir().expect("a directory");
    generate(root, made.path());
    let (made, kept) = (files(made.path()), files(&committed));
    if made == kept {
        return;
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        for name in kept.keys() {
            fs::remove_file(committed.join(name)).expect("a file that was just read");
        }
        for (name, bytes) in &made {
            fs::write(committed.join(name), bytes).expect("the folder of the generated code");
        }
        return;
    }
    let names = made.keys().chain(kept.keys());
    let differing: Vec<_> = names.filter(|name| made.get(*name) != kept.get(*name)).collect();
    panic!("not what the .proto files come to: {differing:?}; run with TIDEGATE_BLESS=1");
}

fn generate(root: &Path, out: &Path) {
    let mut compiler = protox::Compiler::new([root.join("proto")]).expect("the folder");
    compiler.include_imports(true).include_source_info(true);
    compiler.open_file("envoy/service/ratelimit/v3/rls.proto").expect("a sound .proto file");
    let all = compiler.file_descriptor_set();
    tonic_prost_build::configure()
        .out_dir(out)
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .compile_fds(all.clone())
        .expect("code");

    // For reflection, which has no use for comments.
    let mut bare = all;
    bare.file.iter_mut().for_each(|file| file.source_code_info = None);
    fs::write(out.join("descriptors.bin"), bare.encode_to_vec()).expect("a file");
}

fn files(folder: &Path) -> Files {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).expect("a file"))).collect()
}
