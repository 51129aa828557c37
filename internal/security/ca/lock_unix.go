//go:build unix

package ca

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// lockEvery is the interval of attempts to get a lock, which other processes hold for some writes.
const lockEvery = 10 * time.Millisecond

// lock takes a file's lock, which ends with unlock or with the process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = clock.Sleep(ctx, lockEvery)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
}
