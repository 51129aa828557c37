package compare

import (
	"cmp"
	"context"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/fetch"
)

// Node is a proxy as it describes itself to control planes.
type Node struct {
	*model.Proxy
	envoy *corev3.Node
}

// NodeOf returns the node of a proxy as pilot-agent would write it.
func NodeOf(p *model.Proxy) (*Node, error) {
	envoy, err := fetch.Node(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	return &Node{p, envoy}, nil
}

// NodeParser returns the proxy that a node describes: server.ProxyOf of package xds/server.
type NodeParser func(*corev3.Node) (*model.Proxy, error)

// parse reads the node that an Envoy sends. The sidecar of Moonsail in the same Pod would serve certificates, read files and
// fetch modules.
func (parse NodeParser) parse(envoy *corev3.Node) (*Node, error) {
	p, err := parse(envoy)
	if err != nil {
		return nil, err
	}
	p.Identity, p.Files, p.Modules = true, true, true
	return &Node{p, envoy}, nil
}

// proxy returns the node's proxy, without resources. Nodes do not have the trust domain.
func (n *Node) proxy() *Proxy {
	return &Proxy{
		Name: n.String(), Gateway: n.Type == model.ProxyRouter, IPs: n.IPs, Node: n, World: &simulate.World{}, guessed: true,
		Principal: model.Identity{
			TrustDomain: model.DefaultMesh().TrustDomain, Namespace: n.Namespace, ServiceAccount: cmp.Or(n.ServiceAccount, "default"),
		}.String(),
	}
}

// Read reads what a running control plane gives to the node.
func (n *Node) Read(ctx context.Context, c *fetch.Client) (*Proxy, error) {
	resources, version, err := c.Proxy(ctx, n.envoy)
	if err != nil {
		return nil, err
	}
	p := n.proxy()
	p.Kind = kindOf(version)
	for _, r := range resources {
		m, err := r.UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.GetTypeUrl(), err)
		}
		p.Add(m)
	}
	return p, nil
}
