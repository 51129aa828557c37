package profile

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
)

// namer names frames: by perf, and where perf has no name, by what a stripped program says
// of its classes.
type namer struct {
	pid    int
	mapped []mapping
	files  map[string]*program // nil: cannot be read
}

func newNamer(pid int, mapped []mapping) *namer {
	return &namer{pid: pid, mapped: mapped, files: map[string]*program{}}
}

// name is a frame's name, as package flamegraph has it, and whether it is one: where it is
// not, it is the module and where the function begins there. A caller's address is where it
// goes on after the call.
func (n *namer) name(f Frame, caller bool) (text string, named bool) {
	if strings.HasPrefix(f.Module, "[kernel") || strings.HasPrefix(f.Module, "[guest.kernel") {
		if f.Symbol == "" {
			return "[kernel]" + flamegraph.Kernel, false
		}
		return f.Symbol + flamegraph.Kernel, true
	}
	if f.Symbol != "" {
		return f.Symbol, true
	}
	module, offset := n.place(f)
	if caller && offset > 0 {
		offset--
	}
	p := n.file(module)
	if p == nil {
		return filepath.Base(module) + flamegraph.Unnamed, false
	}
	start, name := p.function(offset)
	if name != "" {
		return name, true
	}
	return fmt.Sprintf("%s+%#x%s", filepath.Base(module), start, flamegraph.Unnamed), false
}

// place is where in which file a frame is. Older versions of perf give addresses in memory.
func (n *namer) place(f Frame) (file string, offset uint64) {
	for _, m := range n.mapped {
		if f.Address >= m.from && f.Address < m.to {
			return m.file, f.Address - m.from + m.offset
		}
	}
	return f.Module, f.Address
}

// file reads a program once. In a container the path is the container's.
func (n *namer) file(path string) *program {
	p, ok := n.files[path]
	if !ok && strings.HasPrefix(path, "/") {
		if p = readProgram(fmt.Sprintf("/proc/%d/root%s", n.pid, path)); p == nil {
			p = readProgram(path)
		}
	}
	n.files[path] = p
	return p
}
