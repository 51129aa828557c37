package controlplane

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestAlertsUseExistingMetrics checks that deploy/alerts.yaml uses metrics that the control plane
// has.
func TestAlertsUseExistingMetrics(t *testing.T) {
	text, err := os.ReadFile("../../deploy/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
			Name string `json:"name"`
		} `json:"groups"`
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	p := start(t, options(t))
	resp, err := http.Get("http://" + p.http + "/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	// Metrics with labels exist after their first event.
	m := changelog.NewMetrics()
	m.Rejected(resource.Cluster)
	m.WatchAPIServer(func() changelog.APIServer {
		health := kube.Health{Kinds: []kube.KindHealth{{Kind: "Pod"}}, Heartbeat: time.Now()}
		return apiServerMetrics(health, time.Now())
	})
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	there := string(body)
	for _, f := range families {
		there += "\n# HELP " + f.GetName() + " "
	}
	there += "\n# HELP moonsail_propagation_seconds " // exists after the first change: tested in changelog
	for _, r := range file.Groups[0].Rules {
		names := regexp.MustCompile(`\b(?:moonsail|pilot)_[a-z_]+`).FindAllString(r.Expr, -1)
		require.NotEmpty(t, names, r.Alert)
		for _, n := range names {
			require.Contains(t, there, "# HELP "+strings.TrimSuffix(n, "_bucket")+" ", r.Alert)
		}
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Contains(t, r.Annotations["next"], "moonsail ", r.Alert)
	}
	require.NoError(t, p.end(t))
	http.DefaultClient.CloseIdleConnections()
}
