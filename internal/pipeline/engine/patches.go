package engine

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// This file translates the types of resources that EnvoyFilters can patch.

// replacePatches puts the patches of a delta in force, for this delta and all later ones of the proxy group.
func (t *translation) replacePatches(g *group, d *derive.Delta) {
	if d.Patches != nil {
		t.repatched = true
		patches, problems := envoyfilter.New(d.Patches)
		patches.Keep(g.patches)
		g.patches = patches
		for _, p := range problems {
			t.leftOut(envoyFilters, p.Origin.String(), []envoyfilter.Problem{p})
		}
	}
	t.patches = g.patches.Noting(t.patchedBy.Add)
}

// leftOut records patches that are not applied to a resource.
func (t *translation) leftOut(typ, name string, problems []envoyfilter.Problem) {
	for _, p := range problems {
		t.failure(typ, name, patchLeftOut, p.Error())
	}
}

// replaceUnfetched records the plugins whose modules no agent of the proxy group fetches.
func (t *translation) replaceUnfetched(d *derive.Delta) {
	t.replugged = d.Unfetched != nil
	for _, name := range d.Unfetched {
		t.failure(wasmPlugins, name, notFetched,
			"the agents of these proxies are too old to fetch modules: failStrategy decides for all requests")
	}
}

// The functions below translate an IR value and apply the patches of the proxy group. A nil message means
// that a patch removes the resource.

func (t *translation) cluster(v *ir.Cluster) (proto.Message, error) {
	m, err := cluster.Translate(v)
	if err != nil || v.Added != nil {
		return signed(m, v.Added, err)
	}
	m, present, problems := t.patches.Cluster(v, m)
	t.leftOut(resource.Cluster.String(), v.Name, problems)
	return messageIf(present, m)
}

func (t *translation) listener(v *ir.Listener) (proto.Message, error) {
	m, err := listener.Translate(v)
	if err != nil || v.Added != nil {
		return signed(m, v.Added, err)
	}
	m, present, problems := t.patches.Listener(v, m)
	t.leftOut(resource.Listener.String(), v.Name, problems)
	return messageIf(present, m)
}

func (t *translation) virtualHost(v *ir.VirtualHost) (proto.Message, error) {
	translate := route.VirtualHost
	if t.patches.ChangesForwarding(v) {
		translate = route.VirtualHostForPatches
	}
	m, refused, err := translate(v)
	if len(refused) > 0 && t.keepsVirtualHost(v) {
		return nil, errors.Join(refused...)
	}
	if v.Added != nil {
		t.patches.Adds(v.Added)
		return signed(m, v.Added, err)
	}
	if err != nil {
		return nil, err
	}
	m, present, problems := t.patches.VirtualHost(v.Of, v.Name, m)
	t.leftOut(resource.VirtualHost.String(), v.ResourceName(), problems)
	if len(refused) > 0 {
		t.fail(resource.VirtualHost, v.ResourceName(), routesRefused, errors.Join(refused...))
	}
	return messageIf(present, m)
}

// routeConfig records the patches that are left out, also for vhdsRouteConfig.
func (t *translation) routeConfig(v *ir.RouteConfig) (proto.Message, error) {
	m, problems := t.patches.RouteConfig(v.Of, route.Config(*v, false))
	t.leftOut(resource.RouteConfig.String(), v.Name, problems)
	return m, nil
}

func (t *translation) vhdsRouteConfig(v *ir.RouteConfig) (proto.Message, error) {
	m, _ := t.patches.RouteConfig(v.Of, route.Config(*v, true))
	return m, nil
}

// keepsVirtualHost reports whether the table's version of a virtual host stays although some new routes are refused: all
// routes belong to one object, and that version is made from a valid one of it. Several objects can share a virtual host of
// a gateway, and keeping it would hold back the routes of the others.
func (t *translation) keepsVirtualHost(v *ir.VirtualHost) bool {
	entry := t.table.State().Get(resource.VirtualHost, v.ResourceName())
	if entry == nil || t.key.Type == model.ProxyRouter {
		return false
	}
	for i := range v.Routes {
		if v.Routes[i].Origin != v.Routes[0].Origin {
			return false
		}
	}
	return entry.MadeFrom().Has(v.Routes[0].Origin) && !t.failures.refusesRoutes(t.key, v.ResourceName())
}

// signed writes the EnvoyFilter that adds a resource into its metadata. No other patch changes such a resource.
func signed(m proto.Message, p *ir.Patch, err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	envoyfilter.Sign(m, p.Origin)
	return m, nil
}

func messageIf(present bool, m proto.Message) (proto.Message, error) {
	if !present {
		return nil, nil
	}
	return m, nil
}
