package analyze

import (
	"fmt"
	"maps"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// ingress reports problems with the TLS of a Sidecar's own listeners.
func (c gatewayChecks) ingress(s *model.Sidecar) {
	for i := range s.Ingress {
		in, field := &s.Ingress[i], fmt.Sprintf("spec.ingress[%d].tls", i)
		if in.TLS == nil {
			continue
		}
		if mode := c.mutualAt(s, in.Port.Number); mode != "" {
			c.warnf(code.IngressBehindMutualTLS, s, field, "has no effect at workloads that take mutual TLS (%[1]s) at port %[2]d; write a PeerAuthentication for them with portLevelMtls {%[2]d: {mode: DISABLE}}", mode, in.Port.Number)
		}
		if len(c.secrets) == 0 {
			continue // the input has no Secrets on purpose
		}
		c.secretsOfServer(s, field, in.TLS, s.Namespace)
		c.unreadIngress(s, field, in.TLS)
	}
}

// mutualAt is the mode of mutual TLS at a port of workloads that a Sidecar selects; "": it is
// switched off at all of them. Where no workload is known, it is that of one with the labels.
func (c gatewayChecks) mutualAt(s *model.Sidecar, port uint32) model.MTLSMode {
	selected := c.labelsSelected(s)
	if len(selected) == 0 {
		selected = []map[string]string{s.Selector}
	}
	for _, labels := range selected {
		if mode := c.peers.of(s.Namespace, labels).Of(port); mode != model.MTLSDisable {
			return mode
		}
	}
	return ""
}

// labelsSelected are the labels of workloads that a Sidecar selects, if they run at the place that its labels of topology
// name.
func (c gatewayChecks) labelsSelected(s *model.Sidecar) []map[string]string {
	var out []map[string]string
	for _, w := range c.selected(s.Namespace, s.Selector) {
		labels := map[string]string{}
		maps.Copy(labels, w.Labels)
		maps.Copy(labels, s.Selector)
		out = append(out, labels)
	}
	return out
}

// unreadIngress reports workloads that may not have the keys of their own listeners.
func (c gatewayChecks) unreadIngress(s *model.Sidecar, field string, t *model.ServerTLS) {
	for _, need := range t.Credentials(s.Namespace) {
		secret := c.secrets[need.Key]
		if !need.PrivateKey || secret == nil || secret.Problem != "" {
			continue
		}
		if missing := c.mayNotRead(secret, s.Namespace, s.Selector); len(missing) > 0 {
			c.warnf(code.SecretUnreadable, s, field, "service accounts %s may not read Secret %s, so calls of workloads that the Sidecar selects fail: grant them get on it",
				strings.Join(missing, ", "), secret.Name)
		}
	}
}
