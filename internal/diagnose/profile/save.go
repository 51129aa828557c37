package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
)

// Save writes profile.svg, stacks.folded and profile.json into a folder, which it makes if necessary. raw,
// if not empty, becomes cpu.pprof.
func (p *Profile) Save(dir string, raw []byte) error {
	var svg, folded bytes.Buffer
	if err := p.graph().WriteSVG(&svg); err != nil {
		return err
	}
	if err := flamegraph.Fold(&folded, p.Stacks); err != nil {
		return err
	}
	report, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a report, for everybody
		return err
	}
	files := map[string][]byte{"profile.svg": svg.Bytes(), "stacks.folded": folded.Bytes(), "profile.json": append(report, '\n')}
	if raw != nil {
		files["cpu.pprof"] = raw
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil { //nolint:gosec // see above
			return err
		}
	}
	return nil
}

func (p *Profile) graph() *flamegraph.Graph {
	note := fmt.Sprintf("%.1f s, %d samples at %d a second of each busy thread; names: %.0f%% of the innermost functions, %.0f%% of all frames",
		p.Seconds, p.Samples, p.Frequency, 100*p.Named, 100*p.Frames)
	if p.PID != 0 {
		note += "; C::v#3 is virtual function 3 of class C"
	}
	return &flamegraph.Graph{Title: "CPU of " + p.Subject, Subtitle: note, Unit: "samples", Stacks: p.Stacks}
}
