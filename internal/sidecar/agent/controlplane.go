package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// controlPlane opens the agent's own connections to the control plane: streams for names, modules and patches of the
// bootstrap, and the call that deregisters the workload. They use the same address and credentials as Envoy.
type controlPlane struct {
	*settings
	identity *identity.Renewer // set by startIdentity; nil: the workload has no identity
}

// controlPlaneName is in the certificate of every control plane, and in no other: the name of Istio's Service.
const controlPlaneName = "istiod.istio-system.svc"

// serverNames returns the names of which the certificate of the server at host must contain one. If host is an address or
// localhost, which many servers have, the control plane's name is valid too.
func (s *settings) serverNames(host string) []string {
	switch {
	case s.XDS.ServerName != "":
		return []string{s.XDS.ServerName}
	case host == "":
		return []string{controlPlaneName}
	case host == "localhost":
		return []string{controlPlaneName, host}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{controlPlaneName, host}
	}
	return []string{host}
}

// credentials are those of Envoy's connection to the control plane.
func (p *controlPlane) credentials() (credentials.TransportCredentials, error) {
	names := p.serverNames(p.xdsHost)
	switch {
	case p.XDS.Plaintext:
		return insecure.NewCredentials(), nil
	case p.identity != nil:
		return credentials.NewTLS(p.identity.ClientTLS(names)), nil
	}
	c, err := p.anonymousTLS(names)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

func (p *controlPlane) anonymousTLS(names []string) (*tls.Config, error) {
	pem, err := os.ReadFile(p.XDS.RootCert)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificates: correct --xds-root-cert", p.XDS.RootCert)
	}
	return identity.ServerTLS(roots, names), nil
}

// dial returns a connection for calls. It connects with the first call.
func (p *controlPlane) dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	security, err := p.credentials()
	if err != nil {
		return nil, err
	}
	target := p.XDS.Address
	if socketPath(target) == "" {
		target = "dns:///" + target
	}
	return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(security), grpc.WithNoProxy())...)
}

// Keepalive of connections for streams, which may be silent for hours. Without it the agent would notice a control plane
// that vanished without a FIN only after the kernel's two hours. The times are those of Istio's agent.
const (
	streamPingInterval = 30 * time.Second
	streamPingTimeout  = 10 * time.Second
)

// streamOptions are options of connections for streams.
func streamOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: streamPingInterval, Timeout: streamPingTimeout})}
}

// dialStream returns a connection for a stream of the agent.
func (p *controlPlane) dialStream() (*grpc.ClientConn, error) { return p.dial(streamOptions()...) }

// dialWithIdentity waits for the workload's certificate before it dials: the control plane answers only with one.
func (p *controlPlane) dialWithIdentity(ctx context.Context) (*grpc.ClientConn, error) {
	for p.identity != nil {
		secrets, changed := p.identity.Secrets()
		if secrets.Leaf() != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no certificate yet: %w", ctx.Err())
		}
	}
	return p.dialStream()
}

// proxyMetadata are keys of the node's metadata that describe Envoy. The agent's streams do not send them.
var proxyMetadata = []string{"NAME", "INSTANCE_IPS", "POD_PORTS", "INTERCEPTION_MODE", agentapi.MetaSDS}

// node returns the node for a stream of the agent. Its name contains part ("web-1.dns.shop"), and its metadata the
// purpose of the stream.
func (p *controlPlane) node(part, purpose string) (*corev3.Node, error) {
	w := &p.Workload
	addresses := unspecified(w.IPs)
	metadata := map[string]any{purpose: true, "LABELS": p.settings.node.Metadata["LABELS"], "INSTANCE_IPS": strings.Join(addresses, ",")}
	for key, v := range p.settings.node.Metadata {
		if _, isText := v.(string); isText && !slices.Contains(proxyMetadata, key) {
			metadata[key] = v
		}
	}
	maps.DeleteFunc(metadata, func(_ string, v any) bool { return v == nil })
	fields, err := bootstrap.ToStruct(metadata)
	if err != nil {
		return nil, err
	}
	return &corev3.Node{
		Id:      fmt.Sprintf("%s~%s~%s.%s.%s~%s.svc.%s", model.ProxySidecar, addresses[0], w.Name, part, w.Namespace, w.Namespace, p.Domain),
		Cluster: p.settings.node.Cluster, Metadata: fields, UserAgentName: "moonsail-agent",
	}, nil
}

// unspecified returns the unspecified address of each IP family in ips. The control plane learns the families, but does
// not take the agent's stream for the proxy of these addresses.
func unspecified(ips []string) []string {
	var out []string
	for _, text := range ips {
		address := netip.IPv4Unspecified()
		if ip, err := netip.ParseAddr(text); err == nil && ip.Unmap().Is6() {
			address = netip.IPv6Unspecified()
		}
		if !slices.Contains(out, address.String()) {
			out = append(out, address.String())
		}
	}
	return out
}
