// SPDX-License-Identifier: Apache-2.0
//! Finds libmoxie: in MOXIE_LIB_DIR, else where pkg-config says, else where the linker looks by itself.
use std::env;
use std::process::Command;

fn folder_by_pkg_config() -> Option<String> {
    let output = Command::new("pkg-config").args(["--variable=libdir", "moxie"]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    Some(folder.trim().to_string()).filter(|f| output.status.success() && !f.is_empty())
}

fn main() {
    for name in ["MOXIE_LIB_DIR", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(folder) = env::var("MOXIE_LIB_DIR").ok().or_else(folder_by_pkg_config) {
        println!("cargo:rustc-link-search=native={folder}");
    }
    println!("cargo:rustc-link-lib=dylib=moxie");
}
