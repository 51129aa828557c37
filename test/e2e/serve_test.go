package e2e

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// resources are what a proxy gets, by type.
type resources map[resource.Type][]*resource.Encoded

// world serves one table, which tests fill, to every client that connects.
type world struct {
	t      *testing.T
	server *server.Server
	socket string
	table  *table.Table

	// Touched only by the test.
	rev  model.Revision
	have map[resource.Type]map[string]*resource.Encoded
}

func (*world) AddShards(context.Context, *model.Proxy, []string) error { return nil }

// Bind implements server.Binder.
func (w *world) Bind(context.Context, *model.Proxy, func([]*table.Table)) ([]*table.Table, func(), error) {
	return []*table.Table{w.table}, nil, nil
}

// serveWorld serves a table until the test ends.
func serveWorld(t *testing.T, strategy server.RouteStrategy) *world {
	t.Helper()
	w := &world{t: t, table: table.New("world"), have: map[resource.Type]map[string]*resource.Encoded{}}
	w.socket = filepath.Join(shortDir(t), "xds")
	w.server = server.New(w, silent{}, slog.New(slog.DiscardHandler), server.Options{RouteStrategy: strategy, Senders: 1})
	xds := w.server.NewPortServer(transport(strategy), server.Port{})
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", w.socket)
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = xds.Serve(ln) })
	t.Cleanup(func() {
		xds.Stop()
		serving.Wait()
		w.server.Close()
	})
	return w
}

// set replaces the world by r. It commits the differences at once.
func (w *world) set(r resources) {
	var updates []table.Update
	for typ := range resource.NumTypes {
		now := map[string]*resource.Encoded{}
		for _, e := range r[typ] {
			if typ == resource.RouteConfig {
				e = header(w.t, e)
			}
			now[e.Name] = e
			updates = append(updates, table.Update{Type: typ, Name: e.Name, Resource: e})
		}
		for name := range w.have[typ] {
			if now[name] == nil {
				updates = append(updates, table.Update{Type: typ, Name: name})
			}
		}
		w.have[typ] = now
	}
	w.rev++
	w.table.Commit(w.rev, updates)
	w.server.Publish(w.rev, []*table.Table{w.table})
}

// header returns a route configuration without its virtual hosts, which the table adds.
func header(t *testing.T, e *resource.Encoded) *resource.Encoded {
	t.Helper()
	m := decode(t, e).(*routev3.RouteConfiguration)
	m.VirtualHosts = nil
	out, err := resource.Encode(resource.RouteConfig, e.Name, m)
	require.NoError(t, err)
	return out
}

// idle reports whether a proxy has subscribed to listeners, and nothing is in flight.
func idle(p server.ProxyState) bool {
	listeners := false
	for _, s := range p.Types {
		if !s.InFlightSince.IsZero() || s.Waiting != "" {
			return false
		}
		listeners = listeners || s.Type == "LDS" && s.ACKed > 0
	}
	return listeners
}

// held returns the resources that a proxy refused.
func held(p server.ProxyState) []server.Held {
	var out []server.Held
	for _, s := range p.Types {
		out = append(out, s.Held...)
	}
	return out
}

// silent observes nothing.
type silent struct{}

func (silent) Published(model.Revision, int, time.Time)                                {}
func (silent) Sent(model.Revision, time.Time)                                          {}
func (silent) Settled(model.Revision, model.Revision, distribution.Outcome, time.Time) {}
