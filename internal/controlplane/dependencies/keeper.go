package dependencies

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/logonce"
)

// Store keeps what is remembered. Several control planes may share one.
type Store interface {
	// Place names it for people.
	Place() string
	// Watch calls see with what is stored, at first and after each change, until ctx ends. data is empty if nothing is
	// stored. One call follows the other.
	Watch(ctx context.Context, see func(data []byte, version string)) error
	// Write replaces what is stored. If that has another version than the given one, the result is ErrChanged.
	Write(ctx context.Context, data []byte, version string) (newVersion string, err error)
}

// ErrChanged is why a Store was not written: another control plane wrote it.
var ErrChanged = errors.New("it has changed")

// Times of writes.
const (
	gather       = time.Second // between news and the write, so that it has all of a start
	writeTimeout = 10 * time.Second
	writeAgain   = 10 * time.Second // after a failure
)

// Keeper keeps a Memory in a Store.
type Keeper struct {
	Memory *Memory
	Store  Store // nil: nothing is kept
	Log    *slog.Logger

	mu      sync.Mutex // guards version
	version string
}

// Run reads and writes the store until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	if k.Store == nil {
		k.Memory.setLoaded()
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		if err := k.Store.Watch(ctx, k.see); err != nil && ctx.Err() == nil {
			k.Log.Warn("learned dependencies: not kept: they are lost when the control plane ends", "in", k.Store.Place(), "error", err)
			k.Memory.setLoaded()
		}
	})
	select {
	case <-k.Memory.loaded: // a write before would replace what is stored
	case <-ctx.Done():
		return
	}
	k.write(ctx)
}

// Unreadable is called when the store cannot be read.
func (k *Keeper) Unreadable(err error) {
	k.Log.Warn("learned dependencies: cannot be read: proxies start without them, and the read is repeated", "in", k.Store.Place(), "error", err)
}

// see takes what is stored. It sets the version after the memory has the content: a write of that version has all of it.
func (k *Keeper) see(data []byte, version string) {
	defer k.Memory.setLoaded()
	k.mu.Lock()
	known := k.version == version
	k.mu.Unlock()
	if !known {
		k.take(data)
	}
	k.mu.Lock()
	k.version = version
	k.mu.Unlock()
}

// take adds what is stored to the memory.
func (k *Keeper) take(data []byte) {
	if len(data) == 0 {
		return
	}
	list, err := unpack(data)
	if err != nil {
		k.Log.Warn("learned dependencies: what is stored cannot be read, and is replaced", "in", k.Store.Place(), "error", err)
		return
	}
	k.Memory.merge(list)
}

// write writes what is new until ctx ends.
func (k *Keeper) write(ctx context.Context) {
	var errs logonce.Errors
	for {
		select {
		case <-k.Memory.news:
		case <-ctx.Done():
			k.last(ctx)
			return
		}
		if clock.Sleep(ctx, gather) != nil {
			k.last(ctx)
			return
		}
		err := k.once(ctx)
		switch {
		case err == nil:
			errs.First(nil)
		case errors.Is(err, ErrChanged):
			k.Memory.again() // Watch brings what the other one wrote
		case ctx.Err() == nil:
			if errs.First(err) {
				k.Log.Warn("learned dependencies: not written: the write is repeated", "in", k.Store.Place(), "error", err)
			}
			k.Memory.again()
			_ = clock.Sleep(ctx, writeAgain) // the next turn sees the end of ctx
		}
	}
}

// last writes what is new when the control plane ends.
func (k *Keeper) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := k.once(ctx); err != nil {
		k.Log.Debug("learned dependencies: not written at the end", "in", k.Store.Place(), "error", err)
	}
}

// once writes what is new.
func (k *Keeper) once(ctx context.Context) error {
	k.mu.Lock()
	version := k.version // before the content, see there
	k.mu.Unlock()
	list, data, err := k.Memory.encode()
	if data == nil || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	next, err := k.Store.Write(ctx, data, version)
	if err != nil {
		return err
	}
	k.mu.Lock()
	if k.version == version {
		k.version = next
	}
	k.mu.Unlock()
	k.Memory.wrote(list)
	return nil
}

// again repeats a write that failed.
func (m *Memory) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wantsWrite()
}
