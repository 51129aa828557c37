package profile

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/pprof/profile"

	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
)

// FromGo reads a CPU profile of a Go program. Goroutines change threads, so that the first function of a
// goroutine stands for its thread.
func FromGo(b []byte) (*Profile, error) {
	g, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	if len(g.SampleType) != 2 || g.SampleType[0].Type != "samples" || g.SampleType[1].Unit != "nanoseconds" {
		return nil, errors.New("CPU profile: samples are not in counts and nanoseconds")
	}
	p := &Profile{Seconds: time.Duration(g.DurationNanos).Seconds(), Named: 1, Frames: 1}
	if g.Period > 0 {
		p.Frequency = int(time.Second.Nanoseconds() / g.Period)
	}
	byRoot, used := map[string][]flamegraph.Stack{}, map[string]int64{}
	for _, s := range g.Sample {
		stack := goStack(s)
		root := stack.Frames[0]
		byRoot[root] = append(byRoot[root], stack)
		used[root] += s.Value[1]
		p.Samples += s.Value[0]
	}
	if p.Samples == 0 {
		return nil, ErrIdle
	}
	for root, list := range byRoot {
		t := Thread{Name: root, CPU: -1, Top: topOf(list)}
		for _, s := range list {
			t.Samples += s.Count
		}
		if p.Seconds > 0 {
			t.CPU = time.Duration(used[root]).Seconds() / p.Seconds
		}
		p.Threads, p.Stacks = append(p.Threads, t), append(p.Stacks, list...)
	}
	p.conclude()
	p.Functions = flamegraph.Functions(p.Stacks)
	return p, nil
}

// goStack reverses a sample: its locations and inlined functions are innermost first.
func goStack(s *profile.Sample) flamegraph.Stack {
	out := flamegraph.Stack{Count: s.Value[0]}
	for i := len(s.Location) - 1; i >= 0; i-- {
		for j := len(s.Location[i].Line) - 1; j >= 0; j-- {
			if f := s.Location[i].Line[j].Function; f != nil {
				out.Frames = append(out.Frames, f.Name)
			}
		}
	}
	if len(out.Frames) == 0 {
		out.Frames = []string{"?" + flamegraph.Unnamed}
	}
	return out
}
