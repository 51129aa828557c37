package flamegraph

import (
	"cmp"
	"slices"
)

// node is a frame below its callers. Its total includes its children's.
type node struct {
	name        string
	total, self int64
	children    []*node // by name
}

// grow joins stacks by their outermost frames.
func grow(stacks []Stack) *node {
	root := &node{name: "all"}
	at := map[*node]map[string]*node{}
	for _, s := range stacks {
		n := root
		n.total += s.Count
		for _, name := range s.Frames {
			next := at[n][name]
			if next == nil {
				next = &node{name: name}
				if at[n] == nil {
					at[n] = map[string]*node{}
				}
				at[n][name] = next
				n.children = append(n.children, next)
			}
			n = next
			n.total += s.Count
		}
		n.self += s.Count
	}
	root.sort()
	return root
}

func (n *node) sort() {
	slices.SortFunc(n.children, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	for _, c := range n.children {
		c.sort()
	}
}

// box is a frame with its position: samples from sample to sample+total, and the row above the root.
type box struct {
	*node
	from  int64
	depth int
}

// boxes returns the root and all frames of at least a number of samples, callers first. hidden counts the
// narrower ones.
func (n *node) boxes(least float64) (out []box, hidden int) {
	var place func(n *node, from int64, depth int)
	place = func(n *node, from int64, depth int) {
		if depth > 0 && float64(n.total) < least {
			hidden += n.count()
			return
		}
		out = append(out, box{n, from, depth})
		for _, c := range n.children {
			place(c, from, depth+1)
			from += c.total
		}
	}
	place(n, 0, 0)
	return out, hidden
}

// count returns the number of frames.
func (n *node) count() int {
	sum := 1
	for _, c := range n.children {
		sum += c.count()
	}
	return sum
}
