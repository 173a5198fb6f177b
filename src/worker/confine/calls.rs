//! seccomp: which system calls a reader may still make.
//!
//! Three answers. What readers need is allowed, some of it only with harmless arguments. What only foreign code would ask
//! for (a program, a process, a socket, a mount, another process's memory) kills the reader, so that its answer is
//! never believed. The rest fails with EPERM: what a newer C library tries first and can do without must not become a
//! hold on a healthy node.

use super::ConfineError;
use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Allowed with any arguments: none of them changes anything outside of this process.
const FREE: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    // Its flags lie in memory, where a filter cannot look. Paths are Landlock's; nothing opened can be written to (below).
    libc::SYS_openat2,
    libc::SYS_fadvise64,
    // A mark is only told when it is durable: flushes what others have written, and works on what is open for reading.
    libc::SYS_fdatasync,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_getuid,
    libc::SYS_getegid,
    libc::SYS_getgid,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Answered by the filter below.
    libc::SYS_clone3,
];

/// As [`FREE`], from the time before the calls relative to a directory, which aarch64 never had.
#[cfg(target_arch = "x86_64")]
const FREE_OLD: &[c_long] = &[libc::SYS_stat, libc::SYS_lstat, libc::SYS_readlink, libc::SYS_access];
#[cfg(not(target_arch = "x86_64"))]
const FREE_OLD: &[c_long] = &[];

/// No reader makes these on any path. One that does runs somebody else's code.
const DEADLY: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kill,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_setuid,
    libc::SYS_setresuid,
];
#[cfg(target_arch = "x86_64")]
const DEADLY_OLD: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const DEADLY_OLD: &[c_long] = &[];

/// What libblkid asks a block device: sizes and kinds, nothing that changes it. Values of linux/fs.h, blkzoned.h, cdrom.h,
/// fd.h, which libc does not have, the same on x86_64 and aarch64.
const IOCTLS: &[u64] = &[
    0x8008_1272, // BLKGETSIZE64
    0x1260,      // BLKGETSIZE
    0x1268,      // BLKSSZGET
    0x127b,      // BLKPBSZGET
    0x8004_1284, // BLKGETZONESZ
    0x8008_1280, // BLKGETDISKSEQ
    0x5331,      // CDROM_GET_CAPABILITY
    0x5395,      // CDROM_LAST_WRITTEN
    0x5326,      // CDROM_DRIVE_STATUS
    0x8028_0215, // FDGETFDCSTAT
];

/// Sets the filters on this thread; `false` on a kernel without seccomp.
pub(super) fn filter() -> Result<bool, ConfineError> {
    let programs = programs().map_err(|source| ConfineError::Filter { source })?;
    for program in &programs {
        match seccompiler::apply_filter(program) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(error))
                if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
            {
                return Ok(false);
            }
            Err(source) => return Err(ConfineError::Seccomp { source }),
        }
    }
    Ok(true)
}

/// The kernel asks all filters and takes the harshest answer.
fn programs() -> Result<Vec<BpfProgram>, BackendError> {
    // clone3 hides its flags in memory. Told that there is none, the C library takes clone, whose flags can be seen.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let no_clone3 = program(clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    let deadly = program(deadly()?, SeccompAction::Allow, SeccompAction::KillProcess)?;
    let allowed = program(allowed()?, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?;
    // The one that forbids setting filters comes last.
    Ok(vec![no_clone3, deadly, allowed])
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()
}

fn deadly() -> Result<Rules, BackendError> {
    let mut rules: Rules = DEADLY.iter().chain(DEADLY_OLD).map(|call| (*call, Vec::new())).collect();
    // A process of its own, however it is made: whatever is no thread.
    rules.insert(libc::SYS_clone, vec![all([masked(0, libc::CLONE_THREAD as u64, 0)?])?]);
    Ok(rules)
}

fn allowed() -> Result<Rules, BackendError> {
    let mut rules: Rules = FREE.iter().chain(FREE_OLD).map(|call| (*call, Vec::new())).collect();
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![all([masked(0, thread, thread)?])?]);
    // For reading only.
    let writing = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64;
    rules.insert(libc::SYS_openat, vec![all([masked(2, writing, 0)?])?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![all([masked(1, writing, 0)?])?]);
    // Writing goes to the parent alone: no other descriptor takes it, and none can take the place of those.
    for call in [libc::SYS_write, libc::SYS_writev] {
        rules.insert(call, vec![all([equal(0, 1)?])?, all([equal(0, 2)?])?]);
    }
    let above_stderr = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, 2)?;
    rules.insert(libc::SYS_close, vec![all([above_stderr])?]);
    let fcntls = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];
    rules.insert(libc::SYS_fcntl, one_of(1, fcntls.map(|command| command as u64))?);
    rules.insert(libc::SYS_ioctl, one_of(1, IOCTLS.iter().copied())?);
    // No shared mapping can carry a change out, and no memory becomes a program.
    let executable = libc::PROT_EXEC as u64;
    let private = [masked(2, executable, 0)?, masked(3, libc::MAP_SHARED as u64, 0)?];
    rules.insert(libc::SYS_mmap, vec![all(private)?]);
    rules.insert(libc::SYS_mprotect, vec![all([masked(2, executable, 0)?])?]);
    // abort() signals its own thread.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![all([equal(0, own)?, equal(2, libc::SIGABRT as u64)?])?]);
    // Asking for a limit; setting one is another value of its third argument.
    let asks = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![all([asks])?]);
    Ok(rules)
}

fn all<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

fn one_of(argument: u8, values: impl IntoIterator<Item = u64>) -> Result<Vec<SeccompRule>, BackendError> {
    values.into_iter().map(|value| all([equal(argument, value)?])).collect()
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
}
