//! Protobuf messages of etcd and etcd-manager, written by hand: only the fields that are read.
//!
//! Every field names the `.proto` it comes from. Text that somebody else may have chosen is taken as bytes: etcd's own
//! decoder does not check UTF-8 either.

use prost::Message;

/// `walpb.Record` (etcd v3.6.12 `server/storage/wal/walpb/record.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct WalRecord {
    /// `type = 1`: 1 metadata, 2 entry, 3 state, 4 crc, 5 snapshot.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// `crc = 2`: CRC-32C over the data of all records up to and with this one.
    #[prost(uint32, tag = "2")]
    pub crc: u32,
    /// `data = 3`
    #[prost(bytes = "vec", tag = "3")]
    pub data: Vec<u8>,
}

/// `walpb.Snapshot` (same file): the WAL's note that a snapshot was made.
#[derive(Clone, PartialEq, Message)]
pub struct WalSnapshot {
    /// `index = 1`
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// `term = 2`
    #[prost(uint64, tag = "2")]
    pub term: u64,
}

/// `etcdserverpb.Metadata` (`api/etcdserverpb/etcdserver.proto`): who this WAL belongs to.
#[derive(Clone, PartialEq, Message)]
pub struct WalMetadata {
    /// `NodeID = 1`
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
    /// `ClusterID = 2`
    #[prost(uint64, tag = "2")]
    pub cluster_id: u64,
}

/// `raftpb.Entry` (raft v3.6.0 `raftpb/raft.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct RaftEntry {
    /// `Type = 1`: 0 normal, 1 and 2 configuration changes.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// `Term = 2`
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// `Index = 3`
    #[prost(uint64, tag = "3")]
    pub index: u64,
    /// `Data = 4`
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
}

/// `raftpb.HardState` (same file).
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HardState {
    /// `term = 1`
    #[prost(uint64, tag = "1")]
    pub term: u64,
    /// `vote = 2`
    #[prost(uint64, tag = "2")]
    pub vote: u64,
    /// `commit = 3`
    #[prost(uint64, tag = "3")]
    pub commit: u64,
}

/// `raftpb.SnapshotMetadata` (same file).
#[derive(Clone, PartialEq, Message)]
pub struct SnapshotMetadata {
    /// `conf_state = 1`
    #[prost(message, optional, tag = "1")]
    pub conf_state: Option<ConfState>,
    /// `index = 2`
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// `term = 3`
    #[prost(uint64, tag = "3")]
    pub term: u64,
}

/// `raftpb.ConfState` (same file).
#[derive(Clone, PartialEq, Message)]
pub struct ConfState {
    /// `voters = 1`
    #[prost(uint64, repeated, packed = "false", tag = "1")]
    pub voters: Vec<u64>,
    /// `learners = 2`
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub learners: Vec<u64>,
}

/// `etcdserverpb.Request` (`api/etcdserverpb/etcdserver.proto`): a write of the v2 API.
#[derive(Clone, PartialEq, Message)]
pub struct V2Request {
    /// `Method = 2`: PUT, POST, DELETE, QGET, SYNC.
    #[prost(bytes = "vec", tag = "2")]
    pub method: Vec<u8>,
    /// `Path = 3`: `/1/…` is the user's, `/0/…` the cluster's.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// `Val = 4`
    #[prost(bytes = "vec", tag = "4")]
    pub value: Vec<u8>,
    /// `Dir = 5`
    #[prost(bool, tag = "5")]
    pub dir: bool,
}

/// `etcdserverpb.InternalRaftRequest` (`api/etcdserverpb/raft_internal.proto`): what a normal entry of etcd 3 carries.
#[derive(Clone, PartialEq, Message)]
pub struct InternalRaftRequest {
    /// `v2 = 2`
    #[prost(message, optional, tag = "2")]
    pub v2: Option<V2Request>,
    /// `put = 4`
    #[prost(message, optional, tag = "4")]
    pub put: Option<Unread>,
    /// `txn = 6`
    #[prost(message, optional, tag = "6")]
    pub txn: Option<Txn>,
    /// `cluster_version_set = 1300` (since 3.5)
    #[prost(message, optional, tag = "1300")]
    pub cluster_version_set: Option<ClusterVersionSet>,
}

/// `membershippb.ClusterVersionSetRequest` (`api/membershippb/membership.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct ClusterVersionSet {
    /// `ver = 1`
    #[prost(bytes = "vec", tag = "1")]
    pub version: Vec<u8>,
}

/// `etcdserverpb.TxnRequest` (`api/etcdserverpb/rpc.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct Txn {
    /// `success = 2`
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<TxnOp>,
    /// `failure = 3`
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<TxnOp>,
}

/// `etcdserverpb.RequestOp` (same file).
#[derive(Clone, PartialEq, Message)]
pub struct TxnOp {
    /// `request_put = 2`
    #[prost(message, optional, tag = "2")]
    pub put: Option<Unread>,
    /// `request_txn = 4`
    #[prost(message, optional, tag = "4")]
    pub txn: Option<Unread>,
}

/// A message that only matters by being there.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Unread {}

/// `etcdserverpb.AlarmMember` (same file), the key of bucket `alarm`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct AlarmMember {
    /// `memberID = 1`
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    /// `alarm = 2`: 1 NOSPACE, 2 CORRUPT.
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

/// `etcd.EtcdState` (etcd-manager 17729ad9 `pkg/apis/etcd/etcdapi.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct ManagerState {
    /// `new_cluster = 1`
    #[prost(bool, tag = "1")]
    pub new_cluster: bool,
    /// `cluster = 2`
    #[prost(message, optional, tag = "2")]
    pub cluster: Option<ManagerCluster>,
    /// `etcd_version = 3`
    #[prost(string, tag = "3")]
    pub etcd_version: String,
    /// `quarantined = 4`
    #[prost(bool, tag = "4")]
    pub quarantined: bool,
}

/// `etcd.EtcdCluster` (same file).
#[derive(Clone, PartialEq, Message)]
pub struct ManagerCluster {
    /// `desired_cluster_size = 1`
    #[prost(int32, tag = "1")]
    pub desired_cluster_size: i32,
    /// `cluster_token = 5`
    #[prost(string, tag = "5")]
    pub cluster_token: String,
    /// `nodes = 7`
    #[prost(message, repeated, tag = "7")]
    pub nodes: Vec<ManagerNode>,
}

/// `etcd.EtcdNode` (same file).
#[derive(Clone, PartialEq, Message)]
pub struct ManagerNode {
    /// `name = 1`
    #[prost(string, tag = "1")]
    pub name: String,
    /// `peer_urls = 2`
    #[prost(string, repeated, tag = "2")]
    pub peer_urls: Vec<String>,
    /// `client_urls = 3`
    #[prost(string, repeated, tag = "3")]
    pub client_urls: Vec<String>,
    /// `quarantined_client_urls = 4`
    #[prost(string, repeated, tag = "4")]
    pub quarantined_client_urls: Vec<String>,
    /// `tls_enabled = 5`
    #[prost(bool, tag = "5")]
    pub tls_enabled: bool,
}
