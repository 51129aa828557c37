package session

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// dialTime is the time limit for a connection to a running control plane.
const dialTime = 5 * time.Second

// CheckExternal reports before the run if the control plane of --target cannot be measured.
func CheckExternal(ctx context.Context, address string, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--target %s: no control plane answers: start it first: %w", address, err)
	}
	_ = c.Close() // nothing was sent
	if pid == 0 {
		return nil
	}
	if _, err := child.MemoryOf(pid); err != nil {
		return fmt.Errorf("--target ...,pid=%d: the process cannot be measured: %w", pid, err)
	}
	return nil
}
