package propagation

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// Save writes report.json and report.html into a directory, which it makes.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a report is for everybody
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := r.WriteHTML(&html); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(b, '\n'), 0o644); err != nil { //nolint:gosec // as above
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.html"), html.Bytes(), 0o644) //nolint:gosec // as above
}
