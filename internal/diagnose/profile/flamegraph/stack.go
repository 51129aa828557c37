// Package flamegraph draws call stacks: as folded text, which other tools read too, and as a self-contained
// SVG for light and dark pages.
package flamegraph

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Stack is a call stack and the number of its samples.
type Stack struct {
	Frames []string // the outermost first
	Count  int64    // not negative
}

// Suffixes of frames' names that mark their kind, as in other tools' folded stacks.
const (
	Kernel  = "_[k]" // a frame of the kernel
	Unnamed = "_[u]" // only the address is known
)

// Plain returns a frame's name without such a suffix.
func Plain(frame string) string {
	return strings.TrimSuffix(strings.TrimSuffix(frame, Kernel), Unnamed)
}

// unfold replaces the separators of frames and stacks in folded text.
var unfold = strings.NewReplacer(";", ":", "\n", " ", "\r", " ")

// Fold writes stacks as text: frames joined by ";", a blank, the count. Equal stacks become one line. Lines
// are sorted.
func Fold(w io.Writer, stacks []Stack) error {
	sum := map[string]int64{}
	for _, s := range stacks {
		frames := make([]string, len(s.Frames))
		for i, f := range s.Frames {
			frames[i] = unfold.Replace(f)
		}
		sum[strings.Join(frames, ";")] += s.Count
	}
	keys := make([]string, 0, len(sum))
	for k := range sum {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := bufio.NewWriter(w)
	for _, k := range keys {
		fmt.Fprintf(out, "%s %d\n", k, sum[k])
	}
	return out.Flush()
}

// Unfold reads what Fold wrote.
func Unfold(r io.Reader) (out []Stack, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" {
			continue
		}
		at := strings.LastIndexByte(lines.Text(), ' ')
		count, err := strconv.ParseInt(lines.Text()[at+1:], 10, 64)
		if at < 0 || err != nil || count < 0 {
			return nil, fmt.Errorf("folded stacks, line %d: no count at the end: %q", n, lines.Text())
		}
		s := Stack{Count: count}
		if at > 0 {
			s.Frames = strings.Split(lines.Text()[:at], ";")
		}
		out = append(out, s)
	}
	return out, lines.Err()
}

// Function is a function and how often it was sampled.
type Function struct {
	Name  string `json:"name"`
	Self  int64  `json:"self"`  // samples with it as the innermost function
	Total int64  `json:"total"` // samples that contain it, each once
}

// Functions returns all functions of stacks, ordered by their own samples.
func Functions(stacks []Stack) []Function {
	at := map[string]*Function{}
	for _, s := range stacks {
		seen := map[string]bool{}
		for i, name := range s.Frames {
			f := at[name]
			if f == nil {
				f = &Function{Name: name}
				at[name] = f
			}
			if !seen[name] {
				f.Total += s.Count
			}
			if seen[name] = true; i == len(s.Frames)-1 {
				f.Self += s.Count
			}
		}
	}
	out := make([]Function, 0, len(at))
	for _, f := range at {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return out
}
