package engine

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

func TestRemovedEndpoints(t *testing.T) {
	slice := func(ready ...string) *model.EndpointSlice {
		s := &model.EndpointSlice{Service: "a", Meta: model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "a-1"}}}
		for _, r := range ready {
			s.Members = append(s.Members, model.SliceEndpoint{Addresses: []string{r}, Ready: true})
		}
		return s
	}
	unready := slice("1", "2")
	unready.Members[1].Ready = false
	workload := func(kind model.Kind) *model.Workload {
		return &model.Workload{Meta: model.Meta{Key: model.Key{Kind: kind, Namespace: "shop", Name: "w"}, Labels: map[string]string{"app": "w"}}, Addresses: []string{"9"}, Ready: true}
	}
	unhealthy := workload(model.KindWorkloadEntry)
	unhealthy.Ready = false
	entry := func(addresses ...string) *model.ServiceEntry {
		e := &model.ServiceEntry{Hosts: []model.Host{"x.example"}}
		for _, a := range addresses {
			e.Template.Inline = append(e.Template.Inline, model.Endpoint{Address: a})
		}
		return e
	}
	for name, tc := range map[string]struct {
		old, now model.Object
		want     []string
	}{
		"new slice":          {nil, slice("1"), nil},
		"one gone":           {slice("1", "2"), slice("2", "3"), []string{"1"}},
		"slice gone":         {slice("1", "2"), nil, []string{"1", "2"}},
		"not ready":          {slice("1", "2"), unready, []string{"2"}},
		"was not ready":      {unready, nil, []string{"1"}},
		"workload entry":     {workload(model.KindWorkloadEntry), nil, []string{"9"}},
		"unhealthy entry":    {workload(model.KindWorkloadEntry), unhealthy, []string{"9"}},
		"was unhealthy":      {unhealthy, nil, nil},
		"pod":                {workload(model.KindPod), nil, nil},
		"of a service entry": {entry("1", "2"), entry("2"), []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			key := model.Key{Kind: model.KindPod}
			if tc.old != nil {
				key = tc.old.Metadata().Key
			}
			var got []string
			for _, r := range removedEndpoints(7, []store.Change{{Key: key, Old: tc.old, New: tc.now}}) {
				require.Equal(t, model.Revision(7), r.Revision)
				require.Equal(t, key, r.Object)
				got = append(got, r.Address)
			}
			slices.Sort(got)
			require.Equal(t, tc.want, got)
		})
	}
}
