package wasm

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/security/safedial"
)

// Bounds of the cache.
const (
	maxModule  = 256 << 20 // bytes of one module, as in Istio
	maxCache   = 1 << 30   // bytes of all modules
	keepUnused = 24 * time.Hour
	maxKnown   = 1024 // modules, and versions with pull policy Always, with a known sum; others are fetched again
	maxFetches = 8    // from one server at the same time, so that a slow server does not delay another
)

// Cache keeps modules in a folder, in files named by their SHA-256. It is safe for concurrent use.
type Cache struct {
	dir       string
	transport http.RoundTripper
	metrics   *Metrics

	// Bounds and retry intervals, which tests change.
	maxModule, maxCache int64
	attempts            int
	attemptTime, pause  time.Duration

	mu    sync.Mutex       // guards the fields below
	files map[string]*kept // by SHA-256
	known map[Module]found
}

// found is the result of a fetch.
type found struct {
	sum  string
	used time.Time
}

// kept is a module in the folder.
type kept struct {
	size  int64
	used  time.Time
	users int // plugins in force that use it; it is not removed
}

// NewCache creates a folder, or uses the modules that an earlier cache left in it.
func NewCache(dir string, dialer safedial.Dialer, metrics *Metrics) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Envoy may be another user
		return nil, fmt.Errorf("folder for modules: %w", err)
	}
	transport, _ := http.DefaultTransport.(*http.Transport)
	transport = transport.Clone()
	transport.MaxConnsPerHost, transport.DialContext = maxFetches, dialer.Dial
	c := &Cache{
		dir: dir, transport: transport, metrics: metrics, maxModule: maxModule, maxCache: maxCache,
		attempts: 3, attemptTime: 30 * time.Second, pause: 500 * time.Millisecond,
		files: map[string]*kept{}, known: map[Module]found{},
	}
	return c, c.load()
}

// load finds the modules in the folder, and removes incomplete files.
func (c *Cache) load() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("folder for modules: %w", err)
	}
	for _, e := range entries {
		sum, isModule := strings.CutSuffix(e.Name(), moduleSuffix)
		info, err := e.Info()
		switch {
		case err != nil || !e.Type().IsRegular():
		case strings.HasPrefix(e.Name(), partPrefix):
			_ = os.Remove(filepath.Join(c.dir, e.Name()))
		case isModule && len(sum) == 64:
			c.files[sum] = &kept{size: info.Size(), used: info.ModTime()}
		}
	}
	return nil
}

const (
	moduleSuffix = ".wasm"
	partPrefix   = ".part-"
)

func (c *Cache) path(sum string) string { return filepath.Join(c.dir, sum+moduleSuffix) }

// Get returns the file of a module, and fetches the module if it is missing. The file stays until release.
func (c *Cache) Get(ctx context.Context, m Module) (path string, release func(), err error) {
	if sum := c.find(m); sum != "" {
		c.metrics.had()
		return c.path(sum), func() { c.release(sum) }, nil
	}
	sum, size, part, err := c.fetch(ctx, m)
	c.metrics.fetched(err)
	if err != nil {
		return "", nil, err
	}
	if err := c.add(m, sum, size, part); err != nil {
		return "", nil, errors.Join(err, os.Remove(part))
	}
	return c.path(sum), func() { c.release(sum) }, nil
}

// find returns the sum of a module in the folder, and counts a use.
func (c *Cache) find(m Module) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.known[key(m)].sum
	if sum == "" && !m.Anew && !isImage(m.URL) {
		sum = m.SHA256 // fetched by an earlier agent
	}
	f := c.files[sum]
	if f == nil {
		return ""
	}
	f.users++ // it stays while it is read
	if c.known[key(m)].sum == "" && !c.intact(sum) {
		if f.users--; f.users == 0 {
			delete(c.files, sum)
		}
		return ""
	}
	c.use(m, sum)
	return sum
}

// intact reads a file of up to maxModule bytes. mu is held, except while it reads.
func (c *Cache) intact(sum string) bool {
	c.mu.Unlock()
	defer c.mu.Lock()
	return holds(c.path(sum), sum)
}

// key is equal for modules that can replace each other.
func key(m Module) Module {
	m.Login = ""
	if !m.Anew {
		m.Version = ""
	}
	return m
}

// add moves a fetched file into the cache, after making room for it.
func (c *Cache) add(m Module, sum string, size int64, part string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[sum]
	if f == nil {
		if !c.makeRoom(size) {
			return fmt.Errorf("%d bytes do not fit beside the modules in use: the limit is %d bytes", size, c.maxCache)
		}
		f = &kept{size: size}
	}
	if err := os.Rename(part, c.path(sum)); err != nil {
		return fmt.Errorf("cannot be stored: %w", err)
	}
	f.users++
	c.files[sum] = f
	c.use(m, sum)
	return nil
}

// use records a use of a module in the folder. mu is held.
func (c *Cache) use(m Module, sum string) {
	now := time.Now()
	c.files[sum].used, c.known[key(m)] = now, found{sum, now}
	if len(c.known) <= maxKnown {
		return
	}
	oldest := key(m)
	for other, k := range c.known {
		if k.used.Before(c.known[oldest].used) {
			oldest = other
		}
	}
	delete(c.known, oldest)
}

// makeRoom removes the modules that were unused for longest. mu is held.
func (c *Cache) makeRoom(size int64) bool {
	total := size
	var unused []string
	for sum, f := range c.files {
		total += f.size
		if f.users == 0 {
			unused = append(unused, sum)
		}
	}
	slices.SortFunc(unused, func(a, b string) int {
		return cmp.Or(c.files[a].used.Compare(c.files[b].used), strings.Compare(a, b))
	})
	for _, sum := range unused {
		if total <= c.maxCache {
			break
		}
		total -= c.files[sum].size
		c.remove(sum)
	}
	return total <= c.maxCache
}

// remove removes a module. mu is held.
func (c *Cache) remove(sum string) {
	_ = os.Remove(c.path(sum))
	delete(c.files, sum)
	for m, k := range c.known {
		if k.sum == sum {
			delete(c.known, m)
		}
	}
}

// release ends a use of a module.
func (c *Cache) release(sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.files[sum]; f != nil {
		f.users, f.used = f.users-1, time.Now()
	}
}

// Expire removes modules that were unused for a day.
func (c *Cache) Expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sum, f := range c.files {
		if f.users == 0 && now.Sub(f.used) > keepUnused {
			c.remove(sum)
		}
	}
}

// Close closes idle connections.
func (c *Cache) Close() {
	if t, ok := c.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// holds reports whether a file's content matches the sum in its name.
func holds(path, sum string) bool {
	got, err := sumOf(path)
	return err == nil && hex.EncodeToString(got) == sum
}
