package analyze_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/model"
)

// TestKeysThatClientsMayNotRead checks messages about service accounts without a key, which only a running control plane knows.
func TestKeysThatClientsMayNotRead(t *testing.T) {
	const missing = " may not read Secret key, so calls of their workloads fail: grant them get on it"
	web, zone := map[string]string{"app": "web"}, map[string]string{"app": "web", model.LabelZone: "z1"}
	for name, tc := range map[string]struct {
		selector map[string]string
		readers  []string
		want     string
	}{
		"all may":                        {web, []string{"a", "b"}, ""},
		"one may":                        {web, []string{"a"}, "service accounts b" + missing},
		"none may":                       {web, []string{}, "service accounts a, b" + missing},
		"by topology, one may":           {zone, []string{"a"}, ""},
		"by topology, none may":          {zone, []string{}, "service accounts a, b" + missing},
		"by topology, none selected may": {zone, []string{"other"}, "service accounts a, b" + missing},
	} {
		t.Run(name, func(t *testing.T) {
			meta := func(kind model.Kind, name string, labels map[string]string) model.Meta {
				return model.Meta{Key: model.Key{Kind: kind, Namespace: "shop", Name: name}, Labels: labels}
			}
			var got []string
			for _, p := range analyze.Check([]model.Object{
				&model.Service{Meta: meta(model.KindService, "a.example.com", nil), Hostname: "a.example.com"},
				&model.DestinationRule{Meta: meta(model.KindDestinationRule, "a", nil), Host: "a.example.com", WorkloadSelector: tc.selector, Policy: model.TrafficPolicy{
					TLS: &model.ClientTLS{Mode: model.TLSMutual, CredentialName: "key", InsecureSkipVerify: true},
				}},
				&model.Secret{Meta: meta(model.KindSecret, "key", nil), Readers: tc.readers},
				&model.Workload{Meta: meta(model.KindPod, "a", web), ServiceAccount: "a"},
				&model.Workload{Meta: meta(model.KindPod, "b", web), ServiceAccount: "b"},
				&model.Workload{Meta: meta(model.KindPod, "other", nil), ServiceAccount: "other"},
			}, "cluster.local") {
				if _, text, ok := strings.Cut(p.String(), "credentialName: "); ok {
					got = append(got, text)
				}
			}
			require.Equal(t, tc.want, strings.Join(got, "\n"))
		})
	}
}
