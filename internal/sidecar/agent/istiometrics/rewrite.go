// Package istiometrics turns what Envoy counts of calls into Istio's standard metrics, as a
// sidecar is scraped. Envoy knows of each call what varies, packed into one label because
// every label costs time with every call; the rest is the same for all of a workload's, and
// is added here.
package istiometrics

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// envoyPrefix is what Envoy puts before the names of all its metrics.
const envoyPrefix = "envoy_istio_"

// Rewrite copies Prometheus's text of Envoy's, with Istio's names and labels where
// a line is one of Istio's metrics. Other lines stay as they are. memory is that of this Envoy.
func Rewrite(w io.Writer, text []byte, own *Workload, memory *Live) error {
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

// converter collects the samples of one metric: two of Envoy's may be one of Istio's, since
// labels that cannot be believed, or are left out, are what made them two.
type converter struct {
	own     *Workload
	out     *bufio.Writer      // errors come from its Flush
	known   map[string]string  // Envoy's labels but for "le" -> Istio's: a histogram has them twenty times
	samples []sample           // in the order in which they came
	at      map[string]int     // where in samples one is
	live    map[string]float64 // what connections that go on have carried, by counter, as far as it was not added yet
	memory  *Live
}

// sample is "name{labels}" and a value with what follows it.
type sample struct{ key, value string }

// maxKnown bounds what is remembered of one answer.
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

// sum adds two values of Prometheus's text.
func sum(a, b string) string {
	x, errA := strconv.ParseFloat(strings.TrimSpace(a), 64)
	y, errB := strconv.ParseFloat(strings.TrimSpace(b), 64)
	if errA != nil || errB != nil {
		return a
	}
	return numberText(x + y)
}

// flush writes what has been collected of a metric.
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

// splitLine takes "name{labels} value\n" apart.
func splitLine(line []byte) (name, labels, rest []byte, ok bool) {
	open := bytes.IndexByte(line, '{')
	end := bytes.LastIndexByte(line, '}')
	if open < 0 || end < open {
		return nil, nil, nil, false
	}
	return line[:open], line[open+1 : end], line[end+1:], true
}

// labels converts those of one line. Without a call's label they stay as they are.
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
		converted = c.own.labels(list)
		if len(c.known) < maxKnown {
			c.known[string(own)] = converted
		}
	}
	return converted + string(le)
}
