package pair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/envoy"
)

// unbalance replaces the server's listener by one that differs in its name, and has no
// connection_balance_config: an EnvoyFilter removes the one and adds the other, since patches
// cannot take a field away.
func (p *Pair) unbalance(ctx context.Context) error {
	admin := envoy.NewAdmin(p.Server.Admin)
	defer admin.Close()
	name, listener, err := p.serverListener(ctx, admin)
	if err != nil {
		return err
	}
	delete(listener, "connection_balance_config")
	listener["name"] = unbalancedName
	value, err := json.Marshal(listener)
	if err != nil {
		return err
	}
	if err := p.Apply(append(p.Objects, fmt.Sprintf(`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: any-worker, namespace: $NAMESPACE}
spec:
  workloadSelector: {labels: {app: server}}
  configPatches:
  - {applyTo: LISTENER, match: {context: SIDECAR_INBOUND, listener: {name: %q}}, patch: {operation: REMOVE}}
  - {applyTo: LISTENER, match: {context: SIDECAR_INBOUND}, patch: {operation: ADD, value: %s}}`, name, value))...); err != nil {
		return err
	}
	err = until(ctx, readyTime, "the listener without exact_balance", func(ctx context.Context) error {
		text, err := admin.Listeners(ctx)
		if err == nil && (!strings.Contains(string(text), `"`+unbalancedName+`"`) || strings.Contains(string(text), `"`+name+`"`)) {
			err = fmt.Errorf("there are %s", text)
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.await(ctx)
}

const unbalancedName = "any-worker"

// serverListener is the listener that the server's Envoy has from the control plane for
// requests.
func (p *Pair) serverListener(ctx context.Context, admin *envoy.Admin) (name string, listener map[string]any, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := admin.ConfigDump(ctx, url.Values{"resource": {"dynamic_listeners"}})
	if err != nil {
		return "", nil, err
	}
	var dump struct {
		Configs []struct {
			Name   string `json:"name"`
			Active struct {
				Listener map[string]any `json:"listener"`
			} `json:"active_state"`
		} `json:"configs"`
	}
	if err := json.Unmarshal(text, &dump); err != nil {
		return "", nil, err
	}
	for _, c := range dump.Configs {
		if _, has := c.Active.Listener["connection_balance_config"]; has && strings.HasSuffix(c.Name, fmt.Sprint("_", meshPort)) {
			delete(c.Active.Listener, "@type")
			return c.Name, c.Active.Listener, nil
		}
	}
	return "", nil, errors.New("the server's Envoy has no listener with connection_balance_config")
}
