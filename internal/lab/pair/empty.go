package pair

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Empty is an Envoy with an admin interface and no other configuration. The memory of others is compared with it.
type Empty struct {
	process *envoy.Process
	dir     string
}

// StartEmpty starts an Empty, and waits until it is ready.
func StartEmpty(ctx context.Context, path string, concurrency int) (*Empty, error) {
	dir, err := os.MkdirTemp("", "moonsail-empty-")
	if err != nil {
		return nil, err
	}
	e := &Empty{dir: dir}
	if err := e.start(ctx, path, concurrency); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

func (e *Empty) start(ctx context.Context, path string, concurrency int) (err error) {
	socket, bootstrap := filepath.Join(e.dir, "admin"), filepath.Join(e.dir, "envoy.json")
	text := fmt.Sprintf(`{"admin": {"address": {"pipe": {"path": %q}}}}`, socket)
	if err := os.WriteFile(bootstrap, []byte(text), 0o600); err != nil {
		return err
	}
	if e.process, err = envoy.Start(envoy.Options{Path: path, Bootstrap: bootstrap, Concurrency: concurrency, LogLevel: "error", Output: io.Discard}); err != nil {
		return err
	}
	admin := envoy.NewAdmin("unix://" + socket)
	defer admin.Close()
	return until(ctx, readyTime, "an empty Envoy", admin.Ready)
}

// Measure implements experiment.Subject. It measures memory.
func (e *Empty) Measure(context.Context, experiment.Round) (experiment.Sample, error) {
	m, err := child.MemoryOf(e.process.Pid())
	return experiment.Sample{"rss": float64(m.RSS) / (1 << 20)}, err
}

// Stop ends the process.
func (e *Empty) Stop() {
	if e.process != nil {
		e.process.Stop(time.Second)
	}
	_ = os.RemoveAll(e.dir) // the system removes it in the end
}
