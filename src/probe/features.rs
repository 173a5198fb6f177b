//! Feature bits of filesystems: which are set that cannot be handled here.
//!
//! A bit that the kernel or the tools do not know means that the filesystem cannot be checked, or not be mounted read-write.
//! It is told before anything is tried, so that the failure of a tool is not the first word about it.

/// Bit, name, handled.
pub(super) type Table = [(u32, &'static str, bool)];

/// Every set bit that is not handled: `incompat 0x40000000`, or with its name where it has one. Words are name, value and
/// table.
pub(super) fn unknown(words: &[(&str, u32, &Table)]) -> Vec<String> {
    let mut unknown = Vec::new();
    for (word, set, table) in words {
        for bit in (0..32).map(|shift| 1_u32 << shift).filter(|bit| set & bit != 0) {
            match table.iter().find(|(known, _, _)| *known == bit) {
                Some((_, _, true)) => {}
                Some((_, name, false)) => unknown.push(format!("{word} {bit:#x} ({name})")),
                None => unknown.push(format!("{word} {bit:#x}")),
            }
        }
    }
    unknown
}
