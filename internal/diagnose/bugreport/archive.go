// Package bugreport writes the state of a mesh into one archive, without secrets. A manifest lists the
// files, and what is empty or could not be read.
package bugreport

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"time"

	"sigs.k8s.io/yaml"
)

// Item is one file of a report.
type Item struct {
	Name  string // path in the archive
	About string
	// Binary is set for profiles, which have no values of variables. They are not searched for secrets.
	Binary bool
	// YAML writes the JSON that Read returns as YAML.
	YAML bool
	// IsEmpty reports whether the text has nothing to tell; nil: it has. The file is then left out.
	IsEmpty func(text []byte) bool
	Read    func(ctx context.Context) ([]byte, error)
}

// Options bound a report.
type Options struct {
	Folder   string        // the archive's top directory
	MaxFile  int           // limit of one file before compression, in bytes; longer files are cut
	MaxTotal int           // limit of all files before compression, in bytes; later files are left out
	Timeout  time.Duration // limit for reading each item
	Now      time.Time
	Progress func(done, all int, name string) // may be nil
}

// Manifest describes a report.
type Manifest struct {
	Created  time.Time `json:"created"`
	Files    []File    `json:"files"`
	Bytes    int       `json:"bytes"`
	Redacted int       `json:"redacted"` // number of removed secrets, or texts that look like secrets
	Failed   int       `json:"failed"`   // files that could not be read
	Empty    int       `json:"empty"`    // files that are left out, as they are empty
}

// File is a file of the report, or one that is missing.
type File struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Bytes    int    `json:"bytes"`
	Redacted int    `json:"redacted,omitempty"`
	Cut      bool   `json:"cut,omitempty"`   // the source is longer
	Empty    bool   `json:"empty,omitempty"` // the file is left out, as there is nothing in it
	Error    string `json:"error,omitempty"` // why the file is missing
}

// Write reads all items, one after the other, and writes the archive. An item that cannot be read is listed
// in the manifest and affects no other item. If the context ends, the remaining items are missing.
func Write(ctx context.Context, w io.Writer, items []Item, o Options) (*Manifest, error) {
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	m := &Manifest{Created: o.Now, Files: []File{}}
	for i := range items {
		if o.Progress != nil {
			o.Progress(i, len(items), items[i].Name)
		}
		f, text := o.read(ctx, &items[i], m.Bytes)
		switch {
		case f.Error != "":
			m.Failed++
		case f.Empty:
			m.Empty++
		default:
			if err := o.put(out, f.Name, text); err != nil {
				return nil, err
			}
		}
		m.Bytes, m.Redacted = m.Bytes+f.Bytes, m.Redacted+f.Redacted
		m.Files = append(m.Files, f)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := o.put(out, "manifest.json", append(text, '\n')); err != nil {
		return nil, err
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return m, zip.Close()
}

// read reads an item. have is the number of bytes that are in the archive.
func (o *Options) read(ctx context.Context, item *Item, have int) (File, []byte) {
	f := File{Name: item.Name, About: item.About}
	if have >= o.MaxTotal {
		f.Error = fmt.Sprintf("left out: the report has %d bytes", have)
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	text, err := item.Read(ctx)
	if err != nil {
		var r redactor
		f.Error = r.lines(err.Error())
		return f, nil
	}
	if item.IsEmpty != nil && item.IsEmpty(text) {
		f.Empty = true
		return f, nil
	}
	if !item.Binary {
		var r redactor
		text = r.text(text) // before it is cut: half a document cannot be parsed
		f.Redacted = r.count
	}
	if item.YAML {
		if converted, err := yaml.JSONToYAML(text); err == nil {
			text = converted
		}
	}
	if most := min(o.MaxFile, o.MaxTotal-have); len(text) > most {
		text, f.Cut = text[:most], true
	}
	f.Bytes = len(text)
	return f, text
}

func (o *Options) put(out *tar.Writer, name string, text []byte) error {
	err := out.WriteHeader(&tar.Header{Name: path.Join(o.Folder, name), Mode: 0o600, Size: int64(len(text)), ModTime: o.Now, Typeflag: tar.TypeReg})
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
