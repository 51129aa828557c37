package session

import (
	"errors"
	"os"
	"syscall"
)

// writeAllocated is os.WriteFile, but allocates the blocks before it writes. Otherwise ext4 (auto_da_alloc) writes the
// file to disk when it replaces another one by rename, which takes 1 ms instead of 0.05 ms.
func writeAllocated(path string, b []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_ = syscall.Fallocate(int(f.Fd()), 0, 0, int64(len(b))) // best effort: not all file systems support it
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
