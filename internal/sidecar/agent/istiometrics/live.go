package istiometrics

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Envoy has a gauge for each open connection with the bytes that it has carried. The gauge is 0 when the counter with
// its labels contains the bytes; see package translate/telemetry.
var (
	livePrefix = []byte(envoyPrefix + "tcp_")
	liveMark   = []byte(callstats.LiveSuffix + "{")
)

const connectionLabel = "," + callstats.ConnectionTag + `="`

// Live adds the bytes of open connections to the counters of one Envoy. A sum does not decrease, though a scrape may come
// between the moments at which the gauge becomes 0 and the counter increases. It begins again if Envoy's counter does: Envoy
// drops its counters with the last listener that counts.
type Live struct {
	mu       sync.Mutex // guards the field below
	reported map[string]report
}

// report is the value of a sum at the last scrape, and Envoy's counter in it.
type report struct{ value, counter float64 }

// maxReported bounds the remembered counters. Envoy has fewer.
const maxReported = 4 * 2 * callstats.MaxSeries

// atLeast returns a sum, or that of the last scrape if it was higher and Envoy's counter has not begun again.
func (l *Live) atLeast(key string, value, counter float64) float64 {
	if l == nil { // no Envoy has started
		return value
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reported == nil {
		l.reported = map[string]report{}
	}
	last, known := l.reported[key]
	if counter >= last.counter {
		value = max(value, last.value)
	}
	if known || len(l.reported) < maxReported {
		l.reported[key] = report{value, counter}
	}
	return value
}

// isLive reports whether a line is about open connections; TYPE lines are, too.
func isLive(line []byte) bool {
	if rest, ok := bytes.CutPrefix(line, typePrefix); ok {
		name, _, _ := bytes.Cut(rest, []byte(" "))
		return bytes.HasPrefix(rest, []byte("tcp_")) && bytes.HasSuffix(name, []byte(callstats.LiveSuffix))
	}
	return bytes.HasPrefix(line, livePrefix) && bytes.Contains(line, liveMark)
}

// carried sums the bytes of open connections by their counter "name{labels}".
func (c *converter) carried(text []byte) map[string]float64 {
	out := map[string]float64{}
	for line := range bytes.Lines(text) {
		if !isLive(line) {
			continue
		}
		name, labels, value, ok := splitLine(line)
		n, err := strconv.ParseFloat(strings.TrimSpace(string(value)), 64)
		i := bytes.LastIndex(labels, []byte(connectionLabel))
		if !ok || err != nil || i < 0 || n == 0 {
			continue
		}
		counter := strings.TrimSuffix(string(name[len("envoy_"):]), callstats.LiveSuffix) + "_total"
		out[counter+"{"+c.labels(labels[:i])+"}"] += n
	}
	return out
}

// bytesOf are the counters to which open connections add.
var bytesOf = []string{"istio_tcp_sent_bytes_total", "istio_tcp_received_bytes_total"}

// addLive adds the bytes of open connections to the samples of one metric.
func (c *converter) addLive() {
	if len(c.samples) == 0 {
		return
	}
	metric, _, _ := strings.Cut(c.samples[0].key, "{")
	if !slices.Contains(bytesOf, metric) {
		return
	}
	c.addLiveOf(metric)
}

func (c *converter) addLiveOf(metric string) {
	counters := make(map[string]float64, len(c.samples))
	for _, s := range c.samples {
		counters[s.key], _ = strconv.ParseFloat(strings.TrimSpace(s.value), 64)
	}
	for _, key := range slices.Sorted(maps.Keys(c.live)) {
		if strings.HasPrefix(key, metric+"{") {
			c.add(sample{key, numberText(c.live[key])})
			delete(c.live, key)
		}
	}
	for i := range c.samples {
		s := &c.samples[i]
		if n, err := strconv.ParseFloat(strings.TrimSpace(s.value), 64); err == nil {
			s.value = numberText(c.memory.atLeast(s.key, n, counters[s.key]))
		}
	}
}

// flushLive writes the bytes for metrics of which Envoy has no counter yet.
func (c *converter) flushLive() {
	for _, metric := range bytesOf {
		if c.addLiveOf(metric); len(c.samples) > 0 {
			_, _ = c.out.WriteString("# TYPE " + metric + " counter\n")
			c.write()
		}
	}
}

func numberText(n float64) string { return " " + strconv.FormatFloat(n, 'f', -1, 64) + "\n" }
