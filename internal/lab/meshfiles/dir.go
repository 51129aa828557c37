package meshfiles

import "os"

// TempDir makes a run's directory, to be removed by the caller: in memory where there is room.
func TempDir(pattern string) (string, error) {
	if dir, err := os.MkdirTemp(parentDir(), pattern); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", pattern)
}
