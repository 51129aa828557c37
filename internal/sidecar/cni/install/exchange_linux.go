package install

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exchange gives each of two files the name of the other. A file system without this operation replaces the second by
// the first, which then has the content of the second.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	return exchangeInSteps(a, b)
}

// exchangeInSteps is not atomic for a, but for b.
func exchangeInSteps(a, b string) error {
	kept := a + ".kept"
	if err := os.Link(b, kept); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		_ = os.Remove(kept)
		return err
	}
	return os.Rename(kept, a)
}
