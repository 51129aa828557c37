// Package wasm serves plugins whose modules must be fetched to a sidecar's Envoy. Envoy requests a plugin's
// configuration from the agent (ECDS, over the agent's Unix socket). The agent requests it from the control plane on a
// stream of its own, fetches the module into a file, and answers with a configuration that names the file.
//
// A module that cannot be fetched, or whose server does not answer, affects only its plugin: the version before stays
// in force. A plugin without one follows its failStrategy: requests pass, or are denied. The control plane gets a NACK,
// and the agent retries until it succeeds.
package wasm

import (
	"context"
	"log/slog"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// Options of a ModuleCache.
type Options struct {
	Dial  func() (*grpc.ClientConn, error) // a connection to the control plane for one stream
	Node  *corev3.Node
	Cache *Cache
	Log   *slog.Logger
}

// ModuleCache serves plugins to Envoy. Run does the work; the other methods may be called from any goroutine.
type ModuleCache struct {
	Options
	feed feed // used by Run only

	wanted chan struct{} // closed when Envoy has requested a plugin
	ask    sync.Once     // closes wanted
	again  chan struct{} // holds one token if the control plane needs the report of a refusal

	mu      sync.Mutex // guards the fields below
	served  map[string]*served
	changed chan struct{} // closed and replaced when a plugin changes
	refused map[string]refusal
}

// served is one version of a plugin.
type served struct {
	version  string // of the control plane's resource
	config   *anypb.Any
	fallback *anypb.Any // the effect of failStrategy; equal to config without a module
	standIn  bool       // there is no module
	release  func()     // releases the module; nil: there is none

	// The lock of ModuleCache guards these.
	offered, taken, refused bool    // sent to Envoy, ACKed by it, NACKed by it
	before                  *served // the version before, which Envoy has accepted or not answered; nil after this one is accepted
}

// inForce returns the configuration for Envoy. After a NACK Envoy 1.40 keeps the refused configuration and refuses each
// new listener that names the plugin, because it stores the subscription's last configuration before trying it. It
// therefore gets the version that it accepted before, else the effect of failStrategy.
func (s *served) inForce() *anypb.Any {
	if !s.refused {
		return s.config
	}
	for old := s.before; old != nil; old = old.before {
		if old.taken {
			return old.config
		}
	}
	return s.fallback
}

// free releases the modules.
func (s *served) free() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
	if s.before != nil {
		s.before.free()
		s.before = nil
	}
}

// refusal is Envoy's NACK of a plugin.
type refusal struct{ version, message string }

// New returns a ModuleCache without plugins.
func New(o Options) *ModuleCache {
	c := &ModuleCache{
		Options: o, wanted: make(chan struct{}), again: make(chan struct{}, 1),
		served: map[string]*served{}, changed: make(chan struct{}), refused: map[string]refusal{},
	}
	c.feed = feed{
		cache: c, patience: fetchPatience, ended: make(chan struct{}, 1),
		versions: map[string]string{}, fetching: map[string]*attempt{}, failed: map[string]*failure{},
	}
	return c
}

// Run works until ctx ends. It connects to the control plane when Envoy requests a plugin: most sidecars have none.
func (c *ModuleCache) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.wanted:
		c.feed.run(ctx)
	}
}

// want starts Run's work.
func (c *ModuleCache) want() { c.ask.Do(func() { close(c.wanted) }) }

// get returns the version that is served under a name, nil if there is none, and a channel that is closed at the next
// change.
func (c *ModuleCache) get(name string) (*served, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served[name], c.changed
}

// give is get for Envoy, with the configuration in force. With offer, the caller sends that configuration.
func (c *ModuleCache) give(name string, offer bool) (s *served, config *anypb.Any, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s = c.served[name]; s != nil {
		config = s.inForce()
		s.offered = s.offered || offer
	}
	return s, config, c.changed
}

// serve replaces the version under a name. nil removes it, and a later version then has no predecessor.
func (c *ModuleCache) serve(name string, s *served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.served[name]; old != nil {
		if s != nil && !s.standIn {
			s.before = old.predecessor()
		} else {
			old.free()
		}
	}
	if s == nil {
		delete(c.served, name)
		delete(c.refused, name)
	} else {
		c.served[name] = s
	}
	c.wake()
}

// predecessor returns the version that a successor of s falls back to, nil if there is none, and frees the versions
// after it. Envoy's answer to a version that it was sent may arrive after its successor is served: until then the
// version keeps its module.
func (s *served) predecessor() *served {
	if s.offered && !s.standIn && !s.refused {
		return s
	}
	out := s.before
	s.before = nil
	s.free()
	return out
}

// wake wakes the streams that wait for a change. The lock is held.
func (c *ModuleCache) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// accept records Envoy's ACK of a version and frees the versions before it.
func (c *ModuleCache) accept(s *served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.taken {
		return
	}
	s.taken = true
	if s.before != nil {
		s.before.free()
		s.before = nil
	}
	c.wake() // a refused successor falls back to it
}

// refusalOf returns Envoy's error for a version of a plugin; empty: none.
func (c *ModuleCache) refusalOf(name, version string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.refused[name]; r.version == version {
		return r.message
	}
	return ""
}

// refuse records Envoy's NACK of a version, and makes Run report it to the control plane. A successor does not fall
// back to that version.
func (c *ModuleCache) refuse(name string, s *served, message string) {
	c.mu.Lock()
	s.refused = true
	c.refused[name] = refusal{s.version, message}
	for next := c.served[name]; next != nil; next = next.before {
		if next.before == s {
			next.before = s.before
			s.before = nil
			s.free()
		}
	}
	c.wake()
	c.mu.Unlock()
	select {
	case c.again <- struct{}{}:
	default: // the pending report covers it
	}
}
