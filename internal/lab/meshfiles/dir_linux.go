package meshfiles

import (
	"os"
	"syscall"
)

const (
	sharedMemory = "/dev/shm"
	memoryEnough = 1 << 30 // bytes
)

// parentDir returns the parent of a run's directory: in memory, if there is space and TMPDIR is not set; empty: the default
// for temporary files. A disk would take part in changes: ext4 writes a file to disk when it replaces another one by rename,
// which adds 1 ms to the next change.
func parentDir() string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(sharedMemory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < memoryEnough { //nolint:gosec // sizes of blocks are not negative
		return ""
	}
	return sharedMemory
}
