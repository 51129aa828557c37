package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// containers returns a container of the application of each Pod of echo and of the load, by Pod.
func containers(t *testing.T, ns string) map[string]string {
	t.Helper()
	out := map[string]string{"load": "http"}
	for _, p := range pods(t, ns, "app=echo") {
		out[p.Name] = "app"
	}
	return out
}

// times are the times at which Envoy received each resource last, by "Pod: type name".
type times map[string]string

// received reads the clusters, listeners, routes and secrets of each sidecar.
func received(t *testing.T, ns string) times {
	t.Helper()
	out := times{}
	for pod, container := range containers(t, ns) {
		text := kubectl(t, "-n", ns, "exec", pod, "-c", container, "--", "/app", "get", "http://127.0.0.1:15000/config_dump")
		var dump struct {
			Configs []struct {
				Clusters []struct {
					Cluster struct {
						Name string `json:"name"`
					} `json:"cluster"`
					LastUpdated string `json:"last_updated"`
				} `json:"dynamic_active_clusters"`
				Listeners []struct {
					Name        string `json:"name"`
					ActiveState struct {
						LastUpdated string `json:"last_updated"`
					} `json:"active_state"`
				} `json:"dynamic_listeners"`
				Routes []struct {
					RouteConfig struct {
						Name string `json:"name"`
					} `json:"route_config"`
					LastUpdated string `json:"last_updated"`
				} `json:"dynamic_route_configs"`
				Secrets []struct {
					Name        string `json:"name"`
					LastUpdated string `json:"last_updated"`
				} `json:"dynamic_active_secrets"`
			} `json:"configs"`
		}
		if err := json.Unmarshal([]byte(text), &dump); err != nil {
			t.Fatalf("config_dump of Pod %s: %v", pod, err)
		}
		for _, c := range dump.Configs {
			for _, one := range c.Clusters {
				out[pod+": cluster "+one.Cluster.Name] = one.LastUpdated
			}
			for _, one := range c.Listeners {
				out[pod+": listener "+one.Name] = one.ActiveState.LastUpdated
			}
			for _, one := range c.Routes {
				out[pod+": routes "+one.RouteConfig.Name] = one.LastUpdated
			}
			for _, one := range c.Secrets {
				out[pod+": secret "+one.Name] = one.LastUpdated
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("no sidecar has resources")
	}
	return out
}

// requireSame fails the test if a resource was added, removed, or received again since earlier. Secrets do not count.
func (earlier times) requireSame(t *testing.T, now times, what string) {
	t.Helper()
	counted := 0
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if strings.Contains(name, ": secret ") {
			continue
		}
		counted++
		if earlier[name] != now[name] {
			t.Errorf("%s: %s was sent again: received %q, before %q", what, name, now[name], earlier[name])
		}
	}
	for name := range earlier {
		if _, ok := now[name]; !ok {
			t.Errorf("%s: %s was removed", what, name)
		}
	}
	t.Logf("%s: none of %d clusters, listeners and route configurations was sent again", what, counted)
}
