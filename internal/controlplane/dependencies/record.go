package dependencies

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Record is what is stored of a workload.
type Record struct {
	Workload
	Calls []Call `json:"calls"`
}

// Call is what is stored of the calls of a workload to a target.
type Call struct {
	Target
	First time.Time `json:"first"`
	Last  time.Time `json:"last"` // as it was written: it is up to coarse older than the last call
}

// format is the version of what is stored. Another one is not read.
const format = 1

type stored struct {
	Format    int      `json:"format"`
	Workloads []Record `json:"workloads"`
}

// maxStored bounds what is stored, in bytes before and after compression. A ConfigMap has at most 1 MiB, and bytes take a
// third more in JSON.
const (
	maxStored = 700 << 10
	maxPlain  = 32 << 20
)

// Records returns everything that is remembered, in the order of workloads and targets.
func (m *Memory) Records() (out []Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	for w, calls := range m.workloads {
		r := Record{Workload: w}
		for t, at := range calls {
			r.Calls = append(r.Calls, Call{t, at.first, at.last})
		}
		slices.SortFunc(r.Calls, func(a, b Call) int { return a.compare(b.Target) })
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int { return a.Workload.compare(b.Workload) })
	return out
}

// encode returns what is to be stored; nil: nothing is worth a write. If it does not fit, the oldest calls are forgotten.
func (m *Memory) encode() (list []Record, data []byte, err error) {
	m.mu.Lock()
	dirty := m.dirty
	m.mu.Unlock()
	if !dirty {
		return nil, nil, nil
	}
	for {
		list = m.Records()
		data, err = pack(list) // without the lock, for which streams wait
		if err != nil || len(data) <= maxStored {
			return list, data, err
		}
		m.mu.Lock()
		m.shrink()
		m.mu.Unlock()
	}
}

// wrote records that what encode returned is stored.
func (m *Memory) wrote(list []Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.markStored(list)
	m.dirty = false
	for _, calls := range m.workloads {
		for _, at := range calls {
			if at.last.Sub(at.stored) >= coarse {
				m.wantsWrite()
				return
			}
		}
	}
}

func (m *Memory) markStored(list []Record) {
	for _, r := range list {
		for _, c := range r.Calls {
			if at := m.workloads[r.Workload][c.Target]; at != nil && c.Last.After(at.stored) {
				at.stored = c.Last
			}
		}
	}
}

// merge adds what is stored, by this control plane or another one.
func (m *Memory) merge(list []Record) {
	oldest, newest := m.now().Add(-Keep), m.now().Truncate(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range list {
		for _, c := range r.Calls {
			if c.Last.Before(oldest) {
				continue
			}
			if c.Last.After(newest) {
				c.Last = newest // by a clock that is ahead
			}
			if c.First.After(c.Last) {
				c.First = c.Last
			}
			dirty := m.dirty
			at := m.add(r.Workload, c.Target, c.First, c.Last)
			if at == nil {
				continue // invalid, or without the port that is known
			}
			if c.Last.After(at.stored) {
				at.stored = c.Last
			}
			m.dirty = dirty || at.last.Sub(at.stored) >= coarse
		}
		m.limit(r.Workload)
	}
}

// pack encodes records.
func pack(list []Record) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if err := json.NewEncoder(z).Encode(stored{format, list}); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpack decodes what pack returned.
func unpack(b []byte) ([]Record, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxPlain))
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if s.Format != format {
		return nil, fmt.Errorf("unknown format %d: another version wrote it", s.Format)
	}
	return s.Workloads, nil
}
