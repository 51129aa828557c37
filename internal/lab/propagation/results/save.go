package results

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// Save writes report.json, report.html and profiles into a directory, which it creates.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a report is public
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
	files := map[string][]byte{"report.json": append(b, '\n'), "report.html": html.Bytes()}
	for _, x := range r.Results {
		for name, content := range x.Profiles {
			files[x.Scenario+"-"+name] = content
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}
