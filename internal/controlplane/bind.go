package controlplane

import (
	"context"
	"errors"

	"github.com/moonsail/moonsail/internal/controlplane/drain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/source/jwks"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// binder binds proxies to the engine once drain notices, token keys and Secrets are known.
type binder struct {
	*engine.Engine
	drains  *drain.Registry
	keys    *jwks.Cache
	secrets *kube.Credentials // nil: the source is not Kubernetes
	opts    *Options
	metrics *changelog.Metrics
}

// Bind implements server.Binder.
func (b binder) Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) ([]*table.Table, func(), error) {
	if err := b.drains.Wait(ctx); err != nil {
		return nil, nil, err
	}
	b.drains.Connected(p)
	if err := b.keys.Wait(ctx); err != nil {
		return nil, nil, err
	}
	if b.secrets != nil {
		if err := b.secrets.Wait(ctx); err != nil {
			return nil, nil, err
		}
	}
	tables, release, err := b.Engine.Bind(ctx, p, rebind)
	return tables, release, b.noteLimit(p, err)
}

// AddShards implements server.Binder.
func (b binder) AddShards(ctx context.Context, p *model.Proxy, routeConfigs []string) error {
	return b.noteLimit(p, b.Engine.AddShards(ctx, p, routeConfigs))
}

// noteLimit counts and logs proxies whose identity has reached its limit of groups, and returns a gRPC status.
func (b binder) noteLimit(p *model.Proxy, err error) error {
	var many *engine.TooManyGroups
	if !errors.As(err, &many) {
		return err
	}
	b.metrics.GroupsRefused()
	b.opts.Log.Warn("proxy refused", "proxy", p.ID, "error", err)
	return server.Exhausted("%v", err)
}
