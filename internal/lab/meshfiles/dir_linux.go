package meshfiles

import (
	"os"
	"syscall"
)

const (
	sharedMemory = "/dev/shm"
	memoryEnough = 1 << 30 // bytes
)

// parentDir is where a run's directory is made: in memory where there is room and TMPDIR does not say otherwise;
// empty: where temporary files are. Disks take part in changes: ext4 writes a file out as it is renamed over another one,
// which takes 1 ms of the next change.
func parentDir() string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(sharedMemory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < memoryEnough { //nolint:gosec // sizes of blocks are not negative
		return ""
	}
	return sharedMemory
}
