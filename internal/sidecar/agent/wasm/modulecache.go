// Package wasm gives a sidecar's Envoy the plugins whose modules have to be fetched. Envoy asks the
// agent for a plugin's configuration (ECDS, over the agent's Unix socket); the agent asks the
// control plane for it by a stream of its own, fetches the module into a file, and answers with
// a configuration that names the file.
//
// A module that cannot be fetched, or whose server does not answer, holds up nothing but its plugin: what was in
// force stays, and a plugin that has nothing yet is what its failStrategy says: requests pass, or are denied. The
// control plane is told by a NACK, and it is tried again until it works.
package wasm

import (
	"context"
	"log/slog"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// Options of a Keeper.
type Options struct {
	Dial  func() (*grpc.ClientConn, error) // to the control plane; each stream has a connection of its own
	Node  *corev3.Node
	Cache *Cache
	Log   *slog.Logger
}

// ModuleCache has the plugins that Envoy may ask for. Run does the work; the rest may be called from
// anywhere.
type ModuleCache struct {
	Options
	feed feed // Run's

	wanted chan struct{} // closed once Envoy has asked for a plugin
	ask    sync.Once     // guards wanted's end
	again  chan struct{} // holds one token where the control plane is to be told of a refusal

	mu      sync.Mutex // guards what follows
	served  map[string]*served
	changed chan struct{} // closed, and made anew, when what is served changes
	refused map[string]refusal
}

// served is what there is by a plugin's name.
type served struct {
	version  string // the control plane's
	config   *anypb.Any
	fallback *anypb.Any // what failStrategy says; config is that where there is no module
	standIn  bool       // there is no module
	release  func()     // of the module; nil: there is none

	// The keeper's lock guards these.
	offered, taken, refused bool    // Envoy was sent it, has accepted it, has rejected it
	before                  *served // the previous version that Envoy has accepted or not answered yet; nil after this one is accepted
}

// inForce is what Envoy is to have. What it refuses it keeps all the same, and refuses each new listener for
// it that names the plugin (1.40: the subscription's last configuration is set before it is tried). So it is given
// again what it took before, else what failStrategy says.
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

// free lets go of modules.
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

// refusal is what Envoy said of a plugin.
type refusal struct{ version, message string }

// New makes a keeper of no plugins.
func New(o Options) *ModuleCache {
	k := &ModuleCache{
		Options: o, wanted: make(chan struct{}), again: make(chan struct{}, 1),
		served: map[string]*served{}, changed: make(chan struct{}), refused: map[string]refusal{},
	}
	k.feed = feed{
		keeper: k, patience: fetchPatience, ended: make(chan struct{}, 1),
		versions: map[string]string{}, fetching: map[string]*attempt{}, failed: map[string]*failure{},
	}
	return k
}

// Run works until ctx ends. Nobody is asked for plugins before Envoy asks: most sidecars have none.
func (k *ModuleCache) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-k.wanted:
		k.feed.run(ctx)
	}
}

// want has Run begin.
func (k *ModuleCache) want() { k.ask.Do(func() { close(k.wanted) }) }

// get is what is served by a name, nil while there is nothing, and a channel that is closed when
// something changes.
func (k *ModuleCache) get(name string) (*served, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.served[name], k.changed
}

// give is get for Envoy, with the configuration in force. With offer set, the caller sends that configuration.
func (k *ModuleCache) give(name string, offer bool) (s *served, config *anypb.Any, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s = k.served[name]; s != nil {
		config = s.inForce()
		s.offered = s.offered || offer
	}
	return s, config, k.changed
}

// serve replaces what is served by a name; nil takes it away, and then nothing was in force before.
func (k *ModuleCache) serve(name string, s *served) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.served[name]; old != nil {
		if s != nil && !s.standIn {
			s.before = old.predecessor()
		} else {
			old.free()
		}
	}
	if s == nil {
		delete(k.served, name)
		delete(k.refused, name)
	} else {
		k.served[name] = s
	}
	k.tell()
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

// tell has who waits for a change look again. The lock is held.
func (k *ModuleCache) tell() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// accept records Envoy's ACK of a version and frees the versions before it.
func (k *ModuleCache) accept(s *served) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.taken {
		return
	}
	s.taken = true
	if s.before != nil {
		s.before.free()
		s.before = nil
	}
	k.tell() // a refused successor falls back to it
}

// refusalOf is what Envoy said of a version of a plugin; empty: nothing.
func (k *ModuleCache) refusalOf(name, version string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.refused[name]; r.version == version {
		return r.message
	}
	return ""
}

// refuse records Envoy's NACK of a version, and has Run report it to the control plane. A successor does not fall
// back to that version.
func (k *ModuleCache) refuse(name string, s *served, message string) {
	k.mu.Lock()
	s.refused = true
	k.refused[name] = refusal{s.version, message}
	for next := k.served[name]; next != nil; next = next.before {
		if next.before == s {
			next.before = s.before
			s.before = nil
			s.free()
		}
	}
	k.tell()
	k.mu.Unlock()
	select {
	case k.again <- struct{}{}:
	default: // the pending report covers it
	}
}
