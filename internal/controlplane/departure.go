package controlplane

import (
	"context"

	"github.com/moonsail/moonsail/internal/departure"
	"github.com/moonsail/moonsail/internal/engine"
	"github.com/moonsail/moonsail/internal/jwks"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// binder tells of proxies that connect before they are bound.
type binder struct {
	*engine.Engine
	departures *departure.Keeper
	keys       *jwks.Keeper
	secrets    *kube.Credentials // nil: there are none to wait for
}

// Bind implements server.Binder.
func (b binder) Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) ([]*table.Table, func(), error) {
	if err := b.departures.Wait(ctx); err != nil {
		return nil, nil, err
	}
	b.departures.Connected(p)
	if err := b.keys.Wait(ctx); err != nil {
		return nil, nil, err
	}
	if b.secrets != nil {
		if err := b.secrets.Wait(ctx); err != nil {
			return nil, nil, err
		}
	}
	return b.Engine.Bind(ctx, p, rebind)
}
