//go:build !linux

package propagation

import "os"

// writeAllocated is os.WriteFile: what it does more is for ext4.
func writeAllocated(path string, b []byte, mode os.FileMode) error {
	return os.WriteFile(path, b, mode)
}
