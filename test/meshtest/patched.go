package meshtest

import (
	"errors"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
)

// patched translates an IR, and applies the patches of a proxy group as the engine does.
type patched struct{ set *envoyfilter.Set }

func (p patched) cluster(v *ir.Cluster) (*clusterv3.Cluster, bool, error) {
	m, err := cluster.Translate(v)
	if err != nil || v.Added != nil {
		return m, true, err
	}
	m, there, _ := p.set.Cluster(v, m)
	return m, there, nil
}

func (p patched) listener(v *ir.Listener) (*listenerv3.Listener, bool, error) {
	m, err := listener.Translate(v)
	if err != nil || v.Added != nil {
		return m, true, err
	}
	m, there, _ := p.set.Listener(v, m)
	return m, there, nil
}

func (p patched) virtualHost(v *ir.VirtualHost) (*routev3.VirtualHost, bool, error) {
	translate := route.VirtualHost
	if p.set.ChangesForwarding(v) {
		translate = route.VirtualHostForPatches
	}
	m, refused, err := translate(v)
	if err = errors.Join(append(refused, err)...); err != nil || v.Added != nil {
		return m, true, err
	}
	m, there, _ := p.set.VirtualHost(v.Of, v.Name, m)
	return m, there, nil
}
