package profile

import (
	"bytes"
	"debug/elf"
)

// classes are the types that a program describes for dynamic_cast, by the address of the description: a
// pointer to its own table, one to the mangled name, then, for a class with a single base, one to the
// base's description.
type classes struct {
	to    map[uint64]uint64 // targets of pointers, by their address
	names map[uint64]string
}

// virtualFunctions names functions by the tables that contain them. A table begins after the pointer to its
// class's description. A function that a class inherits is in several tables; it gets the name of the base
// class.
func virtualFunctions(f *elf.File) map[uint64]slot {
	list, text := pointers(f), f.Section(".text")
	if len(list) == 0 || text == nil {
		return nil
	}
	c := &classes{to: make(map[uint64]uint64, len(list)), names: map[uint64]string{}}
	for _, p := range list {
		c.to[p.at] = p.to
	}
	c.find(f, list)
	out := map[uint64]slot{}
	for _, p := range list {
		name, ok := c.names[p.to]
		if !ok {
			continue
		}
		depth := c.depth(p.to)
		for i := 0; ; i++ {
			function, ok := c.to[p.at+8*uint64(i+1)]
			if !ok || function < text.Addr || function >= text.Addr+text.Size {
				break
			}
			if has, known := out[function]; !known || depth < has.depth {
				out[function] = slot{name, i, depth}
			}
		}
	}
	return out
}

// find treats a pointer to a mangled name after another pointer as a description.
func (c *classes) find(f *elf.File, list []pointer) {
	s := f.Section(".rodata")
	if s == nil {
		return
	}
	constants, err := s.Data()
	if err != nil {
		return
	}
	for _, p := range list {
		if p.to < s.Addr || p.to >= s.Addr+uint64(len(constants)) || c.to[p.at-8] == 0 {
			continue
		}
		if name := mangled(constants[p.to-s.Addr:]); name != "" {
			c.names[p.at-8] = name
		}
	}
}

// depth returns the number of classes above a class, if each has one base.
func (c *classes) depth(class uint64) (n int) {
	const most = 32 // limit for cycles
	for base := c.to[class+16]; n < most && c.names[base] != ""; base = c.to[base+16] {
		n++
	}
	return n
}

// mangled returns the mangled class name at the beginning of some bytes; "" if there is none. A star marks
// a class that is local to its file.
func mangled(b []byte) string {
	const shortest, most = 4, 4000
	end := bytes.IndexByte(b[:min(len(b), most)], 0)
	if end < shortest {
		return ""
	}
	name := bytes.TrimPrefix(b[:end], []byte("*"))
	switch first := name[0]; {
	case first == 'N', first == 'S', first == 'Z', first >= '1' && first <= '9':
	default:
		return ""
	}
	for _, x := range name {
		if x != '_' && x != '$' && x != '.' && (x < '0' || x > '9') && (x < 'A' || x > 'Z') && (x < 'a' || x > 'z') {
			return ""
		}
	}
	return string(name)
}
