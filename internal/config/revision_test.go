package config

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRevisions checks that objects labelled for another revision are not read, valid or not. Kubernetes' own kinds may have
// that label for other purposes. A Gateway of the Gateway API is read too: its routers may still be connected to this one.
func TestRevisions(t *testing.T) {
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"%s},"spec":{"ports":[{"port":80}]}}`
	const rule = `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"web","namespace":"shop"%s},"spec":{"host":"web"}}`
	const wrong = `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"web","namespace":"shop"%s},"spec":{"host":7}}`
	const route = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"web","namespace":"shop"%s},"spec":{}}`
	const gateway = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"web","namespace":"shop"%s},"spec":{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}}`
	const set = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"ListenerSet","metadata":{"name":"web","namespace":"shop"%s},"spec":{"parentRef":{"name":"web"},"listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}}`
	const ofIstio = `{"apiVersion":"networking.istio.io/v1","kind":"Gateway","metadata":{"name":"web","namespace":"shop"%s},"spec":{"servers":[{"hosts":["*"],"port":{"number":80,"name":"http","protocol":"HTTP"}}]}}`
	const later = `{"apiVersion":"networking.istio.io/v1","kind":"WorkloadGroup","metadata":{"name":"web","namespace":"shop"%s},"spec":{}}`
	for _, tt := range []struct {
		doc, revision, label string
		elsewhere, used      bool
	}{
		{rule, "default", "", false, true},
		{rule, "default", "default", false, true},
		{rule, "default", "canary", true, false},
		{rule, "canary", "", false, true},
		{rule, "canary", "canary", false, true},
		{rule, "canary", "default", true, false},
		{rule, "", "canary", false, true},
		{rule, "default", `""`, false, true},
		{wrong, "default", "canary", true, false},
		{later, "default", "canary", true, false},
		{route, "default", "canary", true, false},
		{service, "default", "canary", false, true},
		{gateway, "default", "default", false, true},
		{gateway, "default", "canary", true, true},
		{set, "default", "default", false, true},
		{set, "default", "canary", true, false},
		{ofIstio, "default", "canary", true, false},
	} {
		t.Run(fmt.Sprintf("%.70s/%s/%s", tt.doc, tt.revision, tt.label), func(t *testing.T) {
			labels := ""
			if tt.label == `""` {
				labels = `,"labels":{"istio.io/rev":""}`
			} else if tt.label != "" {
				labels = `,"labels":{"istio.io/rev":"` + tt.label + `"}`
			}
			d, doc := Decoder{Revision: tt.revision}, fmt.Appendf(nil, tt.doc, labels)
			fromAPI := d.FromRaw(resourceOf(t, doc), doc)
			for how, out := range map[string]Decoded{"a file's": d.fromDocument(doc), "an API server's": fromAPI} {
				require.Equal(t, tt.elsewhere, out.OtherRevision, how)
				require.Equal(t, "web", out.Key.Name, how)
				if !tt.used {
					require.Nil(t, out.Object, how)
					require.Nil(t, out.Salvaged, how)
					require.Empty(t, out.Problems, how)
				} else {
					require.NotNil(t, out.Object, how)
				}
			}
		})
	}
}

// resourceOf finds the kind of a document.
func resourceOf(t *testing.T, doc []byte) Resource {
	t.Helper()
	var header metav1.TypeMeta
	require.NoError(t, json.Unmarshal(doc, &header))
	for _, r := range Resources() {
		if r.Kind == header.Kind && r.Group == header.GroupVersionKind().Group {
			return r
		}
	}
	require.Fail(t, "no such kind")
	return Resource{}
}
