package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ReadPodInfo adds the labels and annotations that the kubelet writes into a folder (a downwardAPI volume). It skips a
// file that does not exist, and labels or annotations that the workload already has.
func (w *Workload) ReadPodInfo(dir string) error {
	for _, f := range []struct {
		name string
		into *map[string]string
	}{{"labels", &w.Labels}, {"annotations", &w.Annotations}} {
		if len(*f.into) > 0 {
			continue
		}
		path := filepath.Join(dir, f.name)
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			*f.into, err = parsePodInfo(string(text))
		}
		if err != nil {
			return fmt.Errorf("cannot read %s: %w: correct --pod-info", path, err)
		}
	}
	return nil
}

// parsePodInfo decodes lines of NAME="VALUE". The values are quoted as in Go.
func parsePodInfo(text string) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, quoted, ok := strings.Cut(line, "=")
		value, err := strconv.Unquote(quoted)
		if !ok || err != nil {
			return nil, fmt.Errorf("invalid line %q: use NAME=\"VALUE\"", line)
		}
		out[name] = value
	}
	return out, nil
}
