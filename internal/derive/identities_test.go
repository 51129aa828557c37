package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestIdentitiesFollowPods: whatever changes of a Pod, its service's identities are then what they
// are when all Pods are looked at.
func TestIdentitiesFollowPods(t *testing.T) {
	labels := func(more map[string]string) map[string]string {
		out := map[string]string{"app": "web", model.LabelTLSMode: model.TLSModeLabelIstio}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	for name, change := range map[string]func(*model.Workload){
		"its account":         func(w *model.Workload) { w.ServiceAccount = "other" },
		"it loses a sidecar":  func(w *model.Workload) { w.Labels = labels(map[string]string{model.LabelTLSMode: ""}) },
		"another service's":   func(w *model.Workload) { w.Labels, w.ServiceAccount = labels(map[string]string{"app": "db"}), "db" },
		"nothing that counts": func(w *model.Workload) { w.Ready, w.Node = false, "elsewhere" },
	} {
		t.Run(name, func(t *testing.T) {
			x, s, pods := webService()
			step := func(old, now *model.Workload) *identities {
				touched := newTouched()
				x.replaceWorkload(old, now, touched)
				x.settle(touched)
				require.Equal(t, x.identify(s), x.identities[keyOf(s)])
				return x.identities[keyOf(s)]
			}
			require.Equal(t, &identities{accounts: []account{{"shop", "web"}}, some: true, all: true}, x.identities[keyOf(s)])
			next := *pods[0]
			change(&next)
			step(pods[0], &next)
			ended := next
			ended.Ready, ended.Terminating = false, true
			step(&next, &ended)
			step(&ended, nil)
			require.Equal(t, &identities{accounts: []account{{"shop", "web"}}, some: true, all: true}, step(nil, pods[0]))
		})
	}
}
