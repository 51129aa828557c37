package profile

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
)

// Profile is where a process spent its CPU.
type Profile struct {
	Subject   string                `json:"subject"` // name of the process
	PID       int                   `json:"pid,omitempty"`
	Seconds   float64               `json:"seconds"`
	Frequency int                   `json:"frequency"` // samples a second of each thread that runs
	Samples   int64                 `json:"samples"`
	Named     float64               `json:"named"`     // share of samples with a named innermost frame
	Frames    float64               `json:"frames"`    // share of all frames with a name
	Threads   []Thread              `json:"threads"`   // ordered by samples
	Functions []flamegraph.Function `json:"functions"` // ordered by their own samples

	Stacks []flamegraph.Stack `json:"-"` // each below its thread
}

// Thread is a thread or, in the control plane, all goroutines with one first function.
type Thread struct {
	Name    string                `json:"name"`
	ID      int                   `json:"id,omitempty"`
	CPU     float64               `json:"cpu"` // CPUs that it used; -1: unknown
	Samples int64                 `json:"samples"`
	Top     []flamegraph.Function `json:"top"` // those with the most samples of their own
}

// topOfThread is the number of listed functions of a thread.
const topOfThread = 5

// fill makes a profile of samples. It lists threads without samples, too.
func (p *Profile) fill(samples []Sample, names *namer, before, after map[int]thread) {
	stacks := map[int][]flamegraph.Stack{}
	frames, named, leaves := 0, 0, 0
	for i := range samples {
		s := &samples[i]
		stack := flamegraph.Stack{Count: 1, Frames: []string{p.threadName(s.Thread, s.Name)}}
		for at, f := range slices.Backward(s.Frames) {
			name, ok := names.name(f, at > 0)
			if frames++; ok {
				named++
			}
			if ok && at == 0 {
				leaves++
			}
			stack.Frames = append(stack.Frames, name)
		}
		stacks[s.Thread] = append(stacks[s.Thread], stack)
	}
	p.Samples = int64(len(samples))
	p.Named, p.Frames = share(leaves, len(samples)), share(named, frames)
	for id := range after {
		if stacks[id] == nil {
			stacks[id] = []flamegraph.Stack{}
		}
	}
	for id, list := range stacks {
		p.add(id, list, before, after)
	}
	p.conclude()
}

// threadName separates the main thread from others with the same name.
func (p *Profile) threadName(id int, name string) string {
	if id == p.PID {
		return "main: " + name
	}
	return name
}

func (p *Profile) add(id int, list []flamegraph.Stack, before, after map[int]thread) {
	t := Thread{ID: id, CPU: -1, Samples: int64(len(list)), Name: p.threadName(id, after[id].name)}
	if _, ok := after[id]; ok {
		t.CPU = (after[id].used - before[id].used).Seconds() / p.Seconds
	} else if len(list) > 0 {
		t.Name = list[0].Frames[0]
	}
	t.Top = topOf(inner(list))
	p.Threads, p.Stacks = append(p.Threads, t), append(p.Stacks, list...)
}

func topOf(list []flamegraph.Stack) []flamegraph.Function {
	top := flamegraph.Functions(list)
	top = slices.DeleteFunc(top, func(f flamegraph.Function) bool { return f.Self == 0 })
	return top[:min(len(top), topOfThread)]
}

// inner leaves out the names of threads, which are not functions.
func inner(list []flamegraph.Stack) []flamegraph.Stack {
	out := make([]flamegraph.Stack, 0, len(list))
	for _, s := range list {
		if len(s.Frames) > 1 {
			out = append(out, flamegraph.Stack{Frames: s.Frames[1:], Count: s.Count})
		}
	}
	return out
}

// conclude sorts what was added.
func (p *Profile) conclude() {
	slices.SortFunc(p.Threads, func(a, b Thread) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	p.Functions = flamegraph.Functions(inner(p.Stacks))
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
