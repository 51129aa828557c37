package doctor_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/doctor"
)

// metrics reads metrics.
func metrics(t *testing.T, text string) doctor.Metrics {
	t.Helper()
	m, err := doctor.ParseMetrics(strings.NewReader(text))
	require.NoError(t, err)
	return m
}

// histogram returns n observations, all between two bounds, in Prometheus' text format.
func histogram(name, labels string, n int, above, upTo, sum float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# TYPE %s histogram\n", name)
	fmt.Fprintf(&b, "%s_bucket{%sle=%q} 0\n", name, labels, fmt.Sprint(above))
	fmt.Fprintf(&b, "%s_bucket{%sle=%q} %d\n%s_bucket{%sle=\"+Inf\"} %d\n", name, labels, fmt.Sprint(upTo), n, name, labels, n)
	label := strings.TrimSuffix(labels, ",")
	fmt.Fprintf(&b, "%s_sum{%s} %g\n%s_count{%s} %d\n", name, label, sum, name, label, n)
	return b.String()
}

const (
	istiod   = "# TYPE pilot_info gauge\npilot_info{version=\"1.30\"} 1\n"
	moonsail = "# TYPE moonsail_build_info gauge\nmoonsail_build_info{version=\"v1\"} 1\n"
)

// findings returns the findings about a control plane, by check.
func findings(t *testing.T, e *doctor.PlaneEvidence) (map[string]doctor.Finding, *doctor.Report) {
	t.Helper()
	r := doctor.Examine(&doctor.Evidence{At: time.Unix(1_000_000, 0), ControlPlane: e})
	out := map[string]doctor.Finding{}
	for _, f := range r.Findings {
		require.NotEmpty(t, f.What, f.Check)
		require.NotEmpty(t, f.Evidence, f.Check)
		require.NotEmpty(t, f.Advice, f.Check)
		out[f.Check] = f
	}
	return out, r
}

// TestFindings checks that each problem is found by its evidence, with the stage or setting that causes
// it.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		check, plane, text string
		severity           doctor.Severity
		evidence, advice   string
	}{
		{
			"convergence", istiod,
			histogram("pilot_proxy_convergence_time", "", 100, 3, 5, 400) + histogram("pilot_proxy_queue_time", "", 100, 1, 3, 200) +
				histogram("pilot_pushcontext_init_seconds", "", 10, 0.01, 0.1, 0.5),
			doctor.Critical, "pilot_proxy_convergence_time: p99 5s, mean 4s, of 100, since it started", "PILOT_PUSH_THROTTLE",
		},
		{"convergence", moonsail, histogram("pilot_proxy_convergence_time", "", 100, 3, 30, 2000), doctor.Critical, "p99 30s", "moonsail changes"},
		{"debounce", istiod, histogram("pilot_debounce_time", "", 10, 0.5, 1, 7), doctor.Warning, "p99 995ms", "PILOT_DEBOUNCE_AFTER"},
		{"debounce", istiod, histogram("pilot_debounce_time", "", 10, 5, 10, 70), doctor.Critical, "p99 10s", "PILOT_DEBOUNCE_MAX"},
		{"debounce", istiod, "", doctor.Unknown, "pilot_debounce_time: missing", "upgrade istiod"},
		{"push-queue", istiod, histogram("pilot_proxy_queue_time", "", 10, 1, 3, 20), doctor.Critical, "pilot_proxy_queue_time: p99 3s", "PILOT_PUSH_THROTTLE"},
		{"push-context", istiod, histogram("pilot_pushcontext_init_seconds", "", 10, 0.3, 0.5, 4), doctor.Warning, "p99 498ms", "exportTo"},
		{
			"push-size", istiod, histogram("pilot_xds_config_size_bytes", `type="type.googleapis.com/envoy.config.cluster.v3.Cluster",`, 10, 100000, 1e6, 5e6),
			doctor.Warning, `Cluster"}: 500 KB at the mean of 10`, "Sidecar resource",
		},
		{"cache", istiod, "# TYPE xds_cache_reads counter\nxds_cache_reads{type=\"hit\"} 100\nxds_cache_reads{type=\"miss\"} 2000\n", doctor.Warning, "2000 of 2100 missed", "PILOT_ENABLE_RDS_CACHE"},
		{"rejects", istiod, "# TYPE pilot_total_xds_rejects counter\npilot_total_xds_rejects{type=\"lds\"} 3\n", doctor.Critical, `pilot_total_xds_rejects{type="lds"} 3`, "istioctl proxy-status"},
		{"rejects", moonsail, "# TYPE pilot_total_xds_rejects counter\npilot_total_xds_rejects{type=\"lds\"} 3\n", doctor.Critical, `pilot_total_xds_rejects{type="lds"} 3`, "moonsail proxies"},
		{"send-errors", istiod, "# TYPE pilot_xds_write_timeout counter\npilot_xds_write_timeout 2\n", doctor.Critical, "pilot_xds_write_timeout 2", "throttled sidecars"},
		{"intake-queue", istiod, "", doctor.Unknown, "pilot_worker_queue_depth: missing", "ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS=true"},
		{
			"intake-queue", istiod, "# TYPE pilot_worker_queue_depth gauge\npilot_worker_queue_depth{queueID=\"endpoints\"} 20000\npilot_worker_queue_depth{queueID=\"nodes\"} 1\n",
			doctor.Warning, `pilot_worker_queue_depth{queueID="endpoints"} 20000`, "PILOT_PUSH_THROTTLE",
		},
		{"intake-queue", moonsail, "# TYPE pilot_worker_queue_depth gauge\npilot_worker_queue_depth 1\n" + histogram("pilot_worker_queue_latency", "", 5, 1, 5, 10), doctor.Critical, "pilot_worker_queue_latency: p99 5s", "pilot_k8s_reg_events"},
		{"api-server-delay", istiod, "", doctor.Unknown, "no metric", "audit log"},
		{"api-server-delay", moonsail, histogram("moonsail_apiserver_delay_seconds", "", 5, 1, 5, 10), doctor.Critical, "p99 5s", "etcd"},
		{"stale-endpoints", istiod, "", doctor.Unknown, "does not track", "--sidecar"},
		{"stale-endpoints", moonsail, "# TYPE moonsail_stale_proxies gauge\nmoonsail_stale_proxies 2\n", doctor.Critical, "moonsail_stale_proxies 2", "moonsail stale"},
		{"config-errors", moonsail, "# TYPE moonsail_configuration_errors gauge\nmoonsail_configuration_errors 2\n", doctor.Warning, "moonsail_configuration_errors 2", "moonsail analyze"},
		{"conflicts", istiod, "# TYPE pilot_vservice_dup_domain gauge\npilot_vservice_dup_domain{} 1\n", doctor.Warning, "pilot_vservice_dup_domain 1", "moonsail analyze"},
		{"root-certificate", istiod, "# TYPE citadel_server_root_cert_expiry_timestamp gauge\ncitadel_server_root_cert_expiry_timestamp 1864000\n", doctor.Critical, "in 10 days", "overlap"},
	} {
		t.Run(c.check, func(t *testing.T) {
			found, _ := findings(t, &doctor.PlaneEvidence{Address: "istiod", Now: metrics(t, c.plane+c.text)})
			f := found[c.check]
			require.Equal(t, c.severity, f.Severity)
			require.Contains(t, strings.Join(f.Evidence, "\n"), c.evidence)
			require.Contains(t, strings.Join(f.Advice, "\n"), c.advice)
		})
	}
}

// TestHealthy checks that healthy checks are listed, and that a check without evidence is not.
func TestHealthy(t *testing.T) {
	quick := histogram("pilot_proxy_convergence_time", "", 100, 0.001, 0.01, 0.5) + histogram("pilot_debounce_time", "", 5, 0, 0.001, 0.001)
	found, r := findings(t, &doctor.PlaneEvidence{Address: "here", Now: metrics(t, moonsail+quick)})
	require.Empty(t, found)
	require.False(t, r.HasCritical())
	var well []string
	for _, h := range r.Healthy {
		well = append(well, h.Check)
	}
	require.Subset(t, well, []string{"convergence", "debounce", "rejects", "stale-endpoints"})
	require.NotContains(t, well, "intake-queue")
	require.NotContains(t, well, "cpu", "it takes two looks")
	found, r = findings(t, &doctor.PlaneEvidence{Now: metrics(t, istiod+quick)})
	require.False(t, r.HasCritical())
	require.Len(t, found, 3, "what istiod does not tell: %v", found)
}

// TestWatched checks that earlier counts do not count while the process is watched.
func TestWatched(t *testing.T) {
	slow := func(rejects, cpu int, more string) doctor.Metrics {
		return metrics(t, istiod+fmt.Sprintf("# TYPE pilot_total_xds_rejects counter\npilot_total_xds_rejects{type=\"lds\"} %d\n", rejects)+
			fmt.Sprintf("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %d\n# TYPE go_sched_gomaxprocs_threads gauge\ngo_sched_gomaxprocs_threads 2\n", cpu)+more)
	}
	before := histogram("pilot_proxy_convergence_time", "", 100, 10, 20, 1500)
	after := "# TYPE pilot_proxy_convergence_time histogram\n" +
		"pilot_proxy_convergence_time_bucket{le=\"0.1\"} 50\npilot_proxy_convergence_time_bucket{le=\"10\"} 50\npilot_proxy_convergence_time_bucket{le=\"20\"} 150\n" +
		"pilot_proxy_convergence_time_bucket{le=\"+Inf\"} 150\npilot_proxy_convergence_time_sum 1501\npilot_proxy_convergence_time_count 150\n"
	now := &doctor.PlaneEvidence{Now: slow(3, 118, after)}
	found, _ := findings(t, now)
	require.Contains(t, found, "convergence")
	require.Contains(t, found, "rejects")
	require.NotContains(t, found, "cpu")
	now.Before, now.Over = slow(3, 100, before), 10*time.Second
	found, _ = findings(t, now)
	require.NotContains(t, found, "convergence", "the 50 since then took less")
	require.NotContains(t, found, "rejects")
	require.Equal(t, []string{"process_cpu_seconds_total: 1.8 CPUs of 2 (go_sched_gomaxprocs_threads), for 10s"}, found["cpu"].Evidence)
	now.Before = slow(9, 200, before) // the process restarted
	found, _ = findings(t, now)
	require.Contains(t, found, "rejects")
}

// proxyFindings returns the findings about an Envoy, by check.
func proxyFindings(e doctor.ProxyEvidence) map[string]doctor.Finding {
	out := map[string]doctor.Finding{}
	for _, f := range doctor.Examine(&doctor.Evidence{Sidecars: []doctor.ProxyEvidence{e}}).Findings {
		out[f.Check] = f
	}
	return out
}

// withStatistics adds a statistic for each check that needs one. None of them is about a problem.
func withStatistics(stats map[string]uint64) map[string]uint64 {
	out := map[string]uint64{
		"control_plane.connected_state": 1, "cluster.outbound|80||b;.upstream_rq_pending_overflow": 0, "cluster.outbound|80||b;.update_rejected": 0,
		"http.outbound_0.0.0.0_80;.rds.80.update_rejected": 0,
	}
	maps.Copy(out, stats)
	return out
}

// TestWorkers checks the case of a report, one worker with 11,500 connections and the others with 1,000, and connections that
// are spread by chance.
func TestWorkers(t *testing.T) {
	for name, tc := range map[string]struct {
		workers []uint64
		want    string
	}{
		"one has most":            {[]uint64{11_500, 1000, 1000, 1000}, "11500 of 14500 connections on one of 4 workers, 3.2 times the mean"},
		"one has all":             {[]uint64{32, 0, 0, 0, 0, 0, 0, 0}, "32 of 32 connections on one of 8 workers, 8.0 times the mean"},
		"equal":                   {[]uint64{1100, 1000, 1000, 1000}, ""},
		"few, by chance":          {[]uint64{8, 6, 5, 4, 3, 3, 2, 1}, ""},
		"many workers, by chance": {[]uint64{9, 2, 5, 3, 4, 4, 7, 1, 3, 6, 2, 4, 5, 3, 4, 2}, ""},
		"too few":                 {[]uint64{31, 0}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			stats := withStatistics(nil)
			for worker, n := range tc.workers {
				stats[fmt.Sprintf("listener.0.0.0.0_15006.worker_%d.downstream_cx_active", worker)] = n
			}
			found := proxyFindings(doctor.ProxyEvidence{Concurrency: len(tc.workers), Now: stats})
			if tc.want == "" {
				require.Empty(t, found)
				return
			}
			require.Equal(t, doctor.Critical, found["worker-balance"].Severity)
			require.Equal(t, []string{"listener 0.0.0.0_15006: " + tc.want}, found["worker-balance"].Evidence)
		})
	}
	require.Equal(t, doctor.Unknown, proxyFindings(doctor.ProxyEvidence{Concurrency: 4, Now: withStatistics(nil)})["worker-balance"].Severity)
	require.Empty(t, proxyFindings(doctor.ProxyEvidence{Concurrency: 1, Now: withStatistics(nil)}))
}

// TestStatisticsThatAreNotKept checks that no check is well whose statistics the default bootstrap does not keep.
func TestStatisticsThatAreNotKept(t *testing.T) {
	e := doctor.ProxyEvidence{Concurrency: 1, Now: map[string]uint64{
		"listener_manager.lds.update_rejected": 0, "cluster_manager.cds.update_rejected": 0, "http.admin.downstream_cx_active": 1,
		"cluster.xds-grpc.update_rejected": 0, "cluster.xds-grpc.upstream_rq_pending_overflow": 0,
	}}
	found := proxyFindings(e)
	for check, advice := range map[string]string{
		"connected":       `add "control_plane" to the Pod's annotation sidecar.istio.io/statsInclusionPrefixes`,
		"refused-updates": `add "update_rejected" to the Pod's annotation sidecar.istio.io/statsInclusionSuffixes`,
		"limits":          `add "_overflow" to the Pod's annotation sidecar.istio.io/statsInclusionSuffixes`,
	} {
		require.Equal(t, doctor.Unknown, found[check].Severity, check)
		require.Equal(t, []string{advice}, found[check].Advice)
	}
	require.Equal(t, []string{"statistics cluster.*.update_rejected, http.*.rds.*.update_rejected, http.*.vhds.*.update_rejected: missing"}, found["refused-updates"].Evidence)
	for _, h := range doctor.Examine(&doctor.Evidence{Sidecars: []doctor.ProxyEvidence{e}}).Healthy {
		require.NotContains(t, found, h.Check)
	}
	e.Now["listener_manager.lds.update_rejected"] = 1
	require.Equal(t, doctor.Critical, proxyFindings(e)["refused-updates"].Severity, "what is seen counts")
}

// TestRefusedUpdates checks that a refusal of each type of resource is found.
func TestRefusedUpdates(t *testing.T) {
	for _, name := range []string{
		"listener_manager.lds", "cluster_manager.cds", "cluster.outbound|80||a;", "http.outbound_0.0.0.0_80;.rds.80", "http.outbound_0.0.0.0_80;.vhds.80",
		"http.0.0.0.0_80.scoped_rds.80", "sds.default", "extension_config_discovery.http_filter.wasm",
	} {
		t.Run(name, func(t *testing.T) {
			found := proxyFindings(doctor.ProxyEvidence{Concurrency: 1, Now: withStatistics(map[string]uint64{name + ".update_rejected": 1})})
			require.Equal(t, doctor.Critical, found["refused-updates"].Severity)
		})
	}
}

// TestUnusedServices checks that the finding names the hosts for a Sidecar resource.
func TestUnusedServices(t *testing.T) {
	e := doctor.ProxyEvidence{Concurrency: 1, Now: withStatistics(map[string]uint64{"cluster.outbound|80||s3.shop.svc.cluster.local.upstream_rq_total": 4})}
	for i := range 60 {
		e.Hosts = append(e.Hosts, doctor.Host{Cluster: fmt.Sprintf("outbound|80||s%d.shop.svc.cluster.local", i)})
	}
	e.Hosts[5].Connects = 1
	f := proxyFindings(e)["unused-services"]
	require.Equal(t, "2 of 60 clusters with endpoints were ever used", f.Evidence[0])
	require.Equal(t, "used: outbound|80||s3.shop.svc.cluster.local, outbound|80||s5.shop.svc.cluster.local", f.Evidence[1])
	for i := range e.Hosts[:30] {
		e.Hosts[i].Connects = 1
	}
	require.Empty(t, proxyFindings(e))
}

// TestProxyCounters checks that refusals and rejected calls count over the time of watching.
func TestProxyCounters(t *testing.T) {
	now := withStatistics(map[string]uint64{
		"cluster.outbound|80||a.upstream_rq_pending_overflow": 7, "http.0.0.0.0_80.rds.80.update_rejected": 1,
		"workers.watchdog_miss": 2, "server.stats_overflow_counter": 1,
	})
	found := proxyFindings(doctor.ProxyEvidence{Concurrency: 1, Now: now})
	require.Equal(t, "cluster.outbound|80||a.upstream_rq_pending_overflow 7", found["limits"].Evidence[0])
	active := withStatistics(map[string]uint64{"cluster.outbound|80||a.upstream_rq_active_overflow": 2, "cluster.outbound|80||a.upstream_rq_pending_overflow": 0})
	require.Equal(t, "cluster.outbound|80||a.upstream_rq_active_overflow 2", proxyFindings(doctor.ProxyEvidence{Concurrency: 1, Now: active})["limits"].Evidence[0])
	require.Contains(t, found, "refused-updates")
	require.Contains(t, found, "event-loops")
	require.Contains(t, found, "series")
	found = proxyFindings(doctor.ProxyEvidence{Concurrency: 1, Now: now, Before: now, Over: time.Second})
	require.Len(t, found, 1)
	require.Contains(t, found, "series")
}

// TestNotMetrics checks that another kind of page is rejected with a reason.
func TestNotMetrics(t *testing.T) {
	_, err := doctor.ParseMetrics(strings.NewReader("<html>"))
	require.ErrorContains(t, err, "not Prometheus' text format")
	_, err = doctor.Collect(t.Context(), doctor.Options{Address: "x:1", Metrics: page("up 1\n")})
	require.ErrorContains(t, err, "x:1: not a control plane")
}
