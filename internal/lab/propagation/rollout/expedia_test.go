package rollout

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// at is n milliseconds after a fixed moment.
func at(n int) time.Time {
	if n < 0 {
		return time.Time{}
	}
	return time.Unix(1000, 0).Add(time.Duration(n) * time.Millisecond)
}

func addrs(last ...byte) (out []netip.Addr) {
	for _, b := range last {
		out = append(out, netip.AddrFrom4([4]byte{10, 0, 0, b}))
	}
	return out
}

func TestRegistry(t *testing.T) {
	g := newRegistry()
	for i, s := range []meshkube.Slice{
		{Name: "a-1", Service: "a", Ready: addrs(1, 2)},
		{Name: "a-2", Service: "a", Ready: addrs(2, 3)},
		{Name: "b-1", Service: "b", Ready: addrs(1)},
		{Name: "a-1", Service: "a", Ready: addrs(1)}, // 2 is in the other slice
		{Name: "a-2", Service: "a"},                  // 2 and 3 end
		{Name: "a-3", Service: "a", Ready: addrs(3)}, // 3 comes back
		{Name: "a-3", Service: "a"},                  // and ends again
	} {
		g.take(s, at(i))
	}
	require.Equal(t, addrs(1), g.ready("a"))
	require.Equal(t, addrs(1), g.ready("b"))
	events, deaths := g.history()
	require.Equal(t, 7, events)
	require.ElementsMatch(t, []death{
		{deathKey: deathKey{"a", addrs(2)[0]}, at: at(4)},
		{deathKey: deathKey{"a", addrs(3)[0]}, at: at(4), back: at(5)},
		{deathKey: deathKey{"a", addrs(3)[0]}, at: at(6)},
	}, deaths)
}

// held is a content that was held from one time to another, in milliseconds (-1: still).
func held(service string, from, to int, addresses ...byte) fleet.Held {
	return fleet.Held{Cluster: meshfiles.ClusterName(service), Addresses: addrs(addresses...), Spans: []fleet.Span{{From: at(from), To: at(to)}}}
}

func TestStillKnown(t *testing.T) {
	contents := []fleet.Held{
		held("a", 0, 30, 1, 2), held("a", 10, 20, 1, 3), // 1 until 30, when the last proxy replaces the first content
		held("a", 20, 50, 2, 4), held("a", 30, -1, 5), held("b", 0, -1, 1), held("a", 70, 80, 2),
	}
	dead := func(last byte, n int) death { return death{deathKey: deathKey{"a", addrs(last)[0]}, at: at(n)} }
	for _, c := range []struct {
		name string
		death
		want []known
	}{
		{"until the last proxy's ACK", dead(1, 5), []known{{at(5), at(30)}}},
		{"over two contents, and not to the time when it is back", dead(2, 5), []known{{at(5), at(50)}}},
		{"gone from all proxies before the event was seen", dead(3, 25), []known{{at(25), at(25)}}},
		{"no proxy ever had it", dead(9, 25), []known{{at(25), at(25)}}},
		{"still known", dead(5, 40), []known{{at(40), time.Time{}}}},
		{"back after it was gone", death{dead(4, 30).deathKey, at(30), at(60)}, []known{{at(30), at(50)}}},
		{"back before it was gone", death{dead(4, 30).deathKey, at(30), at(40)}, nil},
	} {
		require.Equal(t, c.want, stillKnown([]death{c.death}, contents), c.name)
	}
	took, left := staleness([]known{{at(5), at(30)}, {at(5), time.Time{}}, {at(10), at(20)}})
	require.Equal(t, []float64{25, 10}, took)
	require.Equal(t, 1, left)
	require.Equal(t, [][2]float64{{0.005, 1}, {0.005, 2}, {0.010, 3}, {0.020, 2}, {0.030, 1}},
		knownOver([]known{{at(5), at(30)}, {at(5), time.Time{}}, {at(10), at(20)}}, at(0)))
}

func TestMetric(t *testing.T) {
	const text = `# HELP pilot_k8s_reg_events Events.
pilot_k8s_reg_events{event="add",type="Pods"} 3
pilot_k8s_reg_events{event="update",type="Pods"} 4
pilot_k8s_reg_events{event="add",type="Nodes"} 1e+03
pilot_k8s_reg_events_other{type="Pods"} 5
pilot_k8s_reg_events 9
`
	require.Equal(t, map[string]float64{"Pods": 7, "Nodes": 1000}, metric(text, "pilot_k8s_reg_events", "type"))
	require.Empty(t, metric(text, "pilot_k8s_reg_events", "queueID"))
}

func TestCharts(t *testing.T) {
	r := &recorder{begun: at(0), took: 0.6,
		depth: map[string][][2]float64{"Pod": {{0, 0}, {0.3, 5}}, "EndpointSlice": {{0, 7}, {0.5, 2}}, "Node": {{0, 0}, {0.5, 0}}}}
	require.Equal(t, []experiment.ChartLine{{Name: "EndpointSlice", Points: [][2]float64{{0, 7}, {0.2, 7}, {0.4, 7}}}, {Name: "Pod", Points: [][2]float64{{0, 0}, {0.2, 5}, {0.4, 5}}}},
		rounded(r.depthChart().Lines))
	kind, n := r.deepest()
	require.Equal(t, "EndpointSlice", kind)
	require.InDelta(t, 7, n, 0)

	ms := time.Millisecond
	r.changes = map[model.Revision]changelog.Change{
		1: {Observed: at(500), Timeline: changelog.Timeline{1 * ms, 3 * ms, 6 * ms, 10 * ms, 15 * ms}},
		2: {Observed: at(250), Timeline: changelog.Timeline{2 * ms, 3 * ms, 4 * ms, -1, -1}},
	}
	lines := rounded(r.stageChart().Lines)
	require.Len(t, lines, int(changelog.NumStages))
	require.Equal(t, experiment.ChartLine{Name: "store", Points: [][2]float64{{0, 0}, {0.2, 2}, {0.4, 1}}}, lines[0])
	require.Equal(t, experiment.ChartLine{Name: "ack", Points: [][2]float64{{0, 0}, {0.2, 0}, {0.4, 5}}}, lines[4])
}

// rounded rounds x as the expectations do.
func rounded(list []experiment.ChartLine) []experiment.ChartLine {
	for _, l := range list {
		for i := range l.Points {
			l.Points[i][0] = math.Round(l.Points[i][0]*1e6) / 1e6
		}
	}
	return list
}

func TestThin(t *testing.T) {
	var many [][2]float64
	for i := range 10 * chartPoints {
		many = append(many, [2]float64{float64(i), float64(i % 7)})
	}
	thinned := thin(many, 10*chartPoints, false)
	require.Len(t, thinned, chartPoints)
	for _, p := range thinned {
		require.InDelta(t, 6, p[1], 0)
	}
	steps := [][2]float64{{0.5, 3}, {0.6, 1}, {2.5, 0}}
	var ys []float64
	for _, p := range thin(steps, 1, true) {
		ys = append(ys, p[1])
	}
	require.Equal(t, []float64{0, 0, 3, 3, 1}, ys, "a level stays constant; a late value belongs to the last point")
	require.Equal(t, [][2]float64{{0, 0}}, thin(nil, 0, false))
}

func TestRecent(t *testing.T) {
	r := &recorder{begun: at(10), changes: map[model.Revision]changelog.Change{
		3: {Revision: 3, Observed: at(20)}, 1: {Revision: 1, Observed: at(5)}, 2: {Revision: 2, Observed: at(10)},
	}}
	require.Equal(t, []changelog.Change{{Revision: 2, Observed: at(10)}, {Revision: 3, Observed: at(20)}}, r.recent())
}

func TestParseRollout(t *testing.T) {
	r, err := ParseSize(" 3x500x40 ")
	require.NoError(t, err)
	require.Equal(t, Size{3, 500, 40}, r)
	require.Equal(t, "3x500x40", r.String())
	for _, bad := range []string{"", "3", "3x500", "1x5x5", "3x1x5", "3x5x0", "axbxc", "3x5x5x5"} {
		_, err := ParseSize(bad)
		require.ErrorContains(t, err, "DEPLOYMENTSxPODSxPROXIES", bad)
	}
}

// TestQueue checks that the numbers of a queue are the differences between the first and the last read.
func TestQueue(t *testing.T) {
	r := newRecorder("")
	for _, text := range []string{`
pilot_worker_queue_depth{queueID="Pod"} 3
pilot_worker_queue_latency_sum{queueID="Pod"} 1
pilot_worker_queue_latency_count{queueID="Pod"} 10
pilot_worker_queue_duration_sum{queueID="Pod"} 5
pilot_worker_queue_duration_count{queueID="Pod"} 10
`, `
pilot_worker_queue_depth{queueID="Pod"} 8
pilot_worker_queue_latency_sum{queueID="Pod"} 1.5
pilot_worker_queue_latency_count{queueID="Pod"} 20
pilot_worker_queue_duration_sum{queueID="Pod"} 5.2
pilot_worker_queue_duration_count{queueID="Pod"} 14
`} {
		r.take(text, 0)
	}
	wait, work, ok := r.queue("Pod")
	require.True(t, ok)
	require.InDelta(t, 50, wait, 1e-9)
	require.InDelta(t, 50, work, 1e-9)
	_, _, ok = r.queue("Node")
	require.False(t, ok)
	kind, most := r.deepest()
	require.Equal(t, "Pod", kind)
	require.InDelta(t, 8, most, 0)
}
