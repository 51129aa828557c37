package controlplane

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/moonsail/moonsail/internal/controlplane/istiodebug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/security/authn"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

const istioYAML = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec: {hosts: [cart], http: [{route: [{destination: {host: cart}}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bank, namespace: shop}
spec:
  hosts: [bank.example.com]
  exportTo: ["."]
  ports: [{number: 443, name: https, protocol: TLS}]
  resolution: STATIC
  location: MESH_EXTERNAL
  endpoints: [{address: 192.0.2.7, ports: {https: 8443}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "rootNamespace: istio-system\naccessLogFile: /dev/stdout\n"}
`

// startForIstioctl starts a control plane with a proxy, which has not ACKed its clusters.
func startForIstioctl(t *testing.T, transport server.Transport) *plane {
	t.Helper()
	o := options(t)
	o.Transport = transport
	require.NoError(t, os.WriteFile(filepath.Join(o.ConfigDir, "istio.yaml"), []byte(istioYAML), 0o600))
	p := start(t, o)
	subscribe(t, p.xds)
	return p
}

// page reads a debug page.
func (p *plane) page(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + p.http + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestPagesOfIstiod(t *testing.T) {
	p := startForIstioctl(t, server.TransportHTTP2)
	for _, tc := range []struct {
		path   string
		status int
		says   []string
	}{
		{"/debug/syncz", 200, []string{`"proxy": "web-1.shop"`, `"cluster_id": "Kubernetes"`, `"cluster_sent": "`, `"proxy_type": "sidecar"`, "envoy.config.cluster.v3.Cluster"}},
		{"/debug/syncz?namespace=bank", 200, []string{"[]"}},
		{"/debug/adsz", 200, []string{`"totalClients": 1`, `"connectionId": "web-1.shop-`}},
		{"/debug/registryz", 200, []string{
			`"hostname": "cart.shop.svc.cluster.local"`, `"ServiceRegistry": "Kubernetes"`, `"protocol": "HTTP"`, `"10.0.0.1"`,
			`"hostname": "bank.example.com"`, `"ServiceRegistry": "External"`, `"MeshExternal": true`, `"shop": {}`,
		}},
		{"/debug/endpointz", 200, []string{`"192.0.2.7"`, `"EndpointPort": 8443`, `"External/Kubernetes"`}},
		{"/debug/configz", 200, []string{`"kind": "VirtualService"`, `"host": "cart"`, `"kind": "ServiceEntry"`}},
		{"/debug/mesh", 200, []string{`"accessLogFile": "/dev/stdout"`}},
		{"/debug/resourcesz", 200, []string{`"kind": "VirtualService"`}},
		{"/debug/instancesz", 200, []string{`"web-1.shop": []`}},
		{"/debug/instancesz?proxy=web-1", 200, []string{`"web-1.shop": []`}},
		{"/debug/instancesz?proxyID=web-2.shop", 404, []string{"Proxy not connected to this Pilot instance. It may be connected to another instance."}},
		{"/debug/clusterz", 200, []string{`"syncStatus": "synced"`}},
		{"/debug/list", 200, []string{`"syncz"`, `"config_dump"`}},
		{"/debug/config_dump", 400, []string{"You must provide a proxyID in the query string"}},
		{"/debug/config_dump?proxyID=web-2.shop", 404, []string{"Proxy not connected to this Pilot instance. It may be connected to another instance."}},
		{"/debug/config_dump?proxyID=web-1.shop", 200, []string{"envoy.admin.v3.ClustersConfigDump", "outbound|80||cart.shop.svc.cluster.local"}},
		{"/debug/edsz?proxyID=web-1.shop", 200, []string{"configs"}},
		{"/debug/ndsz?proxyID=web-1.shop", 200, []string{`"table"`}},
		{"/version", 200, []string{`"clientVersion": {`, `"golang_version"`}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			status, body := p.page(t, tc.path)
			require.Equal(t, tc.status, status, body)
			for _, s := range tc.says {
				require.Contains(t, body, s)
			}
		})
	}
	_, body := p.page(t, "/debug/configz")
	require.NotContains(t, body, `"kind": "Service"`, "istiod has only its own kinds there")
	require.NotContains(t, body, "ConfigMap")
}

// TestSyncStatus checks what Kiali compares: sent and acked are equal only once a proxy has ACKed.
func TestSyncStatus(t *testing.T) {
	p := start(t, options(t))
	stream := subscribe(t, p.xds)
	sync := func() (sent, acked string) {
		_, body := p.page(t, "/debug/syncz")
		var list []struct {
			Sent  string `json:"cluster_sent"`
			Acked string `json:"cluster_acked"`
			Route string `json:"route_sent"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		require.Len(t, list, 1)
		require.Empty(t, list[0].Route, "it has not asked for routes")
		return list[0].Sent, list[0].Acked
	}
	sent, acked := sync()
	require.NotEqual(t, sent, acked)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", ResponseNonce: "1"}))
	require.Eventually(t, func() bool { sent, acked := sync(); return sent == acked && sent != "" }, time.Minute, 10*time.Millisecond)
}

// question asks as istioctl does: with the node of a proxy that does not exist.
func (p *plane) question(t *testing.T, typ string, names ...string) (*discovery.DiscoveryResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithCancel(await.Context(t))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	node := &core.Node{Id: "sidecar~10.1.0.9~test-1.istio-system~istio-system.svc.cluster.local"}
	require.NoError(t, stream.Send(&discovery.DiscoveryRequest{
		Node: node, TypeUrl: typ, ResourceNames: names, ResponseNonce: time.Now().String(), // as istioctl
	}))
	answer, err := stream.Recv()
	if err == nil {
		require.NoError(t, stream.Send(&discovery.DiscoveryRequest{TypeUrl: typ, ResponseNonce: answer.Nonce}), "istioctl acknowledges")
		require.NoError(t, stream.CloseSend())
		_, end := stream.Recv()
		require.ErrorIs(t, end, io.EOF)
	}
	return answer, err
}

func TestQuestionsOfIstioctl(t *testing.T) { overEach(t, questionsOfIstioctl) }

func questionsOfIstioctl(t *testing.T, transport server.Transport) {
	p := startForIstioctl(t, transport)

	answer, err := p.question(t, "istio.io/debug/syncz")
	require.NoError(t, err)
	require.Equal(t, "istio.io/debug/syncz", answer.TypeUrl)
	require.Contains(t, answer.ControlPlane.Identifier, `"Component":"istiod"`)
	require.Len(t, answer.Resources, 1, "not the stream of istioctl itself")
	var client statusv3.ClientConfig
	require.NoError(t, answer.Resources[0].UnmarshalTo(&client))
	require.Equal(t, "web-1.shop", client.Node.Id)
	require.Equal(t, "shop", client.Node.Metadata.Fields["NAMESPACE"].GetStringValue())
	require.Len(t, client.GenericXdsConfigs, 1)
	require.Equal(t, statusv3.ConfigStatus_STALE, client.GenericXdsConfigs[0].ConfigStatus)

	answer, err = p.question(t, "istio.io/debug/config_dump", "web-1.shop")
	require.NoError(t, err)
	text, err := protojson.Marshal(&admin.ConfigDump{Configs: answer.Resources})
	require.NoError(t, err)
	require.Contains(t, string(text), "outbound|80||cart.shop.svc.cluster.local")
	answer, err = p.question(t, "istio.io/debug/config_dump", "web-9.shop")
	require.NoError(t, err)
	require.Empty(t, answer.Resources)

	for name, says := range map[string]string{
		"syncz": `"proxy": "web-1.shop"`, "list": `"registryz"`, "edsz": "You must provide a proxyID", "cachez": "404 page not found",
		"config_dump?proxyID=web-1.shop": "outbound|80||cart", "syncz?namespace=bank": "[]",
	} {
		answer, err = p.question(t, "istio.io/debug", name)
		require.NoError(t, err, name)
		require.Contains(t, string(answer.Resources[0].Value), says, name)
	}

	_, err = p.question(t, "istio.io/debug/nonsense")
	requireStatus(t, err, codes.InvalidArgument, "istio.io/debug/nonsense: unknown type: use istio.io/debug/syncz, ")
	_, err = p.question(t, "istio.io/debug")
	requireStatus(t, err, codes.InvalidArgument, "exactly one debug page is required")
}

// holders are the owners of tokens.
type holders map[string]string

// Kind implements authn.Tokens.
func (holders) Kind() string { return "test" }

// Holder implements authn.Tokens.
func (h holders) Holder(_ context.Context, token string) (namespace, serviceAccount string, err error) {
	ns, ok := h[token]
	if !ok {
		return "", "", authn.ErrUnknown
	}
	return ns, "default", nil
}

func TestWhoMayAsk(t *testing.T) {
	s := &secure{opts: Options{Mesh: model.DefaultMesh()}, callers: &authn.Callers{
		TrustDomains: func(context.Context) ([]string, error) { return []string{"cluster.local"}, nil }, Tokens: []authn.Tokens{holders{"root": "istio-system", "shop": "shop"}},
	}}
	p := &parts{source: &source{}, opts: Options{Mesh: model.DefaultMesh()}}
	p.istiod = p.newIstioPages()
	const list = server.QuestionType
	for _, tc := range []struct {
		name    string
		may     func(context.Context, *server.Peer) error
		address string
		token   string
		code    codes.Code
		says    string
	}{
		{"a forwarded port", s.maySeeAll, "127.0.0.1:4711", "", codes.OK, ""},
		{"a forwarded port without TLS", nil, "[::1]:4711", "", codes.OK, ""},
		{"another host without TLS", nil, "10.1.0.9:4711", "Bearer root", codes.PermissionDenied, "answered only on the port with TLS, and to this host"},
		{"the root namespace", s.maySeeAll, "10.1.0.9:4711", "Bearer root", codes.OK, ""},
		{"another namespace", s.maySeeAll, "10.1.0.9:4711", "Bearer shop", codes.PermissionDenied, "use a service account of namespace istio-system"},
		{"no credentials", s.maySeeAll, "10.1.0.9:4711", "", codes.Unauthenticated, "neither a certificate nor a token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			peer := &server.Peer{Address: tc.address, Authorization: tc.token}
			_, err := p.questions(tc.may)(server.WithPeer(t.Context(), peer), &server.Question{TypeURL: list, Names: []string{"list"}})
			if tc.code == codes.OK {
				require.NoError(t, err)
				return
			}
			requireStatus(t, err, tc.code, tc.says)
		})
	}
}

// TestPagesOfAnAPIServer checks that the pages with users' objects list only what a control plane may list, and what they
// answer with.
func TestPagesOfAnAPIServer(t *testing.T) {
	const kinds = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"networking.istio.io"},"versions":[{"version":"v1","resources":[
		{"resource":"virtualservices","responseKind":{"kind":"VirtualService"},"verbs":["list","watch"]}]}]},
		{"metadata":{"name":"networking.k8s.io"},"versions":[{"version":"v1","resources":[
		{"resource":"ingresses","responseKind":{"kind":"Ingress"},"verbs":["list","watch"]}]}]}]}`
	answers := map[string]string{
		"/apis": kinds,
		"/apis/networking.istio.io/v1/virtualservices?limit=5000": `{"items":[{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"cart"}}]}`,
		"/api/v1/namespaces/istio-system/configmaps?fieldSelector=metadata.name%3Distio-blue&limit=5000": `{"kind":"ConfigMapList","apiVersion":"v1","items":[
			{"metadata":{"name":"istio-blue"},"data":{"mesh":"accessLogFile: /dev/stdout"}}]}`,
	}
	var mu sync.Mutex // guards asked
	var asked []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.String())
		text, ok := answers[r.URL.String()]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, text)
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`{clusters: [{name: c, cluster: {server: "`+api.URL+`"}}], contexts: [{name: x, context: {cluster: c}}], current-context: x}`), 0o600))
	o := options(t)
	o.Kubernetes, o.MeshConfigMap = &kube.Cluster{Kubeconfig: file}, "istio-blue"
	s, err := newSource(&o, changelog.NewMetrics())
	require.NoError(t, err)
	defer s.client.Close()
	pages := &istiodebug.Pages{Source: istiodebug.Source{Objects: s.raw, ConfigMaps: s.rawMesh, MeshConfig: "istio-blue"}}
	for _, tc := range []struct {
		page, body string
		asked      []string
	}{
		{"configz", `[{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"cart"}}]`, []string{"/apis", "/apis/networking.istio.io/v1/virtualservices?limit=5000"}},
		{"mesh", `{"accessLogFile":"/dev/stdout"}`, []string{"/api/v1/namespaces/istio-system/configmaps?fieldSelector=metadata.name%3Distio-blue&limit=5000"}},
	} {
		answer, err := pages.Answer(t.Context(), &server.Question{TypeURL: server.QuestionType, Names: []string{tc.page}})
		require.NoError(t, err)
		require.JSONEq(t, tc.body, string(answer.Resources[0].Value), tc.page)
		mu.Lock()
		require.Equal(t, tc.asked, asked, tc.page)
		asked = nil
		mu.Unlock()
	}
}

func TestItemsOf(t *testing.T) {
	items, err := itemsOf([]byte(`{"apiVersion":"v1","kind":"ConfigMapList","items":[{"metadata":{"name":"istio","managedFields":[{"manager":"kubectl"}]}}]}`))
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.JSONEq(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"istio"}}`, string(items[0]))
	_, err = itemsOf([]byte("no"))
	require.Error(t, err)
}
