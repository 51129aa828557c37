package endpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

func at(locality string) model.Endpoint {
	return model.Endpoint{Locality: model.ParseLocality(locality)}
}

func labelled(version, region string) model.Endpoint {
	return model.Endpoint{Labels: map[string]string{"version": version}, Locality: model.Locality{Region: region}}
}

func onNode(node, locality string) model.Endpoint {
	return model.Endpoint{Node: node, Locality: model.ParseLocality(locality)}
}

func TestPriorities(t *testing.T) {
	off, on := false, true
	near := []model.Endpoint{at("r1/z1/s1"), at("r1/z1/s2"), at("r1/z2"), at("r2/z1/s1"), at("r3")}
	byLabel := []string{"topology.kubernetes.io/region", "version"}
	nodes := []model.Endpoint{onNode("n1", "r1/z1/s1"), onNode("n2", "r1/z1/s1"), onNode("n3", "r1/z1/s2"), onNode("n4", "r1/z2"), onNode("n5", "r2/z1/s1"), onNode("n1", "r3")}
	for name, c := range map[string]struct {
		client    string
		node      string
		near      model.Distribution
		labels    map[string]string
		set       *model.LocalityLB
		mesh      *model.LocalityLB
		outlier   bool
		endpoints []model.Endpoint
		want      []uint32
	}{
		"no outlier detection":           {client: "r1/z1/s1", endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"nearest first":                  {client: "r1/z1/s1", outlier: true, endpoints: near, want: []uint32{0, 1, 2, 3, 3}},
		"enabled":                        {client: "r1/z1/s1", outlier: true, set: &model.LocalityLB{Enabled: &on}, endpoints: near, want: []uint32{0, 1, 2, 3, 3}},
		"disabled":                       {client: "r1/z1/s1", outlier: true, set: &model.LocalityLB{Enabled: &off}, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"a client of nowhere":            {outlier: true, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"the region named goes before":   {client: "r1/z1/s1", outlier: true, set: &model.LocalityLB{Failover: []model.LocalityFailover{{From: "r1", To: "r3"}}}, endpoints: near, want: []uint32{0, 1, 2, 4, 3}},
		"another region's failover":      {client: "r1/z1/s1", outlier: true, set: &model.LocalityLB{Failover: []model.LocalityFailover{{From: "r2", To: "r3"}}}, endpoints: near, want: []uint32{0, 1, 2, 3, 3}},
		"no gaps":                        {client: "r1/z1/s1", outlier: true, endpoints: []model.Endpoint{at("r2"), at("r1/z2")}, want: []uint32{1, 0}},
		"all far":                        {client: "r9", outlier: true, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"distribute instead of failover": {client: "r1/z1/s1", outlier: true, set: &model.LocalityLB{Distribute: []model.LocalityDistribute{{From: "*", To: map[string]uint32{"*": 100}}}}, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"labels, the first difference":   {client: "r1", labels: map[string]string{"version": "v1"}, outlier: true, set: &model.LocalityLB{FailoverPriority: byLabel}, endpoints: []model.Endpoint{labelled("v1", "r1"), labelled("v2", "r1"), labelled("v1", "r2")}, want: []uint32{0, 1, 2}},
		"labels need no locality":        {labels: map[string]string{"version": "v1"}, outlier: true, set: &model.LocalityLB{FailoverPriority: []string{"version"}}, endpoints: []model.Endpoint{labelled("v2", "r1"), labelled("v1", "r2")}, want: []uint32{1, 0}},
		"a label's value that is given":  {client: "r1", outlier: true, set: &model.LocalityLB{FailoverPriority: []string{"version=v2"}}, endpoints: []model.Endpoint{labelled("v1", "r1"), labelled("v2", "r2")}, want: []uint32{1, 0}},
		"labels, then regions": {client: "r1", labels: map[string]string{"version": "v1"}, outlier: true,
			set:       &model.LocalityLB{FailoverPriority: []string{"version"}, Failover: []model.LocalityFailover{{From: "r1", To: "r3"}}},
			endpoints: []model.Endpoint{labelled("v1", "r1"), labelled("v1", "r2"), labelled("v1", "r3"), labelled("v2", "r1"), labelled("v2", "r3")}, want: []uint32{0, 2, 1, 3, 4}},
		"labels, and regions of a client of nowhere": {labels: map[string]string{"version": "v1"}, outlier: true,
			set:       &model.LocalityLB{FailoverPriority: []string{"version"}, Failover: []model.LocalityFailover{{From: "r1", To: "r3"}}},
			endpoints: []model.Endpoint{labelled("v1", "r1"), labelled("v1", "r2"), labelled("v2", "r1")}, want: []uint32{0, 0, 1}},
		"labels without outlier detection":            {client: "r1", set: &model.LocalityLB{FailoverPriority: byLabel}, endpoints: []model.Endpoint{labelled("v1", "r1"), labelled("v1", "r2")}, want: []uint32{0, 0}},
		"the service's zone":                          {client: "r1/z1/s1", node: "n1", near: model.DistributeSameZone, endpoints: nodes, want: []uint32{0, 0, 0, 1, 2, 2}},
		"the service's node":                          {client: "r1/z1/s1", node: "n1", near: model.DistributeSameNode, endpoints: nodes, want: []uint32{0, 1, 2, 3, 4, 4}},
		"no endpoint on the node":                     {client: "r1/z1/s1", node: "n9", near: model.DistributeSameNode, endpoints: nodes, want: []uint32{0, 0, 1, 2, 3, 3}},
		"a service, and outlier detection":            {client: "r1/z1/s1", outlier: true, near: model.DistributeSameZone, endpoints: near, want: []uint32{0, 0, 1, 2, 2}},
		"a rule goes before the service":              {client: "r1/z1/s1", near: model.DistributeSameZone, set: &model.LocalityLB{Enabled: &off}, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"as a rule has it, without outlier detection": {client: "r1/z1/s1", near: model.DistributeSameZone, set: &model.LocalityLB{Enabled: &on}, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"the mesh's failover":                         {client: "r1/z1/s1", outlier: true, mesh: &model.LocalityLB{Failover: []model.LocalityFailover{{From: "r1", To: "r3"}}}, endpoints: near, want: []uint32{0, 1, 2, 4, 3}},
		"the mesh's needs outlier detection":          {client: "r1/z1/s1", mesh: &model.LocalityLB{Enabled: &on}, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"the mesh may do without":                     {client: "r1/z1/s1", outlier: true, mesh: &model.LocalityLB{Enabled: &off}, endpoints: near, want: []uint32{0, 0, 0, 0, 0}},
		"a rule goes before the mesh":                 {client: "r1/z1/s1", outlier: true, set: &model.LocalityLB{}, mesh: &model.LocalityLB{Enabled: &off}, endpoints: near, want: []uint32{0, 1, 2, 3, 3}},
		"a service goes before the mesh":              {client: "r1/z1/s1", near: model.DistributeSameZone, mesh: &model.LocalityLB{Enabled: &off}, endpoints: near, want: []uint32{0, 0, 1, 2, 2}},
		"a rule may name the node":                    {client: "r9", node: "n1", outlier: true, set: &model.LocalityLB{FailoverPriority: []string{model.LabelNode}}, endpoints: nodes, want: []uint32{0, 1, 1, 1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			client := index.NewClient(index.GroupKey{Locality: model.ParseLocality(c.client), Node: c.node, Labels: index.CanonicalLabels(c.labels)}, nil)
			plan := Plan{Outlier: c.outlier, Distribution: c.near, Mesh: c.mesh}
			if c.set != nil {
				plan.LoadBalancer = &model.LoadBalancer{Locality: c.set}
			}
			require.Equal(t, c.want, priorities(client, pointers(c.endpoints), plan))
		})
	}
}

func TestDistribute(t *testing.T) {
	all := map[string][]uint32{"r1/z1": {1, 2}, "r1/z2": {1}, "r2/z1": {4}} // weights of the endpoints
	for name, c := range map[string]struct {
		client string
		rules  []model.LocalityDistribute
		want   map[string]uint32 // weight by locality; those that are not named get nothing
	}{
		"no rule for the client":        {"r9", []model.LocalityDistribute{{From: "r1/*", To: map[string]uint32{"*": 100}}}, map[string]uint32{"r1/z1": 0, "r1/z2": 0, "r2/z1": 0}},
		"by zone":                       {"r1/z1", []model.LocalityDistribute{{From: "r1/z1/*", To: map[string]uint32{"r1/z1/*": 80, "r1/z2/*": 20}}}, map[string]uint32{"r1/z1": 8000, "r1/z2": 2000}},
		"a pattern is shared by weight": {"r1/z1", []model.LocalityDistribute{{From: "r1/*", To: map[string]uint32{"r1/*": 80, "r2/*": 20}}}, map[string]uint32{"r1/z1": 6000, "r1/z2": 2000, "r2/z1": 2000}},
		"the longer pattern":            {"r1/z1", []model.LocalityDistribute{{From: "*", To: map[string]uint32{"*": 10, "r1/z2/*": 90}}}, map[string]uint32{"r1/z1": 429, "r1/z2": 9000, "r2/z1": 571}},
		"the first rule":                {"r1/z1", []model.LocalityDistribute{{From: "r1/*", To: map[string]uint32{"r2/*": 100}}, {From: "r1/z1/*", To: map[string]uint32{"*": 100}}}, map[string]uint32{"r2/z1": 10000}},
	} {
		t.Run(name, func(t *testing.T) {
			var list []ir.LocalityEndpoints
			for l, weights := range all {
				e := ir.LocalityEndpoints{Locality: model.ParseLocality(l)}
				for _, w := range weights {
					e.Endpoints = append(e.Endpoints, ir.Endpoint{Weight: w})
				}
				list = append(list, e)
			}
			got := map[string]uint32{}
			for _, l := range distribute(model.ParseLocality(c.client), list, Plan{LoadBalancer: &model.LoadBalancer{Locality: &model.LocalityLB{Distribute: c.rules}}}) {
				got[l.Locality.String()] = l.Weight
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestLocalityPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, locality string
		want              bool
	}{
		{"*", "", true}, {"*", "r1/z1/s1", true}, {"r1", "r1/z1/s1", true}, {"r1/*", "r1", true}, {"r1/*", "r11", false},
		{"r1/z1/*", "r1/z1/s9", true}, {"r1/z1/*", "r1/z2", false}, {"r1/z1/s1", "r1/z1/s1", true}, {"r1/z1/s1", "r1/z1", false},
		{"r1/z1/s1/x", "r1/z1/s1", false},
	} {
		require.Equal(t, c.want, localityMatches(c.pattern, model.ParseLocality(c.locality)), "%s on %s", c.pattern, c.locality)
	}
}

func pointers(list []model.Endpoint) []*model.Endpoint {
	out := make([]*model.Endpoint, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
