//! etcd-manager's state file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volhold::etcd::manager_state::parse_state;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = parse_state(data) {
        assert!(state.cluster_token.as_deref().is_none_or(|token| !token.contains('/') && token != ".."));
    }
});
