package kube

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/config"
)

// TestListingAddresses checks the address of a list: the API server's may have no scheme, or end with a slash.
func TestListingAddresses(t *testing.T) {
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		_, _ = w.Write([]byte("{}"))
	}))
	defer s.Close()
	r := custom(config.Resource{Group: "networking.istio.io", Kind: "Gateway", Custom: true}, "v1", "gateways")
	for _, host := range []string{s.URL, s.URL + "/", strings.TrimPrefix(s.URL, "http://")} {
		c := &Client{config: &rest.Config{Host: host}, http: s.Client()}
		text, err := c.list(t.Context(), r)
		require.NoError(t, err, host)
		require.Equal(t, "{}", string(text))
		require.Equal(t, "/apis/networking.istio.io/v1/gateways?limit=5000", asked, host)
		_, err = c.MeshConfig("istio-system", "istio-blue").Read(t.Context())
		require.NoError(t, err, host)
		require.Equal(t, "/api/v1/namespaces/istio-system/configmaps?fieldSelector=metadata.name%3Distio-blue&limit=5000", asked, "roles may allow this one only")
	}
}
