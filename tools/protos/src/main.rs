//! `cargo protos`: compiles `proto/` to `proto/descriptors.binpb`, from which the build scripts generate messages and services.
//!
//! That file is in the repository, so that a build of the server compiles no compiler of protobuf. A package of its own, which depends
//! on nothing that is generated; its test compares the two.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto")
}

/// The protos below a folder, by their names in imports, sorted.
fn protos_below(folder: &Path, above: &Path, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            protos_below(&path, above, found)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path.strip_prefix(above).expect("below the folder").to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(())
}

fn path() -> PathBuf {
    folder().join("descriptors.binpb")
}

/// The descriptor set of all protos, with their comments.
fn compiled() -> Result<Vec<u8>, Box<dyn Error>> {
    let (folder, mut names) = (folder(), Vec::new());
    protos_below(&folder, &folder, &mut names)?;
    Ok(prost::Message::encode_to_vec(&protox::compile(&names, [&folder])?))
}

fn main() -> Result<(), Box<dyn Error>> {
    Ok(fs::write(path(), compiled()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_in_the_repository_are_those_of_the_protos() {
        let stored = fs::read(path()).expect("proto/descriptors.binpb");
        assert!(stored == compiled().expect("the protos compile"), "run `cargo protos`");
    }
}
