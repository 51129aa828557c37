package agent

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/nameserver"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

const defaultResolvConf = "/etc/resolv.conf"

// capturesDNS tells whether applications' questions come to port 15053: by our rules, or by those
// of an init container, which is told the same.
func (s *settings) capturesDNS() bool {
	said := s.Intercept.Settings.Annotated(s.Workload.Annotations)
	yes, err := strconv.ParseBool(said.CaptureDNS)
	return err == nil && yes && s.Interception != model.InterceptNone
}

// startNames begins to answer questions, where they are captured. They are answered until
// stop: a sidecar that drains still has applications.
func (a *agent) startNames(ctx context.Context) (stop func(), err error) {
	if !a.capturesDNS() {
		return func() {}, nil
	}
	node, err := a.ownNode("dns", agentapi.MetaNames)
	if err != nil {
		return nil, err
	}
	table, server, err := a.serveNames(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	a.names = table
	feed := &nameserver.Feed{Dial: a.dialXDS, Node: node, Table: table, Log: a.log}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		feed.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
		server.Close()
	}, nil
}

// serveNames answers questions from a table that knows nothing yet.
func (a *agent) serveNames(ctx context.Context) (*nameserver.Table, *nameserver.Server, error) {
	addresses, err := a.namesAddresses()
	if err != nil {
		return nil, nil, err
	}
	others, search, err := nameserver.ReadConfig(orDefault(a.Intercept.ResolvConf, defaultResolvConf), addresses)
	if err != nil {
		return nil, nil, fmt.Errorf("the DNS proxy does not know whom to ask: %w: leave --capture-dns out, or correct the file", err)
	}
	table := nameserver.NewTable(a.Workload.Namespace, a.Domain, search)
	server, err := nameserver.Start(ctx, nameserver.Options{
		Addresses: addresses, Table: table, Upstream: others, Metrics: nameserver.NewMetrics(a.metrics.registry), Log: a.log,
	})
	if err != nil {
		return nil, nil, err
	}
	a.log.Info("names are answered", "at", addresses, "others", others)
	return table, server, nil
}

// namesAddresses are where the rules lead questions to.
func (a *agent) namesAddresses() ([]string, error) {
	port := strconv.Itoa(intercept.DefaultDNSPort)
	out := []string{net.JoinHostPort("127.0.0.1", port)}
	c, err := a.interceptConfig()
	if err == nil && c.IPv6 {
		out = append(out, net.JoinHostPort("::1", port))
	}
	return out, err
}

// ofEnvoy is what Envoy's node says of the proxy, which the agent is not.
var ofEnvoy = []string{"NAME", "INSTANCE_IPS", "POD_PORTS", "INTERCEPTION_MODE", agentapi.MetaSDS}

// ownNode is the sidecar's node for a stream of the agent's own, under a name of its own
// ("web-1.dns.shop"), with metadata that says what it is for.
func (a *agent) ownNode(part, purpose string) (*corev3.Node, error) {
	w := &a.Workload
	anywhere := unspecified(w.IPs)
	metadata := map[string]any{purpose: true, "LABELS": a.node.metadata["LABELS"], "INSTANCE_IPS": strings.Join(anywhere, ",")}
	for key, v := range a.node.metadata {
		if _, isText := v.(string); isText && !slices.Contains(ofEnvoy, key) {
			metadata[key] = v
		}
	}
	maps.DeleteFunc(metadata, func(_ string, v any) bool { return v == nil })
	fields, err := toStruct(metadata)
	if err != nil {
		return nil, err
	}
	return &corev3.Node{
		Id:      fmt.Sprintf("%s~%s~%s.%s.%s~%s.svc.%s", model.ProxySidecar, anywhere[0], w.Name, part, w.Namespace, w.Namespace, a.Domain),
		Cluster: a.node.cluster, Metadata: fields, UserAgentName: "moonsail-agent",
	}, nil
}

// unspecified tells of which families addresses are without telling them: the stream is not at the workload's.
func unspecified(ips []string) []string {
	var out []string
	for _, text := range ips {
		any := netip.IPv4Unspecified()
		if ip, err := netip.ParseAddr(text); err == nil && ip.Unmap().Is6() {
			any = netip.IPv6Unspecified()
		}
		if !slices.Contains(out, any.String()) {
			out = append(out, any.String())
		}
	}
	return out
}

// dialXDS is a connection for a stream of the agent's own.
func (a *agent) dialXDS() (*grpc.ClientConn, error) {
	security, err := a.xdsCredentials()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(a.xdsTarget(), append(streamOptions(), grpc.WithTransportCredentials(security))...)
}

// Liveness of these connections. They may have nothing to say for hours: without pings a control plane that vanished
// without a FIN would be taken for one that has no news, for as long as the kernel's two hours. The times are Istio's agent's.
const (
	streamPingInterval = 30 * time.Second
	streamPingTimeout  = 10 * time.Second
)

// streamOptions are what all connections for streams have.
func streamOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithNoProxy(), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: streamPingInterval, Timeout: streamPingTimeout}),
	}
}
