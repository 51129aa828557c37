package changelog

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

func TestMetricsOfAChange(t *testing.T) {
	m := NewMetrics()
	l := New(8, slog.New(slog.DiscardHandler), m)
	build(l, 1, object(model.KindVirtualService, "reviews"), object(model.KindVirtualService, "ratings"), object(model.KindPod, "a"))
	l.Published(1, 2, at(1))
	l.Sent(1, at(2))
	l.Settled(0, 1, distribution.ACKed, at(3))
	l.Settled(0, 1, distribution.NACKed, at(150))

	require.NoError(t, testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP moonsail_change_outcomes_total Outcomes of changes for proxies bound to what changed, counted when a change is distributed.
# TYPE moonsail_change_outcomes_total counter
moonsail_change_outcomes_total{outcome="acked"} 1
moonsail_change_outcomes_total{outcome="gone"} 0
moonsail_change_outcomes_total{outcome="nacked"} 1
moonsail_change_outcomes_total{outcome="not_concerned"} 0
# HELP pilot_inbound_updates Total number of updates received by pilot, after events of one object have coalesced.
# TYPE pilot_inbound_updates counter
pilot_inbound_updates{type="config"} 2
pilot_inbound_updates{type="eds"} 1
# HELP pilot_push_triggers Total number of times a push was triggered, labeled by reason for the push.
# TYPE pilot_push_triggers counter
pilot_push_triggers{type="config"} 1
pilot_push_triggers{type="endpoint"} 1
`), "moonsail_change_outcomes_total", "pilot_inbound_updates", "pilot_push_triggers"))

	// One observation per kind, not per object; six stages with the total, two kinds.
	require.Equal(t, 12, testutil.CollectAndCount(m.propagation))
	require.Equal(t, 2, testutil.CollectAndCount(m.waited))
	require.Equal(t, []string{"1 in 0.15 s"}, counts(t, m, "VirtualService", "total"))
}

// counts describes one propagation histogram.
func counts(t *testing.T, m *Metrics, kind, stage string) []string {
	t.Helper()
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	var got []string
	for _, f := range families {
		if f.GetName() != "moonsail_propagation_seconds" {
			continue
		}
		for _, s := range f.GetMetric() {
			l := s.GetLabel()
			if l[0].GetValue() == kind && l[1].GetValue() == stage {
				h := s.GetHistogram()
				got = append(got, fmt.Sprintf("%d in %.2f s", h.GetSampleCount(), h.GetSampleSum()))
			}
		}
	}
	return got
}

// TestVersionsAreBounded checks the bound on versions, which proxies report and which each have a series.
func TestVersionsAreBounded(t *testing.T) {
	m := NewMetrics()
	reported := []string{strings.Repeat("1", 1000)}
	for i := range 1000 {
		reported = append(reported, fmt.Sprintf("1.%d.0", i))
	}
	for _, version := range reported {
		m.Connected(version, 1)
	}
	require.Equal(t, maxVersions+1, testutil.CollectAndCount(m.proxies))
	require.InDelta(t, len(reported)-maxVersions, testutil.ToFloat64(m.proxies.WithLabelValues(otherVersion)), 0)
	for _, version := range reported {
		m.Connected(version, -1)
	}
	require.Zero(t, testutil.ToFloat64(m.proxies.WithLabelValues(otherVersion)))
	require.Zero(t, testutil.ToFloat64(m.proxies.WithLabelValues("1.0.0")))
}

func TestStreamMetrics(t *testing.T) {
	m := NewMetrics()
	m.Connected("1.31.1", 1)
	m.Connected("", 1)
	m.Connected("", -1)
	m.Pushed(resource.Cluster, 100, true)
	m.Pushed(resource.RouteConfig, 100, false)
	m.Pushed(resource.VHDSRouteConfig, 100, false)
	m.Queued(time.Millisecond)
	m.Took(resource.Cluster, time.Millisecond)
	m.Delivered(time.Millisecond)
	m.Rejected(resource.Listener)
	m.Inventory(func() int { return 3 }, func(k model.Kind) int { return len(k) })
	m.IntakeDepth(func(k model.Kind) int { return len(k) })
	m.KubernetesEvent("Pods", false, "add")
	m.KubernetesEvent("VirtualService", true, "update")
	m.APIServerDelay("watch", 3*time.Millisecond)
	require.NoError(t, testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP moonsail_pushes_total Responses sent, by type of resource and extent. full: the first one of its type on a stream, and state-of-the-world responses that must have everything; partial: only what differs.
# TYPE moonsail_pushes_total counter
moonsail_pushes_total{extent="full",type="bds"} 0
moonsail_pushes_total{extent="full",type="cds"} 1
moonsail_pushes_total{extent="full",type="ecds"} 0
moonsail_pushes_total{extent="full",type="eds"} 0
moonsail_pushes_total{extent="full",type="lds"} 0
moonsail_pushes_total{extent="full",type="nds"} 0
moonsail_pushes_total{extent="full",type="rds"} 0
moonsail_pushes_total{extent="full",type="sds"} 0
moonsail_pushes_total{extent="full",type="srds"} 0
moonsail_pushes_total{extent="full",type="vhds"} 0
moonsail_pushes_total{extent="partial",type="bds"} 0
moonsail_pushes_total{extent="partial",type="cds"} 0
moonsail_pushes_total{extent="partial",type="ecds"} 0
moonsail_pushes_total{extent="partial",type="eds"} 0
moonsail_pushes_total{extent="partial",type="lds"} 0
moonsail_pushes_total{extent="partial",type="nds"} 0
moonsail_pushes_total{extent="partial",type="rds"} 2
moonsail_pushes_total{extent="partial",type="sds"} 0
moonsail_pushes_total{extent="partial",type="srds"} 0
moonsail_pushes_total{extent="partial",type="vhds"} 0
# HELP pilot_k8s_cfg_events Events from k8s config: of Istio's objects. updatesame: an update without meaning to the mesh.
# TYPE pilot_k8s_cfg_events counter
pilot_k8s_cfg_events{event="update",type="VirtualService"} 1
# HELP pilot_k8s_reg_events Events from k8s registry: of Kubernetes' own objects. updatesame: an update without meaning to the mesh.
# TYPE pilot_k8s_reg_events counter
pilot_k8s_reg_events{event="add",type="Pods"} 1
# HELP pilot_services Total services known to pilot.
# TYPE pilot_services gauge
pilot_services 3
# HELP pilot_total_xds_rejects Total number of XDS responses from pilot rejected by proxy.
# TYPE pilot_total_xds_rejects counter
pilot_total_xds_rejects{type="lds"} 1
# HELP pilot_virt_services Total virtual services known to pilot.
# TYPE pilot_virt_services gauge
pilot_virt_services 14
# HELP pilot_worker_queue_depth Objects of a kind whose events wait for the next batch.
# TYPE pilot_worker_queue_depth gauge
pilot_worker_queue_depth{queueID="AuthorizationPolicy"} 19
pilot_worker_queue_depth{queueID="BackendTLSPolicy"} 16
pilot_worker_queue_depth{queueID="ConfigMap"} 9
pilot_worker_queue_depth{queueID="DestinationRule"} 15
pilot_worker_queue_depth{queueID="DrainNotice"} 11
pilot_worker_queue_depth{queueID="EndpointSlice"} 13
pilot_worker_queue_depth{queueID="EnvoyFilter"} 11
pilot_worker_queue_depth{queueID="GRPCRoute"} 9
pilot_worker_queue_depth{queueID="Gateway"} 7
pilot_worker_queue_depth{queueID="HTTPRoute"} 9
pilot_worker_queue_depth{queueID="Ingress"} 7
pilot_worker_queue_depth{queueID="IngressClass"} 12
pilot_worker_queue_depth{queueID="KeySet"} 6
pilot_worker_queue_depth{queueID="KubernetesGateway"} 17
pilot_worker_queue_depth{queueID="ListenerSet"} 11
pilot_worker_queue_depth{queueID="Namespace"} 9
pilot_worker_queue_depth{queueID="Node"} 4
pilot_worker_queue_depth{queueID="PeerAuthentication"} 18
pilot_worker_queue_depth{queueID="Pod"} 3
pilot_worker_queue_depth{queueID="ProxyConfig"} 11
pilot_worker_queue_depth{queueID="ReferenceGrant"} 14
pilot_worker_queue_depth{queueID="RequestAuthentication"} 21
pilot_worker_queue_depth{queueID="Secret"} 6
pilot_worker_queue_depth{queueID="Service"} 7
pilot_worker_queue_depth{queueID="ServiceEntry"} 12
pilot_worker_queue_depth{queueID="Sidecar"} 7
pilot_worker_queue_depth{queueID="TCPRoute"} 8
pilot_worker_queue_depth{queueID="TLSRoute"} 8
pilot_worker_queue_depth{queueID="Telemetry"} 9
pilot_worker_queue_depth{queueID="VirtualService"} 14
pilot_worker_queue_depth{queueID="WasmPlugin"} 10
pilot_worker_queue_depth{queueID="WorkloadEntry"} 13
# HELP pilot_xds Number of endpoints connected to this pilot using XDS.
# TYPE pilot_xds gauge
pilot_xds{version="1.31.1"} 1
pilot_xds{version="unknown"} 0
# HELP pilot_xds_pushes Responses sent, by type of resource.
# TYPE pilot_xds_pushes counter
pilot_xds_pushes{type="bds"} 0
pilot_xds_pushes{type="cds"} 1
pilot_xds_pushes{type="ecds"} 0
pilot_xds_pushes{type="eds"} 0
pilot_xds_pushes{type="lds"} 0
pilot_xds_pushes{type="nds"} 0
pilot_xds_pushes{type="rds"} 2
pilot_xds_pushes{type="sds"} 0
pilot_xds_pushes{type="srds"} 0
pilot_xds_pushes{type="vhds"} 0
`), "moonsail_pushes_total", "pilot_k8s_cfg_events", "pilot_k8s_reg_events", "pilot_services", "pilot_total_xds_rejects", "pilot_virt_services", "pilot_worker_queue_depth", "pilot_xds", "pilot_xds_pushes"))
}

// TestTimesOfPushes checks that each time is observed once, under Istio's name and labels.
func TestTimesOfPushes(t *testing.T) {
	m := NewMetrics()
	m.Queued(time.Millisecond)
	m.Took(resource.VHDSRouteConfig, time.Millisecond)
	m.Delivered(time.Millisecond)
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if h := s.GetHistogram(); h.GetSampleCount() > 0 {
				name := f.GetName()
				for _, l := range s.GetLabel() {
					name += " " + l.GetName() + "=" + l.GetValue()
				}
				counts[name] = h.GetSampleCount()
			}
		}
	}
	require.Equal(t, map[string]uint64{"pilot_proxy_queue_time": 1, "pilot_xds_push_time type=rds": 1, "pilot_xds_send_time": 1}, counts)
}

// TestPropagationIsNativeToo checks that the histogram has a native form and buckets.
func TestPropagationIsNativeToo(t *testing.T) {
	m := NewMetrics()
	l := New(8, slog.New(slog.DiscardHandler), m)
	build(l, 1, object(model.KindPod, "a"))
	l.Published(1, 0, at(1))
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "moonsail_propagation_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			require.NotNil(t, h.Schema)
			require.InDelta(t, .001, h.GetBucket()[0].GetUpperBound(), 0, "from 1 ms")
		}
	}
}

// TestLint checks that all metrics follow the conventions of Prometheus, except those with Istio's names.
func TestLint(t *testing.T) {
	m := NewMetrics()
	problems, err := testutil.GatherAndLint(m.Registry)
	require.NoError(t, err)
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "pilot_") && !strings.HasPrefix(p.Metric, "galley_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
