/* What the linker has to know of libblkid: the names that src/probe/blkid/sys.rs calls. The packages are linked against
 * this instead of the build machine's own library, so that the binary asks for no newer one than it needs; when it runs it
 * finds the real one. The bodies are never called. */
#define STUB(name) void name(void) {}
STUB(blkid_new_probe)
STUB(blkid_free_probe)
STUB(blkid_probe_set_device)
STUB(blkid_probe_enable_superblocks)
STUB(blkid_probe_set_superblocks_flags)
STUB(blkid_probe_enable_partitions)
STUB(blkid_probe_set_partitions_flags)
STUB(blkid_reset_probe)
STUB(blkid_do_safeprobe)
STUB(blkid_do_probe)
STUB(blkid_probe_numof_values)
STUB(blkid_probe_get_value)
STUB(blkid_get_library_version)
