package dependencies

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func pod(name, owner, account string, labels map[string]string) *model.Workload {
	return &model.Workload{Meta: model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: name}, Labels: labels}, Owner: owner, ServiceAccount: account}
}

func labels(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func TestSelector(t *testing.T) {
	web := []model.Object{
		pod("web-1", "web", "web", labels("app", "web", "version", "v1", "pod-template-hash", "1", "tier", "front")),
		pod("web-2", "web", "web", labels("app", "web", "version", "v2", "pod-template-hash", "2", "tier", "front")),
	}
	for name, c := range map[string]struct {
		pods   []model.Object
		want   map[string]string
		shared bool
	}{
		"by name":              {web, labels("app", "web"), false},
		"no Pods":              {nil, nil, false},
		"another has its name": {append(web, pod("job-1", "job", "web", labels("app", "web"))), labels("tier", "front"), false},
		"another has all":      {append(web, pod("job-1", "job", "web", labels("app", "web", "tier", "front"))), labels("app", "web", "tier", "front"), true},
		"another account":      {append(web, pod("web-3", "web", "other", labels("app", "web", "tier", "x"))), labels("tier", "front"), false},
		"no labels":            {[]model.Object{pod("web-1", "web", "web", nil)}, nil, false},
		"only a hash":          {[]model.Object{pod("web-1", "web", "web", labels("pod-template-hash", "1"))}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, shared := workloadsOf(shop(c.pods...)()).selector(Workload{"shop", "web", "web"})
			require.Equal(t, c.want, got)
			require.Equal(t, c.shared, shared)
		})
	}
}

func entry(namespace, name string, host model.Host, v model.Visibility) *model.ServiceEntry {
	return &model.ServiceEntry{
		Meta: model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: namespace, Name: name}}, Hosts: []model.Host{host},
		Template: model.Service{
			Meta:       model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: namespace, Name: name}},
			Ports:      []model.ServicePort{{Number: 443, TargetName: "tls", Protocol: model.ProtocolTLS}},
			Visibility: v, Inline: []model.Endpoint{{Address: "192.0.2.2"}, {Address: "192.0.2.1"}, {Address: "bank.example.com"}},
		},
	}
}

// TestServiceOfACall finds the service that a caller sees: its own namespace's, then a Kubernetes Service.
func TestServiceOfACall(t *testing.T) {
	hidden := model.VisibilityOf([]string{"."}, "other")
	all := servicesOf(shop(entry("other", "a", "bank.example.com", hidden), entry("billing", "b", "bank.example.com", model.Visibility{}), entry("other", "c", reviews, model.Visibility{}))())
	require.Equal(t, Service{Kind: model.KindServiceEntry, Namespace: "billing", Name: "b", Addresses: []string{"192.0.2.1", "192.0.2.2"},
		Names: []string{"bank.example.com"}, Ports: []Port{{443, model.ProtocolTLS, "443"}}}, describe(all.of("bank.example.com", "shop"), nil))
	require.Equal(t, "a", describe(all.of("bank.example.com", "other"), nil).Name)
	require.Equal(t, Service{Kind: model.KindService, Namespace: "shop", Name: "reviews", Pods: labels("app", "reviews"),
		Ports: []Port{{80, model.ProtocolHTTP, "8080"}}}, describe(all.of(reviews, "shop"), nil))
	require.Equal(t, "c", describe(all.of(reviews, "other"), nil).Name, "a ServiceEntry of the callers' namespace precedes it")
	require.Equal(t, "reviews", describe(all.of(reviews, "billing"), nil).Name, "one of another namespace does not")
	require.Zero(t, describe(all.of("none", "shop"), nil))
}

// reporter has a web that calls reviews and ratings, and an api that calls reviews.
func reporter() (*world, *Reporter) {
	w := newWorld()
	p := &proxies{}
	p.add("web-7d4-x")
	w.Asked(proxyOf("web"), []string{clusterOf(80, reviews), "outbound|90|v1|" + reviews}, false)
	w.Called(WorkloadOf(proxyOf("web")), []model.Host{ratings})
	w.at = w.at.Add(time.Hour)
	other := proxyOf("api")
	other.Namespace = "billing"
	w.Asked(other, []string{clusterOf(80, reviews)}, false)
	return w, &Reporter{Memory: w.Memory, Scraper: &Scraper{Memory: w.Memory, Proxies: p}, Snapshot: shop(), RootNamespace: "istio-system"}
}

func TestReport(t *testing.T) {
	_, r := reporter()
	for name, c := range map[string]struct {
		ask  Question
		want []string
	}{
		"all":                    {Question{}, []string{"billing/api reviews", "shop/web ratings reviews"}},
		"a namespace":            {Question{Namespace: "billing"}, []string{"billing/api reviews"}},
		"a workload":             {Question{Workload: "web"}, []string{"shop/web ratings reviews"}},
		"a workload.namespace":   {Question{Workload: "api.billing"}, []string{"billing/api reviews"}},
		"of another namespace":   {Question{Workload: "api.shop"}, nil},
		"a Pod":                  {Question{Workload: "web-7d4-x.shop"}, []string{"shop/web ratings reviews"}},
		"callers of a service":   {Question{CallersOf: "ratings"}, []string{"shop/web ratings"}},
		"callers of a full name": {Question{CallersOf: "reviews.shop"}, []string{"billing/api reviews", "shop/web reviews"}},
		"callers of a host":      {Question{CallersOf: ratings}, []string{"shop/web ratings"}},
		"callers of none":        {Question{CallersOf: "ratings.other"}, nil},
		"callers of a part":      {Question{CallersOf: "rat"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range r.Report(c.ask).Workloads {
				text := w.Namespace + "/" + w.Name
				for _, call := range w.Calls {
					text += " " + call.Service.Name
				}
				got = append(got, text)
			}
			require.Equal(t, c.want, got)
		})
	}
	web := r.Report(Question{Workload: "web"}).Workloads[0]
	require.Equal(t, []uint32{80, 90}, web.Calls[1].Ports)
	require.Equal(t, []string{"v1"}, web.Calls[1].Subsets)
	require.Empty(t, web.Calls[0].Ports)
	require.Nil(t, web.Calls[0].Rate)
}

// TestJoin adds the report of a control plane whose clock is behind.
func TestJoin(t *testing.T) {
	w, r := reporter()
	here := r.Report(Question{})
	here.Now = w.at
	two := 2.0
	there := &Report{Now: w.at.Add(-time.Minute), LeftOut: 3, Workloads: []WorkloadReport{
		{Workload: Workload{"shop", "web", "cart"}, Proxies: 1},
		{Workload: WorkloadOf(proxyOf("web")), Proxies: 4, Selector: labels("app", "web"), Calls: []CallReport{
			{Host: "a.example.com", Rate: &two}, {Host: ratings, Rate: &two, Ports: []uint32{7}, First: w.at.Add(-3 * time.Hour), Last: w.at.Add(-time.Minute)},
		}},
	}}
	b, err := json.Marshal(there) // as a peer sends it
	require.NoError(t, err)
	there = &Report{}
	require.NoError(t, json.Unmarshal(b, there))
	here.Join(there)
	require.Equal(t, 3, here.LeftOut)
	require.Len(t, here.Workloads, 3)
	web := here.Workloads[2]
	require.Equal(t, "web", web.Name)
	require.Equal(t, 4, web.Proxies)
	require.Equal(t, labels("app", "web"), web.Selector)
	require.Len(t, web.Calls, 3)
	require.Equal(t, model.Host("a.example.com"), web.Calls[0].Host)
	called := web.Calls[1]
	require.Equal(t, []uint32{7}, called.Ports)
	require.InDelta(t, 2, *called.Rate, 0)
	require.True(t, called.First.Equal(w.at.Add(-3*time.Hour+time.Minute)), called.First)
	require.True(t, called.Last.Equal(w.at), called.Last)
	require.Equal(t, "ratings", called.Service.Name, "a peer without the service does not hide it")
}

// TestSelectingEntry has a ServiceEntry that selects WorkloadEntries, and one that also selects Pods.
func TestSelectingEntry(t *testing.T) {
	vm := &model.Workload{
		Meta:      model.Meta{Key: model.Key{Kind: model.KindWorkloadEntry, Namespace: "shop", Name: "vm"}, Labels: labels("app", "vm")},
		Addresses: []string{"192.0.2.7", "vm.example.com"}, NamedPorts: map[string]uint32{"http": 8080},
	}
	selecting := &model.Service{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "vm"}},
		Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Selector: labels("app", "vm"),
	}
	got := describe(selecting, workloadsOf(shop(vm, pod("web-1", "web", "web", labels("app", "web")))()))
	require.Empty(t, got.Pods)
	require.Equal(t, []string{"192.0.2.7"}, got.Addresses)
	require.Equal(t, []string{"vm.example.com"}, got.Names)
	require.Equal(t, []Port{{80, model.ProtocolHTTP, "8080"}}, got.Ports)
	got = describe(selecting, workloadsOf(shop(vm, pod("vm-1", "vm", "vm", labels("app", "vm")))()))
	require.Equal(t, labels("app", "vm"), got.Pods)
	require.Equal(t, []Port{{80, model.ProtocolHTTP, "80"}, {80, model.ProtocolHTTP, "8080"}}, got.Ports)
}

// TestJoinLeftOut counts the workloads that no control plane's answer has.
func TestJoinLeftOut(t *testing.T) {
	_, r := reporter()
	here := r.Report(Question{})
	web, cart, lost := WorkloadOf(proxyOf("web")), Workload{"shop", "cart", "cart"}, Workload{"shop", "lost", "lost"}
	here.Join(&Report{LeftOut: 3, LeftOutOf: []Workload{web, cart, lost}})
	require.Equal(t, 2, here.LeftOut)
	here.Join(&Report{Workloads: []WorkloadReport{{Workload: cart}}, LeftOut: 1, LeftOutOf: []Workload{lost}})
	require.Equal(t, 1, here.LeftOut)
	require.Equal(t, []Workload{lost}, here.LeftOutOf)
	here.Join(&Report{LeftOut: 2})
	require.Equal(t, 3, here.LeftOut, "an older peer does not name them")
}
