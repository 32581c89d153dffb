//! The committed code is what the `.proto` says. To write it again: `BLESS=1 cargo test -p credbroker-proto`.

#![allow(clippy::disallowed_methods, reason = "a test reads BLESS")]

use std::{fs, path::Path};

use prost::Message as _;

/// Messages that hold a secret: their `Debug` is written by hand in `src/redacted.rs`.
const SECRET: [&str; 8] = [
    "credbroker.v1.AttendCredentialRequest",
    "credbroker.v1.AttendCredentialResponse",
    "credbroker.v1.Credential",
    "credbroker.v1.CredentialRef",
    "credbroker.v1.DepositOutputRequest",
    "credbroker.v1.GetCredentialRequest",
    "credbroker.v1.Lease",
    "credbroker.v1.Cluster",
];

#[test]
fn committed_code_is_what_the_proto_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().expect("a temporary directory");
    generate(root, fresh.path());
    for file in ["credbroker.v1.rs", "credbroker.v1.bin"] {
        let (new, committed) = (fresh.path().join(file), root.join("src/generated").join(file));
        if std::env::var_os("BLESS").is_some() {
            fs::create_dir_all(root.join("src/generated")).expect("src/generated");
            fs::copy(&new, &committed).expect("the committed file can be written");
        }
        assert!(
            fs::read(&new).ok() == fs::read(&committed).ok(),
            "{} is not what proto/ generates: run `BLESS=1 cargo test -p credbroker-proto` and commit it",
            committed.display()
        );
    }
}

fn generate(root: &Path, out: &Path) {
    let descriptors =
        protox::compile(["credbroker/v1/credbroker.proto"], [root]).expect("the proto files compile");
    let mut prost = prost_build::Config::new();
    prost.bytes([".credbroker.v1.Cluster"]).btree_map(["."]).skip_debug(SECRET).out_dir(out);
    prost.enum_attribute("credbroker.v1.ErrorReason", "#[non_exhaustive]");
    tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true) // a stand-in for tests need not know every call
        .codec_path("crate::codec::SmallBuffers")
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .out_dir(out)
        .compile_fds_with_config(descriptors.clone(), prost)
        .expect("code is generated");
    fs::write(out.join("credbroker.v1.bin"), descriptors.encode_to_vec()).expect("descriptor set");
}
