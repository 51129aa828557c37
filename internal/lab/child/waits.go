package child

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Wait counts the waits of goroutines at one place of the code since the start of the process.
type Wait struct {
	Where string // function and line
	Count int64
	Time  time.Duration
}

// Waits reads a Go process's profile "mutex" or "block", and also returns its bytes. addr is the address of its profiles.
// The process must record waits.
func Waits(ctx context.Context, addr, name string) (list []Wait, raw []byte, err error) {
	if raw, err = fetchProfile(ctx, addr, name); err != nil {
		return nil, nil, err
	}
	list, err = parseWaits(name, raw)
	return list, raw, err
}

// parseWaits sums a profile up by place. Its samples have two values: count and nanoseconds.
func parseWaits(name string, b []byte) ([]Wait, error) {
	p, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	var out []Wait
	at := map[string]int{}
	for _, s := range p.Sample {
		if len(s.Value) != 2 {
			return nil, fmt.Errorf("profile %s: samples have %d values, not 2", name, len(s.Value))
		}
		where := place(s)
		i, ok := at[where]
		if !ok {
			i = len(out)
			at[where] = i
			out = append(out, Wait{Where: where})
		}
		out[i].Count += s.Value[0]
		out[i].Time += time.Duration(s.Value[1])
	}
	return out, nil
}

// place is the first frame of a sample that is not of the language's own packages, or the
// first of all.
func place(s *profile.Sample) string {
	first := "?"
	for _, loc := range s.Location {
		for _, l := range loc.Line {
			if l.Function == nil {
				continue
			}
			name := l.Function.Name
			text := fmt.Sprintf("%s:%d", name[strings.LastIndexByte(name, '/')+1:], l.Line)
			if first == "?" {
				first = text
			}
			if !ownPackage(name) {
				return text
			}
		}
	}
	return first
}

func ownPackage(function string) bool {
	for _, p := range []string{"runtime.", "sync.", "internal/", "runtime/"} {
		if strings.HasPrefix(function, p) {
			return true
		}
	}
	return false
}
