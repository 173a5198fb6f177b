//! etcd-manager's `state` file: which data dir of a kops volume is the live one.
//!
//! A bare protobuf message without magic or checksum, written in place and not atomically (etcd-manager 17729ad9
//! `pkg/etcd/etcdserver.go`). No bytes at all is a valid message: etcd-manager was told to stop this node's etcd. So a
//! message is believed only when all of it is what etcd-manager could have written.

mod edit;

pub use edit::edit_state;

use super::proto::ManagerState;
use crate::model::{EtcdManagerNode, EtcdManagerState};
use prost::Message;

/// Longest file that can be one: a few hundred bytes a node.
pub const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StateError {
    #[error("it is no etcd-manager state: {0}")]
    Decode(#[source] prost::DecodeError),
    #[error("it is no etcd-manager state: {what}")]
    Content { what: &'static str },
    /// It could be read, and not be written again.
    #[error("it cannot be edited: {what}")]
    Edit { what: &'static str },
}

/// Decodes the file's content.
pub fn parse_state(bytes: &[u8]) -> Result<EtcdManagerState, StateError> {
    let state = ManagerState::decode(bytes).map_err(StateError::Decode)?;
    // prost skips fields that it does not know. A later etcd-manager may write some; random bytes are full of them.
    if state.encoded_len() < bytes.len().div_ceil(2) {
        return Err(StateError::Content { what: "most of it are fields that etcd-manager does not write" });
    }
    let cluster = state.cluster.unwrap_or_default();
    let node_texts = cluster.nodes.iter().flat_map(|node| {
        let urls = node.peer_urls.iter().chain(&node.client_urls).chain(&node.quarantined_client_urls);
        std::iter::once(&node.name).chain(urls)
    });
    if node_texts.chain([&state.etcd_version, &cluster.cluster_token]).any(|text| text.chars().any(char::is_control)) {
        return Err(StateError::Content { what: "it has control characters in a name or URL" });
    }
    let token = Some(cluster.cluster_token).filter(|token| !token.is_empty());
    if token.as_deref().is_some_and(|token| !is_file_name(token)) {
        return Err(StateError::Content { what: "its cluster token is no file name" });
    }
    let node = |node: super::proto::ManagerNode| EtcdManagerNode {
        name: node.name,
        peer_urls: node.peer_urls,
        client_urls: node.client_urls,
    };
    Ok(EtcdManagerState {
        empty: bytes.is_empty(),
        new_cluster: state.new_cluster,
        cluster_token: token,
        etcd_version: Some(state.etcd_version).filter(|version| !version.is_empty()),
        quarantined: state.quarantined,
        nodes: cluster.nodes.into_iter().map(node).collect(),
    })
}

/// The token becomes the last component of `data/<token>`.
fn is_file_name(token: &str) -> bool {
    token.len() <= 255 && token != "." && token != ".." && !token.contains('/')
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;
    use crate::etcd::proto::{ManagerCluster, ManagerNode};

    fn state(token: &str) -> Vec<u8> {
        let node =
            ManagerNode { name: "etcd-a".into(), peer_urls: vec!["https://a:2380".into()], ..Default::default() };
        let cluster = ManagerCluster { desired_cluster_size: 1, cluster_token: token.into(), nodes: vec![node] };
        ManagerState { cluster: Some(cluster), etcd_version: "3.4.13".into(), ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn a_file_of_no_bytes_is_valid_and_empty() {
        let parsed = parse_state(b"").unwrap();
        assert!(parsed.empty);
        assert_eq!(parsed, EtcdManagerState { empty: true, ..Default::default() });
    }

    #[test]
    fn the_token_that_selects_is_read() {
        let parsed = parse_state(&state("NMfO49sfJAXCvq4-VQE8Ug")).unwrap();
        assert_eq!(parsed.cluster_token.as_deref(), Some("NMfO49sfJAXCvq4-VQE8Ug"));
        assert_eq!(parsed.nodes.len(), 1);
        assert!(!parsed.empty);
    }

    #[test]
    fn a_token_that_leads_elsewhere_and_foreign_bytes_are_refused() {
        assert!(parse_state(&state("../../etc")).is_err());
        assert!(parse_state(&state("..")).is_err());
        assert!(parse_state(&state("a\nb")).is_err());
        assert!(parse_state(b"hello world, this is no state").is_err());
        assert!(parse_state(b"\x62\x02\x19\xf7").is_err(), "one field that etcd-manager does not have");
    }

    #[test]
    fn a_state_that_is_cut_never_selects_another_dir() {
        let good = state("token");
        for cut in 1..good.len() {
            if let Ok(parsed) = parse_state(good.get(..cut).unwrap()) {
                assert_eq!(parsed.cluster_token.as_deref(), Some("token"), "cut at {cut}");
            }
        }
    }
}
