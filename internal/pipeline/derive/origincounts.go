package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// originCounts counts those that need something, by the objects that they are made from. nil
// counts none.
type originCounts struct {
	all int
	by  []originCount
}

type originCount struct {
	from *model.Origins
	n    int
}

// count counts one more or less, and reports whether the origins are others than before.
func (c *originCounts) count(from *model.Origins, by int) (differs bool) {
	c.all += by
	i := slices.IndexFunc(c.by, func(o originCount) bool { return o.from.Equal(from) })
	if i < 0 {
		c.by = append(c.by, originCount{from, by})
		return true
	}
	if c.by[i].n += by; c.by[i].n != 0 {
		return false
	}
	c.by = slices.Delete(c.by, i, i+1)
	return true
}

func (c *originCounts) total() int {
	if c == nil {
		return 0
	}
	return c.all
}

// common are the objects that all that are counted are made from: those without which nothing
// would be counted.
func (c *originCounts) common() *model.Origins {
	if c.total() == 0 {
		return nil
	}
	out := c.by[0].from
	for _, o := range c.by[1:] {
		out = out.Intersect(o.from)
	}
	return out
}

// origins are those of all that are counted.
func (c *originCounts) origins() *model.Origins {
	if c == nil {
		return nil
	}
	var out model.OriginList
	for _, o := range c.by {
		out.AddAll(o.from)
	}
	return out.Since(0)
}

// countIn counts in a map that has no empty counts. first reports whether the first came or the last went.
func countIn[K comparable](m map[K]*originCounts, k K, from *model.Origins, by int) (first, differs bool) {
	c := m[k]
	if c == nil {
		c = &originCounts{}
		m[k] = c
	}
	before := c.all
	differs = c.count(from, by)
	if c.all == 0 {
		delete(m, k)
	}
	return before == 0 || c.all == 0, differs
}
