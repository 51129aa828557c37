package flamegraph

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the results to testdata")

// TestGolden draws folded stacks.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/envoy.folded")
	require.NoError(t, err)
	stacks, err := Unfold(bytes.NewReader(text))
	require.NoError(t, err)
	var svg, folded bytes.Buffer
	g := Graph{Title: "Envoy of web.shop", Subtitle: "10 s, <99> samples a second", Unit: "samples", Stacks: stacks}
	require.NoError(t, g.WriteSVG(&svg))
	golden := filepath.Join("testdata", "envoy.svg")
	if *update {
		require.NoError(t, os.WriteFile(golden, svg.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), svg.String())
	require.NoError(t, Fold(&folded, stacks))
	require.Equal(t, string(text), folded.String())
}

func TestUnfoldRefuses(t *testing.T) {
	for _, text := range []string{"a;b", "a;b x", "12a", "a -1"} {
		_, err := Unfold(strings.NewReader("a 1\n" + text))
		require.ErrorContains(t, err, "line 2", text)
	}
	got, err := Unfold(strings.NewReader("\na b;c 2\n 3\n"))
	require.NoError(t, err)
	require.Equal(t, []Stack{{[]string{"a b", "c"}, 2}, {nil, 3}}, got)
}

func TestFoldMerges(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Fold(&b, []Stack{{[]string{"b"}, 1}, {[]string{"a", "x;y\n"}, 2}, {[]string{"b"}, 4}}))
	require.Equal(t, "a;x:y  2\nb 5\n", b.String())
}

func TestFunctions(t *testing.T) {
	got := Functions([]Stack{{[]string{"main", "f", "f"}, 3}, {[]string{"main", "f", "g"}, 4}, {[]string{"main"}, 1}})
	require.Equal(t, []Function{{"g", 4, 4}, {"f", 3, 7}, {"main", 1, 8}}, got)
}

// TestWidthsAreSamples checks for random stacks that a frame is as wide as its samples, above its caller
// and beside its neighbours, and that folding keeps every sample.
func TestWidthsAreSamples(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		stacks := randomStacks(r)
		var total int64
		for _, s := range stacks {
			total += s.Count
		}
		root := grow(stacks)
		require.Equal(t, total, root.total)
		requireSums(t, root)
		requirePlaces(t, root)

		var folded bytes.Buffer
		require.NoError(t, Fold(&folded, stacks))
		again, err := Unfold(&folded)
		require.NoError(t, err)
		require.Equal(t, root, grow(again))
		requireDrawn(t, stacks, total)
	}
}

func randomStacks(r *rand.Rand) (out []Stack) {
	for range 1 + r.IntN(30) {
		s := Stack{Count: r.Int64N(50)}
		for range 1 + r.IntN(6) {
			s.Frames = append(s.Frames, fmt.Sprintf("f<%d>&%s", r.IntN(4), []string{"", Kernel, Unnamed}[r.IntN(3)]))
		}
		out = append(out, s)
	}
	return out
}

func requireSums(t *testing.T, n *node) {
	t.Helper()
	sum := n.self
	for _, c := range n.children {
		sum += c.total
		requireSums(t, c)
	}
	require.Equal(t, n.total, sum, n.name)
}

func requirePlaces(t *testing.T, root *node) {
	t.Helper()
	boxes, hidden := root.boxes(0)
	require.Zero(t, hidden)
	require.Len(t, boxes, root.count())
	end := map[int]int64{} // of what is placed in each row
	var callers []box
	for _, b := range boxes {
		callers = append(callers[:b.depth], b)
		require.GreaterOrEqual(t, b.from, end[b.depth], "it overlaps its neighbour")
		end[b.depth] = b.from + b.total
		if b.depth > 0 {
			below := callers[b.depth-1]
			require.GreaterOrEqual(t, b.from, below.from)
			require.LessOrEqual(t, b.from+b.total, below.from+below.total)
		}
	}
}

// requireDrawn reads the SVG as XML: the widths of a row are at most the root's, and the root's is the
// whole.
func requireDrawn(t *testing.T, stacks []Stack, total int64) {
	t.Helper()
	var svg bytes.Buffer
	require.NoError(t, (&Graph{Title: "a & b", Unit: "samples", Stacks: stacks}).WriteSVG(&svg))
	rows, title := map[string]float64{}, ""
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch start.Name.Local {
		case "title":
			require.NoError(t, d.DecodeElement(&title, &start))
		case "rect":
			if title != "" {
				add(t, rows, start.Attr)
			}
			title = ""
		}
	}
	if total == 0 {
		return
	}
	whole := 0.0
	for _, w := range rows {
		require.LessOrEqual(t, w, width-2*margin+0.5)
		whole = max(whole, w)
	}
	require.InDelta(t, width-2*margin, whole, 0.5)
}

func add(t *testing.T, rows map[string]float64, attributes []xml.Attr) {
	t.Helper()
	value := map[string]string{}
	for _, a := range attributes {
		value[a.Name.Local] = a.Value
	}
	w, err := strconv.ParseFloat(value["width"], 64)
	require.NoError(t, err)
	rows[value["y"]] += w
}

func TestEmpty(t *testing.T) {
	var svg bytes.Buffer
	require.NoError(t, (&Graph{Title: "nothing", Unit: "samples"}).WriteSVG(&svg))
	require.Contains(t, svg.String(), "all: 0 samples, 0.00%")
}
