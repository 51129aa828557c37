package meshfiles

import "os"

// TempDir creates a run's directory, in memory if there is space. The caller removes it.
func TempDir(pattern string) (string, error) {
	if dir, err := os.MkdirTemp(parentDir(), pattern); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", pattern)
}
