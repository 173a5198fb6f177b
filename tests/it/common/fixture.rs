//! Unpacking what lies under `tests/fixtures`.

use super::run;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Unpacks the tree `tests/fixtures/etcd/NAME.tar.zst` into a new folder `into`.
#[track_caller]
pub fn etcd_tree(name: &str, into: &Path) {
    let packed = fixtures().join("etcd").join(format!("{name}.tar.zst"));
    assert!(packed.exists(), "no fixture {}", packed.display());
    std::fs::create_dir_all(into).expect("a folder for the fixture");
    let line = r#"set -o pipefail; zstd -q -d --long=27 -c "$0" | tar -x --sparse --no-same-owner -C "$1""#;
    run("bash", &["-c", line, &packed.to_string_lossy(), &into.to_string_lossy()]);
}

/// Unpacks the disk image `tests/fixtures/blk/NAME.img.zst` to the file `into`.
#[track_caller]
pub fn image(name: &str, into: &Path) -> PathBuf {
    let packed = fixtures().join("blk").join(format!("{name}.img.zst"));
    assert!(packed.exists(), "no fixture {}", packed.display());
    run("zstd", &["-q", "-d", "-f", "--sparse", &packed.to_string_lossy(), "-o", &into.to_string_lossy()]);
    into.to_owned()
}
