package profile

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Sample is the call stack of a thread at one moment, innermost frame first.
type Sample struct {
	Thread int    // id
	Name   string // of the thread
	Frames []Frame
}

// Frame is one call.
type Frame struct {
	Address uint64 // offset in the module's file; an address in memory if perf is old, or there is no module
	Symbol  string // "": unknown
	Module  string // a file, "[kernel.kallsyms]", "[vdso]", ...
}

// scriptFields are the fields that perf script prints, in its order.
const scriptFields = "comm,tid,ip,sym,dso"

// parseScript reads the output of perf script: a line "NAME TID", a line "ADDRESS SYMBOL (MODULE)" for each
// frame, an empty line.
func parseScript(r io.Reader) (out []Sample, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	open := false
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
			open = false
		case !open:
			s, err := parseThread(line)
			if err != nil {
				return nil, fmt.Errorf("perf script, line %d: %w", n, err)
			}
			out, open = append(out, s), true
		default:
			f, err := parseFrame(line)
			if err != nil {
				return nil, fmt.Errorf("perf script, line %d: %w", n, err)
			}
			last := &out[len(out)-1]
			last.Frames = append(last.Frames, f)
		}
	}
	return out, lines.Err()
}

func parseThread(line string) (Sample, error) {
	at := strings.LastIndexByte(line, ' ')
	tid, err := strconv.Atoi(line[at+1:])
	if at < 0 || err != nil {
		return Sample{}, fmt.Errorf("%q: not the name and ID of a thread", line)
	}
	return Sample{Thread: tid, Name: strings.TrimSpace(line[:at])}, nil
}

func parseFrame(line string) (Frame, error) {
	first, rest, _ := strings.Cut(line, " ")
	address, err := strconv.ParseUint(first, 16, 64)
	open := strings.LastIndex(rest, " (")
	if err != nil || open < 0 || !strings.HasSuffix(rest, ")") {
		return Frame{}, fmt.Errorf("%q: not a frame", line)
	}
	f := Frame{Address: address, Symbol: rest[:open], Module: rest[open+2 : len(rest)-1]}
	if f.Symbol == "[unknown]" {
		f.Symbol = ""
	}
	return f, nil
}
