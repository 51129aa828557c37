// Package istiometrics converts Envoy's counters of calls to Istio's standard metrics when a sidecar is scraped. Envoy
// counts the parts that vary between calls in one label, because each label costs time with each call. This package
// adds the labels that are the same for all calls of the workload.
package istiometrics

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// envoyPrefix begins the names of Envoy's metrics.
const envoyPrefix = "envoy_istio_"

// Rewrite copies Envoy's metrics in Prometheus's text format. It gives Istio's metrics their names and labels, and
// copies other lines unchanged. memory belongs to the Envoy of text.
func Rewrite(w io.Writer, text []byte, own *callstats.Workload, memory *Live) error {
	out := bufio.NewWriterSize(w, 64<<10)
	c := &converter{own: own, out: out, known: map[string]string{}, at: map[string]int{}, memory: memory}
	c.live = c.carried(text)
	for line := range bytes.Lines(text) {
		if !isLive(line) {
			c.line(line)
		}
	}
	c.flush()
	c.flushLive()
	return out.Flush()
}

// converter collects the samples of one metric. Two of Envoy's samples may become one of Istio's: they differ in labels
// that are removed or not trusted.
type converter struct {
	own     *callstats.Workload
	out     *bufio.Writer      // errors come from Flush
	known   map[string]string  // Envoy's labels without "le" -> Istio's; a histogram repeats them twenty times
	samples []sample           // in order of appearance
	at      map[string]int     // index in samples
	live    map[string]float64 // bytes of open connections by counter that were not added yet
	memory  *Live
}

// sample is "name{labels}", and a value with the rest of the line.
type sample struct{ key, value string }

// maxKnown bounds the remembered labels of one answer.
const maxKnown = 10_000

var (
	typePrefix = []byte("# TYPE " + envoyPrefix)
	helpPrefix = []byte("# HELP " + envoyPrefix)
)

func (c *converter) line(line []byte) {
	if name, labels, value, ok := splitLine(line); ok && bytes.HasPrefix(line, []byte(envoyPrefix)) {
		c.add(sample{string(name[len("envoy_"):]) + "{" + c.labels(labels) + "}", string(value)})
		return
	}
	c.flush()
	for _, p := range [][]byte{typePrefix, helpPrefix} {
		if bytes.HasPrefix(line, p) {
			_, _ = c.out.Write(p[:len("# TYPE ")])
			_, _ = c.out.WriteString("istio_")
			line = line[len(p):]
		}
	}
	_, _ = c.out.Write(line)
}

func (c *converter) add(s sample) {
	i, seen := c.at[s.key]
	if !seen {
		c.at[s.key] = len(c.samples)
		c.samples = append(c.samples, s)
		return
	}
	c.samples[i].value = sum(c.samples[i].value, s.value)
}

// sum adds two values of Prometheus's text format.
func sum(a, b string) string {
	x, errA := strconv.ParseFloat(strings.TrimSpace(a), 64)
	y, errB := strconv.ParseFloat(strings.TrimSpace(b), 64)
	if errA != nil || errB != nil {
		return a
	}
	return numberText(x + y)
}

// flush writes the collected samples of a metric.
func (c *converter) flush() {
	c.addLive()
	c.write()
}

func (c *converter) write() {
	for _, s := range c.samples {
		_, _ = c.out.WriteString(s.key)
		_, _ = c.out.WriteString(s.value)
	}
	c.samples = c.samples[:0]
	clear(c.at)
}

// splitLine splits "name{labels} value
// ".
func splitLine(line []byte) (name, labels, rest []byte, ok bool) {
	open := bytes.IndexByte(line, '{')
	end := bytes.LastIndexByte(line, '}')
	if open < 0 || end < open {
		return nil, nil, nil, false
	}
	return line[:open], line[open+1 : end], line[end+1:], true
}

// labels converts the labels of one line. Without the label of a call they stay unchanged.
func (c *converter) labels(text []byte) string {
	own, le := text, []byte(nil)
	if i := bytes.LastIndex(text, []byte(`,le="`)); i >= 0 {
		own, le = text[:i], text[i:]
	}
	converted, ok := c.known[string(own)]
	if !ok {
		list, valid := parseLabels(string(own))
		if !valid {
			return string(text)
		}
		converted = istioLabels(c.own, list)
		if len(c.known) < maxKnown {
			c.known[string(own)] = converted
		}
	}
	return converted + string(le)
}
