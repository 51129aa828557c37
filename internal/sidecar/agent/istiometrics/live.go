package istiometrics

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// What Envoy tells of connections that go on: a gauge each of what it has carried, which is 0 when the counter of
// its labels has it; see package translate.
var (
	livePrefix = []byte(envoyPrefix + "tcp_")
	liveMark   = []byte("_live{")
)

const (
	liveSuffix    = "_live"
	connectionTag = `,__cx="`
)

// Live adds what connections carry while they go on to the counters of one Envoy. Counters never become less: a
// scrape may come between the moment in which a connection's gauge is 0 and that in which it is counted.
type Live struct {
	mu   sync.Mutex // guards told
	told map[string]float64
}

// maxTold bounds what is remembered: more than Envoy has counters for.
const maxTold = 4 * 2 * MaxSeries

// atLeast gives the value of a counter, or what was told of it last where that was more.
func (l *Live) atLeast(key string, value float64) float64 {
	if l == nil { // there has been no Envoy
		return value
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[string]float64{}
	}
	last, known := l.told[key]
	if value = max(value, last); known || len(l.told) < maxTold {
		l.told[key] = value
	}
	return value
}

// isLive tells whether a line is about connections that go on, also where it says what type that is.
func isLive(line []byte) bool {
	if rest, ok := bytes.CutPrefix(line, typePrefix); ok {
		name, _, _ := bytes.Cut(rest, []byte(" "))
		return bytes.HasPrefix(rest, []byte("tcp_")) && bytes.HasSuffix(name, []byte(liveSuffix))
	}
	return bytes.HasPrefix(line, livePrefix) && bytes.Contains(line, liveMark)
}

// carried adds up what connections that go on have carried, by the counter of it: "name{labels}".
func (c *converter) carried(text []byte) map[string]float64 {
	out := map[string]float64{}
	for line := range bytes.Lines(text) {
		if !isLive(line) {
			continue
		}
		name, labels, value, ok := splitLine(line)
		n, err := strconv.ParseFloat(strings.TrimSpace(string(value)), 64)
		i := bytes.LastIndex(labels, []byte(connectionTag))
		if !ok || err != nil || i < 0 || n == 0 {
			continue
		}
		counter := strings.TrimSuffix(string(name[len("envoy_"):]), liveSuffix) + "_total"
		out[counter+"{"+c.labels(labels[:i])+"}"] += n
	}
	return out
}

// bytesOf are the counters that connections which go on add to.
var bytesOf = []string{"istio_tcp_sent_bytes_total", "istio_tcp_received_bytes_total"}

// addLive adds to the samples of one metric what connections that go on have carried.
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
	for _, key := range slices.Sorted(maps.Keys(c.live)) {
		if strings.HasPrefix(key, metric+"{") {
			c.add(sample{key, numberText(c.live[key])})
			delete(c.live, key)
		}
	}
	for i := range c.samples {
		s := &c.samples[i]
		if n, err := strconv.ParseFloat(strings.TrimSpace(s.value), 64); err == nil {
			s.value = numberText(c.memory.atLeast(s.key, n))
		}
	}
}

// flushLive writes what belongs to metrics of which Envoy has no counter yet.
func (c *converter) flushLive() {
	for _, metric := range bytesOf {
		if c.addLiveOf(metric); len(c.samples) > 0 {
			_, _ = c.out.WriteString("# TYPE " + metric + " counter\n")
			c.write()
		}
	}
}

func numberText(n float64) string { return " " + strconv.FormatFloat(n, 'f', -1, 64) + "\n" }
