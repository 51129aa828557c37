package file

import (
	"encoding/json"
	"slices"

	"github.com/moonsail/moonsail/internal/config"
)

// Raw returns the objects of a directory as JSON, as users wrote them, in the order of files. It leaves out Secrets, and
// files that cannot be read.
func Raw(dir string) (out []json.RawMessage) {
	l := list(dir, nil)
	for _, path := range l.files {
		data, _, err := read(path)
		if err != nil {
			continue
		}
		p := parse(path, data, config.Decoder{})
		for _, d := range slices.Concat(p.docs, p.unread) {
			if len(d.content) > 0 && d.key.Kind != "Secret" {
				out = append(out, d.content)
			}
		}
	}
	return out
}
