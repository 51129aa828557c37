package profile

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// program has what a stripped program still contains: the starts of its functions, which exceptions need,
// and the names of classes with virtual functions, which dynamic_cast needs. So a virtual function is known
// by its class and its place in the class's table.
type program struct {
	loads   []elf.ProgHeader
	starts  []uint64 // of functions, ascending
	virtual map[uint64]slot
	names   map[string]string // mangled -> readable names, as far as they were needed
}

// slot is a place in the table of virtual functions of a class.
type slot struct {
	class string // mangled
	index int
	depth int // number of base classes above it
}

// readProgram returns nil if the file cannot be read or is not an ELF file.
func readProgram(path string) *program {
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	p := &program{starts: functionStarts(f), names: map[string]string{}}
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			p.loads = append(p.loads, s.ProgHeader)
		}
	}
	p.virtual = virtualFunctions(f)
	return p
}

// function returns the start of the function that contains an offset of the file, and its name if it is
// known.
func (p *program) function(offset uint64) (start uint64, name string) {
	start = offset
	for i := range p.loads {
		if l := &p.loads[i]; offset >= l.Off && offset < l.Off+l.Filesz {
			start = offset - l.Off + l.Vaddr
		}
	}
	if i := sort.Search(len(p.starts), func(i int) bool { return p.starts[i] > start }); i > 0 {
		start = p.starts[i-1]
	}
	if s, ok := p.virtual[start]; ok {
		return start, fmt.Sprintf("%s::v#%d", p.readable(s.class), s.index)
	}
	return start, ""
}

// longest is the maximum length of a name: names of templates may fill pages.
const longest = 240

func (p *program) readable(class string) string {
	if text, ok := p.names[class]; ok {
		return text
	}
	text := strings.TrimPrefix(demangle.Filter("_ZTS"+class), "typeinfo name for ")
	// A function object has the name of what it was made from.
	if inner, ok := strings.CutPrefix(text, "std::__1::__function::__func<"); ok {
		text = "function<" + inner
	}
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	p.names[class] = text
	return text
}

// functionStarts reads the search table of .eh_frame_hdr in the form that all linkers write: a count, and
// pairs of 32-bit offsets relative to the section.
func functionStarts(f *elf.File) (out []uint64) {
	s := f.Section(".eh_frame_hdr")
	if s == nil {
		return nil
	}
	b, err := s.Data()
	if err != nil || len(b) < 12 || b[0] != 1 || b[1]&0x0f != 0x0b || b[2] != 0x03 || b[3] != 0x3b {
		return nil
	}
	for at := 12; at+8 <= len(b) && len(out) < int(f.ByteOrder.Uint32(b[8:])); at += 8 {
		out = append(out, s.Addr+uint64(int64(int32(f.ByteOrder.Uint32(b[at:]))))) //nolint:gosec // it is signed, and wraps
	}
	slices.Sort(out)
	return out
}

// pointer is a word of the file that the loader relocates to an address.
type pointer struct{ at, to uint64 }

// pointers returns all words that are addresses within the program, ascending. Only position-independent
// programs have such a list.
func pointers(f *elf.File) (out []pointer) {
	relative := map[elf.Machine]uint32{elf.EM_X86_64: uint32(elf.R_X86_64_RELATIVE), elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE)}
	kind, ok := relative[f.Machine]
	s := f.Section(".rela.dyn")
	if !ok || s == nil {
		return nil
	}
	b, err := s.Data()
	if err != nil {
		return nil
	}
	for ; len(b) >= 24; b = b[24:] {
		if uint32(binary.LittleEndian.Uint64(b[8:])) == kind { //nolint:gosec // the low half is the kind
			out = append(out, pointer{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[16:])})
		}
	}
	slices.SortFunc(out, func(a, b pointer) int { return cmp.Compare(a.at, b.at) })
	return out
}
