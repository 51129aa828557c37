//go:build !linux

package session

import "os"

// writeAllocated is os.WriteFile; the allocation is for ext4 on Linux.
func writeAllocated(path string, b []byte, mode os.FileMode) error {
	return os.WriteFile(path, b, mode)
}
