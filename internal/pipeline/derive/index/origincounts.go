package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// OriginCounts counts the values that need something, by the objects that these are made from. nil counts none.
type OriginCounts struct {
	all int
	by  []originCount
}

type originCount struct {
	from *model.Origins
	n    int
}

// Count adds by values, and reports whether the set of origins differs from before.
func (c *OriginCounts) Count(from *model.Origins, by int) (differs bool) {
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

// Total is the number of values.
func (c *OriginCounts) Total() int {
	if c == nil {
		return 0
	}
	return c.all
}

// Common are the objects that all counted values are made from: without any one of them nothing would be counted.
func (c *OriginCounts) Common() *model.Origins {
	if c.Total() == 0 {
		return nil
	}
	out := c.by[0].from
	for _, o := range c.by[1:] {
		out = out.Intersect(o.from)
	}
	return out
}

// Origins are those of all counted values.
func (c *OriginCounts) Origins() *model.Origins {
	if c == nil {
		return nil
	}
	var out model.OriginList
	for _, o := range c.by {
		out.AddAll(o.from)
	}
	return out.Since(0)
}

// CountIn counts in a map without empty counts. first reports whether the first value came or the last went.
func CountIn[K comparable](m map[K]*OriginCounts, k K, from *model.Origins, by int) (first, differs bool) {
	c := m[k]
	if c == nil {
		c = &OriginCounts{}
		m[k] = c
	}
	before := c.all
	differs = c.Count(from, by)
	if c.all == 0 {
		delete(m, k)
	}
	return before == 0 || c.all == 0, differs
}
