package profile

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
)

// namer names frames by perf or, if perf has no name, by the class descriptions of a stripped program.
type namer struct {
	pid    int
	mapped []mapping
	files  map[string]*program // nil: cannot be read
}

func newNamer(pid int, mapped []mapping) *namer {
	return &namer{pid: pid, mapped: mapped, files: map[string]*program{}}
}

// name returns a frame's name for package flamegraph, and whether it is a real one. If not, it is the
// module and the start of the function. A caller's address is the one after the call.
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

// place returns a frame's offset in its file. Older versions of perf print addresses in memory.
func (n *namer) place(f Frame) (file string, offset uint64) {
	for _, m := range n.mapped {
		if f.Address >= m.from && f.Address < m.to {
			return m.file, f.Address - m.from + m.offset
		}
	}
	return f.Module, f.Address
}

// file reads a program once. The path is the one inside of the container.
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
