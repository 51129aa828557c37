package derive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/gateway"
)

func (w *world) gateway() model.Object {
	g := &model.Gateway{Meta: w.meta(model.KindGateway)}
	if w.chance(0.8) {
		g.Selector = w.selector()
	}
	for i := range 1 + w.IntN(3) {
		g.Servers = append(g.Servers, w.server(i))
	}
	return g
}

func (w *world) server(i int) model.GatewayServer {
	s := model.GatewayServer{Port: model.GatewayPort{
		Number: pick(w, []uint32{80, 443, 443, 9000}), Name: fmt.Sprint("s", i),
		Protocol: pick(w, []model.Protocol{model.ProtocolHTTP, model.ProtocolHTTP, model.ProtocolHTTPS, model.ProtocolHTTPS, model.ProtocolTLS, model.ProtocolTCP}),
	}}
	if w.chance(0.2) {
		s.Bind = "10.0.0.1"
	}
	for _, h := range w.hosts(3) {
		s.Hosts = append(s.Hosts, model.HostSelector{Namespace: pick(w, append(worldNamespaces, "*", "*")), Host: h})
	}
	s.HTTPSRedirect = s.Port.Protocol.IsHTTP() && w.chance(0.3)
	if s.Port.Protocol.IsTLS() {
		s.TLS = &model.ServerTLS{Mode: pick(w, []model.ServerTLSMode{
			model.ServerPassthrough, model.ServerSimple, model.ServerSimple, model.ServerMutual, model.ServerOptionalMutual, model.ServerIstioMutual,
		})}
		if s.TLS.EndsTLS() && s.TLS.Mode != model.ServerIstioMutual {
			s.TLS.CredentialNames = []string{pick(w, worldNames)}
		}
	}
	return s
}

// boundService is a virtual service of gateways, and sometimes of sidecars, too.
func (w *world) boundService() model.Object {
	v := w.virtualService().(*model.VirtualService)
	v.Gateways = []string{pick(w, worldNamespaces) + "/" + pick(w, worldNames)}
	if w.chance(0.3) {
		v.Gateways = append(v.Gateways, pick(w, worldNamespaces)+"/"+pick(w, worldNames), model.GatewayMesh)
	}
	for i := range v.HTTP {
		for j := range v.HTTP[i].Matches {
			if w.chance(0.2) {
				v.HTTP[i].Matches[j].Gateways = v.Gateways[:1]
			}
		}
	}
	return v
}

// requireEmptyRouter: a router asks for Gateways, whether there are any.
func requireEmptyRouter(t *testing.T, s *proxyGroup) {
	t.Helper()
	if s.router == nil {
		return
	}
	require.Equal(t, gateway.NewPlan(), s.router.plan)
	require.Empty(t, s.router.hosts)
	require.Empty(t, s.router.dynamic)
	require.Empty(t, s.fixed.gatewayTLS)
	s.dependents.Replace(unit{kind: unitGateways}, nil)
}

func (w *world) kubernetesGateway() model.Object {
	g := w.gateway().(*model.Gateway)
	g.Kind, g.OwnNamespace = model.KindKubernetesGateway, true
	for i := range g.Servers {
		g.Servers[i].Hosts = g.Servers[i].Hosts[:1]
		g.Servers[i].Routes = pick(w, [][]model.Kind{
			{model.KindHTTPRoute, model.KindGRPCRoute}, {model.KindHTTPRoute}, {model.KindTLSRoute}, {model.KindTCPRoute}, {model.KindTLSRoute, model.KindTCPRoute},
		})
		if w.chance(0.5) {
			g.Servers[i].Namespaces = w.namespaceSelector()
		}
		if t := g.Servers[i].TLS; t.EndsTLS() && t.Mode != model.ServerIstioMutual && w.chance(0.5) {
			t.CredentialNames = append(t.CredentialNames, model.CredentialURL(pick(w, worldNamespaces)+"/"+pick(w, worldNames)))
			t.CredentialNames = t.CredentialNames[w.IntN(2):]
		}
	}
	return g
}

func (w *world) namespaceSelector() *model.LabelSelector {
	return pick(w, []*model.LabelSelector{
		{}, {Labels: map[string]string{"team": pick(w, worldNames)}}, {Labels: model.ImpliedLabels(pick(w, worldNamespaces))},
		{Expressions: []model.LabelExpression{{Key: "team", Operator: pick(w, []model.LabelOperator{model.LabelExists, model.LabelDoesNotExist})}}},
	})
}

// kubernetesRoute is bound to Gateways of the Gateway API, or to listeners of these.
func (w *world) kubernetesRoute() model.Object {
	v := w.boundService().(*model.VirtualService)
	v.Kind, v.Visibility = pick(w, []model.Kind{model.KindHTTPRoute, model.KindHTTPRoute, model.KindGRPCRoute, model.KindTLSRoute, model.KindTCPRoute}), model.Visibility{}
	if v.Kind == model.KindTLSRoute || v.Kind == model.KindTCPRoute {
		v.HTTP = nil
	} else {
		v.TCP, v.TLS = nil, nil
	}
	if len(v.Hosts) == 0 {
		v.Hosts = []model.Host{"*"}
	}
	v.Gateways = []string{model.KubernetesGatewayName(pick(w, worldNamespaces), pick(w, worldNames), pick(w, []string{"", "s0", "s1"}), pick(w, []uint32{0, 80, 443}))}
	for i := range v.HTTP {
		for j := range v.HTTP[i].Backends {
			if w.chance(0.3) {
				v.HTTP[i].Backends[j].Grant = &model.Key{Kind: model.KindService, Namespace: pick(w, worldNamespaces), Name: pick(w, worldNames)}
			}
		}
	}
	return v
}

func (w *world) referenceGrant() model.Object {
	if w.chance(0.5) {
		return &model.ReferenceGrant{
			Meta: w.meta(model.KindReferenceGrant), From: []model.GrantFrom{{Kind: "Gateway", Namespace: pick(w, worldNamespaces)}},
			To: []model.GrantTo{{Kind: string(model.KindSecret), Name: pick(w, append(worldNames, ""))}},
		}
	}
	return &model.ReferenceGrant{
		Meta: w.meta(model.KindReferenceGrant),
		From: []model.GrantFrom{{Kind: string(pick(w, []model.Kind{model.KindHTTPRoute, model.KindGRPCRoute})), Namespace: pick(w, worldNamespaces)}},
		To:   []model.GrantTo{{Kind: string(model.KindService), Name: pick(w, append(worldNames, ""))}},
	}
}
