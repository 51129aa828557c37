package status

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// TestAddressesOfServiceEntries checks that addresses are written as they are assigned, and cause no other
// write.
func TestAddressesOfServiceEntries(t *testing.T) {
	k := model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "db"}
	other := key("web")
	v4, v6 := netip.MustParseAddr("240.240.0.1"), netip.MustParseAddr("2001:2::1")
	given := map[model.Host][]netip.Addr{"b.example.com": {v4, v6}, "a.example.com": {v4.Next()}}
	const whole = `{"value":"240.240.0.2","host":"a.example.com"},{"value":"240.240.0.1","host":"b.example.com"},{"value":"2001:2::1","host":"b.example.com"}`
	const theirs = `{"type":"Other","status":"True"}`
	for _, c := range []struct {
		name, status string
		known        string // the status at the time of assignment; empty: unchanged
		given        map[model.Key]map[model.Host][]netip.Addr
		problem      string
		want         string // in the patch's status; empty: nothing is written
	}{
		{name: "complete", status: `{"addresses":[` + whole + `]}`},
		{name: "new", given: map[model.Key]map[model.Host][]netip.Addr{k: given},
			want: `{"addresses":[` + whole + `]}`},
		{name: "beside others' conditions", status: `{"conditions":[` + theirs + `],"addresses":[{"value":"240.240.0.1","host":"b.example.com"}]}`,
			given: map[model.Key]map[model.Host][]netip.Addr{k: given}, want: `{"addresses":[` + whole + `]}`},
		{name: "as they are, in another order and form", given: map[model.Key]map[model.Host][]netip.Addr{k: given},
			status: `{"addresses":[{"value":"240.240.0.1","host":"b.example.com"},{"value":"2001:2:0::0001","host":"B.example.com"},{"value":"240.240.0.2","host":"a.example.com"}]}`},
		{name: "none any more", status: `{"addresses":[` + whole + `]}`, given: map[model.Key]map[model.Host][]netip.Addr{k: nil}, want: `{"addresses":[]}`},
		{name: "another by now", status: `{"addresses":[` + whole + `]}`, known: `{"addresses":[{"value":"240.240.0.9","host":"b.example.com"}]}`,
			given: map[model.Key]map[model.Host][]netip.Addr{k: {"b.example.com": {v4.Next()}}}},
		{name: "nonsense", status: `{"addresses":[{"value":"soon","host":"b.example.com"}]}`, given: map[model.Key]map[model.Host][]netip.Addr{k: nil}, want: `{"addresses":[]}`},
		{name: "none", given: map[model.Key]map[model.Host][]netip.Addr{k: nil}},
		{name: "with what is wrong", given: map[model.Key]map[model.Host][]netip.Addr{k: {"a.example.com": {v4}}}, problem: "odd",
			want: `{"addresses":[{"value":"240.240.0.1","host":"a.example.com"}],"conditions":[{"type":"Reconciled","status":"True","reason":"AcceptedWithWarnings","message":"warning: odd",` +
				`"observedGeneration":1,"lastTransitionTime":"1970-01-01T00:00:00Z"}],"validationMessages":[{"level":"WARNING","type":{"code":"MSL0001","name":"MoonsailWarning"}}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewTracker()
			see(b, 1, "")
			s := &kube.Seen{Key: k, Version: "7", Generation: 1, Status: json.RawMessage(c.status)}
			if c.problem != "" {
				s.Problems = problem.List{problemOf(problem.SeverityWarning, c.problem)}
			}
			b.Seen(s)
			e := &model.ServiceEntry{Meta: model.Meta{Key: k}}
			was := parse(json.RawMessage(cmp.Or(c.known, c.status)))
			for _, a := range was.addresses {
				e.Status = append(e.Status, model.HostAddress{Host: model.Host(a.Host), Address: netip.MustParseAddr(a.Value)})
			}
			snap, _ := store.New().Apply([]store.Event{{Key: k, Object: e}})
			b.setAddresses(addresses(snap, c.given))
			u, err := b.update(k, time.Unix(0, 0))
			require.NoError(t, err)
			require.Equal(t, c.want != "", b.Queued() == 1)
			if c.want == "" {
				require.Nil(t, u)
				return
			}
			require.JSONEq(t, `{"metadata":{"resourceVersion":"7"},"status":`+c.want+`}`, string(u.patch))
			require.True(t, b.found(k, &live{"8", 1, json.RawMessage(c.want)}))
			u, err = b.update(k, time.Unix(0, 0))
			require.NoError(t, err)
			require.Nil(t, u, "the status has it now")
			u, err = b.update(other, time.Unix(0, 0))
			require.NoError(t, err)
			require.Nil(t, u)
		})
	}
}

// TestNoAddressLeft checks that the status of an entry without an address reports it, until it has one.
func TestNoAddressLeft(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.AutoAddresses.V4 = netip.MustParsePrefix("240.240.0.0/30")
	b, st := NewTracker(), store.New()
	c := &checker{tracker: b, mesh: mesh}
	var last model.Key
	for i, name := range []string{"a", "b", "c"} {
		e := &model.ServiceEntry{Meta: model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: name}, Created: time.Unix(int64(i), 0)}}
		e.Hosts, e.Template.Resolution, last = []model.Host{model.Host(name + ".example.com")}, model.ResolutionDNS, e.Key
		st.Apply([]store.Event{{Key: e.Key, Object: e}})
		b.Seen(&kube.Seen{Key: e.Key, Version: "1", Generation: 1})
	}
	c.analyze(st.Snapshot())
	u, err := b.update(last, time.Unix(0, 0))
	require.NoError(t, err)
	require.Contains(t, string(u.patch), `"reason":"AcceptedWithWarnings"`)
	require.Contains(t, string(u.patch), "all addresses of 240.240.0.0/30 are in use, so c.example.com has none")
	st.Apply([]store.Event{{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "a"}}})
	c.analyze(st.Snapshot())
	u, err = b.update(last, time.Unix(0, 0))
	require.NoError(t, err)
	require.NotContains(t, string(u.patch), "are taken")
	require.Contains(t, string(u.patch), `"value":"240.240.0.`)
}
