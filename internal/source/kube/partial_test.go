package kube

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func security(t *testing.T, kind model.Kind, version, spec string) *rawObject {
	t.Helper()
	o := &rawObject{}
	require.NoError(t, json.Unmarshal([]byte(`{"apiVersion":"security.istio.io/v1","kind":"`+string(kind)+`",
		"metadata":{"name":"web","namespace":"shop","resourceVersion":"`+version+`"},"spec":`+spec+`}`), o))
	return o
}

// answers are the statuses of a route's direct responses; 0: the rule forwards.
func answers(o model.Object) []uint32 {
	var out []uint32
	for _, r := range o.(*model.VirtualService).HTTP {
		out = append(out, 0)
		if r.DirectResponse != nil {
			out[len(out)-1] = r.DirectResponse.Status
		}
	}
	return out
}

// lastSeen is an observer that keeps what it saw last.
type lastSeen struct{ seen *Seen }

func (l *lastSeen) Seen(s *Seen)   { l.seen = s }
func (l *lastSeen) Gone(model.Key) { l.seen = nil }

// TestErrorsOpenNothing covers each kind whose valid parts apply. After an edit with an error the last valid version stays in
// force. After a restart, when that version is unknown, the valid parts apply.
func TestErrorsOpenNothing(t *testing.T) {
	for _, c := range []struct {
		kind      model.Kind
		good, bad string
		part      func(*testing.T, model.Object)
	}{
		{
			model.KindAuthorizationPolicy,
			`{"rules":[{"from":[{"source":{"ipBlocks":["10.0.0.0/8"]}}]}]}`, `{"rules":[{"from":[{"source":{"ipBlocks":["10.0.0.0/88"]}}]}]}`,
			func(t *testing.T, o model.Object) {
				p := o.(*model.AuthorizationPolicy)
				require.Equal(t, model.AuthorizeAllow, p.Action)
				require.Empty(t, p.Rules, "nothing is allowed")
			},
		},
		{
			model.KindAuthorizationPolicy,
			`{"selector":{"matchLabels":{"app":"web"}},"action":"DENY","rules":[{}]}`, `{"selector":{"matchLabels":{"app":"*"}},"action":"DENY","rules":[{}]}`,
			func(t *testing.T, o model.Object) {
				p := o.(*model.AuthorizationPolicy)
				require.Equal(t, model.AuthorizeDeny, p.Action)
				require.Empty(t, p.Selector, "the selector is unknown, so the policy applies to the whole namespace")
				require.Len(t, p.Rules, 1)
			},
		},
		{
			model.KindPeerAuthentication,
			`{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"STRICT"}}`,
			`{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"STRICT"},"portLevelMtls":{"70000":{"mode":"DISABLE"},"80":{"mode":"PERMISSIVE"}}}`,
			func(t *testing.T, o model.Object) {
				p := o.(*model.PeerAuthentication)
				require.Equal(t, model.MTLSStrict, p.Mode)
				require.Equal(t, map[uint32]model.MTLSMode{80: model.MTLSPermissive}, p.Ports)
			},
		},
		{
			model.KindRequestAuthentication,
			`{"jwtRules":[{"issuer":"https://a.example.com"}]}`, `{"jwtRules":[{"issuer":"https://a.example.com","jwks":"none"}]}`,
			func(t *testing.T, o model.Object) {
				rules := o.(*model.RequestAuthentication).Rules
				require.Len(t, rules, 1)
				require.Equal(t, model.NoKeys, rules[0].Keys, "no token is valid")
			},
		},
		{
			model.KindVirtualService,
			`{"hosts":["web"],"http":[{"match":[{"uri":{"prefix":"/a"}}],"route":[{"destination":{"host":"a"}}]},{"route":[{"destination":{"host":"b"}}]}]}`,
			`{"hosts":["web"],"http":[{"match":[{"uri":{"prefix":"/a"}}],"route":[{"destination":{"host":"a_"}}]},{"route":[{"destination":{"host":"b"}}]}]}`,
			func(t *testing.T, o model.Object) { require.Equal(t, []uint32{500, 0}, answers(o)) },
		},
		{
			model.KindHTTPRoute,
			`{"parentRefs":[{"name":"web"}],"rules":[{"matches":[{"path":{"value":"/a"}}],"backendRefs":[{"name":"a","port":80}]},{"backendRefs":[{"name":"b","port":80}]}]}`,
			`{"parentRefs":[{"name":"web"}],"rules":[{"matches":[{"path":{"value":"/a"}}],"backendRefs":[{"name":"a"}]},{"backendRefs":[{"name":"b","port":80}]}]}`,
			func(t *testing.T, o model.Object) { require.Equal(t, []uint32{500, 0}, answers(o)) },
		},
	} {
		t.Run(string(c.kind)+c.bad, func(t *testing.T) {
			k, in, _ := testSink(t, c.kind)
			observer := &lastSeen{}
			k.observer = observer
			require.NoError(t, k.Add(security(t, c.kind, "1", c.good)))
			require.Len(t, in.Take(), 1)
			require.NoError(t, k.Update(security(t, c.kind, "2", c.bad)))
			require.Empty(t, in.Take(), "the last valid version stays in force")
			require.Len(t, k.Problems(), 1)
			require.True(t, observer.seen.InForce)

			k, in, _ = testSink(t, c.kind)
			k.observer = observer
			require.NoError(t, k.Replace([]any{security(t, c.kind, "2", c.bad)}, ""))
			events := in.Take()
			require.Len(t, events, 1)
			c.part(t, events[0].Object)
			require.Equal(t, "2", events[0].Object.Metadata().ResourceVersion)
			require.Len(t, k.Problems(), 2)
			require.Equal(t, problem.SeverityWarning, observer.seen.Problems[1].Severity)
			require.Contains(t, observer.seen.Problems[1].Message, "until it is corrected")
			require.True(t, observer.seen.Salvaged)
			require.False(t, observer.seen.InForce)

			require.NoError(t, k.Update(security(t, c.kind, "3", c.good)))
			require.Len(t, in.Take(), 1)
			require.Empty(t, k.Problems())
			require.False(t, observer.seen.Salvaged)
			require.NoError(t, k.Update(security(t, c.kind, "4", c.bad)))
			require.Empty(t, in.Take(), "now a valid version is known")
		})
	}
}
