package server

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// A proxy that starts gets the clusters on demand that its workload is known to use on its stream of everything, with the
// clusters that precede what refers to them. Envoy is ready once it has them, so no request waits for them. A proxy that
// connects again lists what it has, and gets nothing more. Of large route configurations, it loads the shards of the same
// services at its start: their scopes are sent without "on_demand".

// learned returns what the workload of a proxy is known to use; nothing, if the proxy gets all clusters.
func (st *stream) learned(ctx context.Context, tables []*table.Table) Known {
	of := st.server.opts.Learned
	if of == nil || st.asked || st.protocol != ledger.Delta || len(tables) == 0 || !tables[0].OnDemand() {
		return Known{}
	}
	return of.Known(ctx, st.proxy)
}

// carryKnown makes the stream carry those of the known clusters that the proxy may use: its own outbound table has them.
// Others are left out: services may be gone, or no longer visible. The stream's lock is held.
func (st *stream) carryKnown(states []*table.State) {
	known := st.known
	st.known = Known{}
	if len(known.Clusters)+len(known.Hosts) == 0 || len(states) == 0 {
		return
	}
	st.warm = warmShards(states[0], &known)
	var carry []string
	for _, name := range known.Clusters {
		if e := states[0].Get(resource.Cluster, name); e != nil && e.IsOnDemand() {
			carry = append(carry, name)
		}
	}
	if len(known.Hosts) > 0 {
		byHost := onDemandByHost(states[0])
		for _, h := range known.Hosts {
			carry = append(carry, byHost[h]...)
		}
	}
	st.ledger.Carry(carry...)
}

// onDemandByHost returns the clusters on demand of each host. The streams of a state share the result.
func onDemandByHost(s *table.State) map[model.Host][]string {
	return s.Memo(byHostKey{}, func() any {
		out := map[model.Host][]string{}
		for e := range s.All(resource.Cluster) {
			if of, ok := resourcename.ParseCluster(e.Name); ok && e.IsOnDemand() {
				out[of.Host] = append(out[of.Host], e.Name)
			}
		}
		return out
	}).(map[model.Host][]string)
}

type byHostKey struct{}

// warmShards returns the scopes of the shards on demand in which Envoy looks up the names of known services.
func warmShards(s *table.State, known *Known) map[string]bool {
	forms := shardForms(s)
	if len(forms) == 0 {
		return nil
	}
	ports := map[model.Host][]string{} // empty: unknown
	for _, name := range known.Clusters {
		if of, ok := resourcename.ParseCluster(name); ok {
			ports[of.Host] = append(ports[of.Host], strconv.FormatUint(uint64(of.Port), 10))
		}
	}
	for _, h := range known.Hosts {
		ports[h] = nil
	}
	out := map[string]bool{}
	for host, at := range ports {
		for _, example := range forms {
			if rc := routeshard.RouteConfig(example); len(at) > 0 && isPort(rc) && !slices.Contains(at, rc) {
				continue // the routes of another port
			}
			if name, ok := routeshard.Sibling(example, string(host)); ok && s.Get(resource.Scope, name) != nil {
				out[name] = true
			}
		}
	}
	return out
}

func isPort(routeConfig string) bool {
	_, err := strconv.ParseUint(routeConfig, 10, 16)
	return err == nil
}

// shardForms returns the scope of one shard on demand of each form. The streams of a state share the result.
func shardForms(s *table.State) []string {
	return s.Memo(shardFormsKey{}, func() any {
		examples := map[string]string{}
		for e := range s.All(resource.Scope) {
			if routeshard.IsOnDemand(e.Name) {
				examples[e.Name[:strings.LastIndexByte(e.Name, '~')]] = e.Name
			}
		}
		return slices.Collect(maps.Values(examples))
	}).([]string)
}

type shardFormsKey struct{}

// learn reports the clusters that a request asks for, once the ledger has admitted it. The stream's lock is held.
func (st *stream) learn(r *ledger.Request) {
	of := st.server.opts.Learned
	if of == nil || !st.asked || len(r.Subscribe) == 0 || len(st.tables) == 0 {
		return
	}
	state := st.tables[0].State()
	had := map[string]bool{} // of the names that the request lists, those in the table
	for _, nv := range r.Initial {
		if e := state.GetBytes(resource.Cluster, nv.Name); e != nil {
			had[e.Name] = true
		}
	}
	var fresh, again []string
	for _, name := range r.Subscribe {
		e := state.GetBytes(resource.Cluster, name)
		switch {
		case e == nil || !e.IsOnDemand():
		case had[e.Name]:
			again = append(again, e.Name)
		default:
			fresh = append(fresh, e.Name)
		}
	}
	if len(fresh) > 0 {
		of.Asked(st.proxy, fresh, false)
	}
	if len(again) > 0 {
		of.Asked(st.proxy, again, true)
	}
}
