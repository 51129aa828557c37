package propagation

import (
	"errors"
	"os"
	"syscall"
)

// writeAllocated is os.WriteFile of a file that has its blocks before its content. One that has none yet is written
// out by ext4 (auto_da_alloc) when it is renamed to where another is: that takes 1 ms, without it 0.05.
func writeAllocated(path string, b []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_ = syscall.Fallocate(int(f.Fd()), 0, 0, int64(len(b))) // where the file system cannot, renaming takes what it takes
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
