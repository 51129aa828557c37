package proxyconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// endpointHealth is the health of an endpoint in Envoy.
type endpointHealth struct {
	Address string `json:"address"`
	Status  string `json:"status"` // "HEALTHY", "UNHEALTHY", "DEGRADED", "DRAINING" or "TIMEOUT"
	// Flags are Envoy's health flags that are set, such as "failed_outlier_check".
	Flags []string `json:"flags,omitempty"`
}

// Envoy's flags of endpoints that get no requests, or fewer.
const (
	flagOutlier  = "failed_outlier_check"
	flagActive   = "failed_active_health_check"
	flagDegraded = "failed_active_degraded_check"
)

// outlierCheck is istioctl's column.
func (h *endpointHealth) outlierCheck() string {
	if slices.Contains(h.Flags, flagOutlier) {
		return "FAILED"
	}
	return "OK"
}

// healthOf returns the health of an endpoint; nil: unknown.
func (r *comparedResource) healthOf(address string) *endpointHealth {
	for i := range r.EndpointHealth {
		if r.EndpointHealth[i].Address == address {
			return &r.EndpointHealth[i]
		}
	}
	return nil
}

// addHealth adds the health of endpoints in the proxy's Envoy. If that does not answer, it stays unknown.
func (f *flags) addHealth(ctx context.Context, out *comparedConfig) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var text json.RawMessage
	asked := *out // this question changes nothing that is known of the first one
	if !f.byAgent(ctx, &asked, "clusters", &text) {
		address := f.adminOf(out.ProxyConfig)
		if address == "" {
			return
		}
		admin := envoy.NewAdmin(address)
		defer admin.Close()
		var err error
		if text, err = admin.Clusters(ctx); err != nil {
			return
		}
	}
	health := parseHealth(text)
	for i := range out.Resources {
		if r := &out.Resources[i]; r.Type == "EDS" {
			r.EndpointHealth = health[r.Name]
		}
	}
}

// parseHealth reads Envoy's page /clusters. The result is by cluster.
func parseHealth(text json.RawMessage) map[string][]endpointHealth {
	var page struct {
		Clusters []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Address map[string]any `json:"address"`
				Health  map[string]any `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if json.Unmarshal(text, &page) != nil {
		return nil
	}
	out := map[string][]endpointHealth{}
	for _, c := range page.Clusters {
		for _, host := range c.Hosts {
			h := endpointHealth{Address: addressOf(host.Address), Status: "HEALTHY"}
			if eds, _ := host.Health["eds_health_status"].(string); eds != "" && eds != "UNKNOWN" {
				h.Status = eds
			}
			for _, flag := range slices.Sorted(maps.Keys(host.Health)) {
				if set, _ := host.Health[flag].(bool); set {
					h.Flags = append(h.Flags, flag)
				}
			}
			switch {
			case slices.Contains(h.Flags, flagOutlier), slices.Contains(h.Flags, flagActive):
				h.Status = "UNHEALTHY"
			case h.Status == "HEALTHY" && slices.Contains(h.Flags, flagDegraded):
				h.Status = "DEGRADED"
			}
			out[c.Name] = append(out[c.Name], h)
		}
	}
	return out
}

// addressOf returns an address of Envoy's admin interface, as the table has it.
func addressOf(address map[string]any) string {
	if path := text(address, "pipe", "path"); path != "" {
		return path
	}
	return fmt.Sprintf("%s:%s", text(address, "socket_address", "address"), text(address, "socket_address", "port_value"))
}
