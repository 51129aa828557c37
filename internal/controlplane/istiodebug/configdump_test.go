package istiodebug

import (
	"net/http"
	"net/http/httptest"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
)

// oneProxy is a connected proxy, with what it should have.
type oneProxy struct {
	distribution.Proxies
	name string
	list []distribution.Intended
}

func (p oneProxy) Intended(proxy string, _ ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	return &model.Proxy{}, p.list, proxy == p.name
}

// intended returns a resource of a proxy.
func intended(t *testing.T, typ resource.Type, name string, m proto.Message) distribution.Intended {
	t.Helper()
	encoded, err := resource.Encode(typ, name, m)
	require.NoError(t, err)
	all := table.New("t")
	all.Commit(1, []table.Update{{Type: typ, Name: name, Resource: encoded}})
	return distribution.Intended{Type: typ, Entry: all.State().Get(typ, name)}
}

// serve asks for a page by HTTP.
func (p *Pages) serve(w http.ResponseWriter, name string) {
	r := httptest.NewRequest(http.MethodGet, "/debug/"+name, http.NoBody)
	for _, page := range p.All() {
		if r.URL.Path == "/debug/"+page.Name {
			page.Serve(w, r)
		}
	}
}

func (p *Pages) get(name string) (status int, body string) {
	w := httptest.NewRecorder()
	p.serve(w, name)
	return w.Code, w.Body.String()
}

// TestConfigurationThatCannotBeDumped checks that a failure is not an empty answer, which istioctl takes for a proxy of
// another replica.
func TestConfigurationThatCannotBeDumped(t *testing.T) {
	all := table.New("t")
	all.Commit(1, []table.Update{{Type: resource.Extension, Name: "bad", Resource: resource.EncodeBytes(resource.Extension, "bad", []byte{0xff})}})
	p := &Pages{Source: Source{Resources: oneProxy{name: "web-1.shop", list: []distribution.Intended{
		{Type: resource.Extension, Entry: all.State().Get(resource.Extension, "bad")},
	}}}}
	_, err := p.Answer(t.Context(), &server.Question{TypeURL: typeConfigDump, Names: []string{"web-1.shop"}})
	require.ErrorContains(t, err, "istio.io/debug/config_dump: web-1.shop: ")
	status, _ := p.get("config_dump?proxyID=web-1.shop")
	require.Equal(t, http.StatusInternalServerError, status)

	answer, err := p.Answer(t.Context(), &server.Question{TypeURL: typeConfigDump, Names: []string{"web-2.shop"}})
	require.NoError(t, err)
	require.Empty(t, answer.Resources)
}

// TestCredentialsOfPluginsAreNotShown checks that no answer has a plugin's registry credentials, by HTTP or by xDS.
func TestCredentialsOfPluginsAreNotShown(t *testing.T) {
	var list []distribution.Intended
	for name, network := range map[string]bool{"shop.http": false, "shop.network": true} {
		plugin, err := listener.Extension(&ir.Wasm{
			Name: name, Network: network, Module: model.WasmModule{URL: "oci://example.com/" + name}, Login: model.NewPrivateKey("password"),
		})
		require.NoError(t, err)
		one := intended(t, resource.Extension, name, plugin)
		require.Contains(t, string(one.Entry.Resource().Value()), "password")
		list = append(list, one)
	}
	p := &Pages{Source: Source{Resources: oneProxy{name: "web-1.shop", list: list}}}

	answers := map[string]string{}
	for _, page := range []string{"config_dump?proxyID=web-1.shop", "ecdsz?proxyID=web-1.shop"} {
		status, body := p.get(page)
		require.Equal(t, http.StatusOK, status, body)
		answers[page] = body
		answer, err := p.Answer(t.Context(), &server.Question{TypeURL: server.QuestionType, Names: []string{page}})
		require.NoError(t, err)
		answers["xDS "+page] = string(answer.Resources[0].Value)
	}
	answer, err := p.Answer(t.Context(), &server.Question{TypeURL: typeConfigDump, Names: []string{"web-1.shop"}})
	require.NoError(t, err)
	text, err := protojson.Marshal(&adminv3.ConfigDump{Configs: answer.Resources})
	require.NoError(t, err)
	answers["xDS"] = string(text)
	for name, text := range answers {
		require.NotContains(t, text, "password", name)
		for _, part := range []string{wasmplugin.Redacted, "oci://example.com/shop.http", "oci://example.com/shop.network"} {
			require.Contains(t, text, part, name)
		}
	}
}
