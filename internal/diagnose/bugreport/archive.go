// Package bugreport puts what there is to know about a mesh into one archive, without
// secrets, and with a manifest that says what is in it and what could not be read.
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
)

// Item is one file of a report.
type Item struct {
	Name  string // its path in the archive
	About string
	// Binary: a profile, from which nothing is taken out; it has no values of variables.
	Binary bool
	Read   func(ctx context.Context) ([]byte, error)
}

// Options bound a report.
type Options struct {
	Folder   string        // everything is in it
	MaxFile  int           // bytes of one file before compression; longer ones are cut
	MaxTotal int           // bytes of all before compression; what comes after is left out
	Timeout  time.Duration // for each item
	Now      time.Time
	Progress func(done, all int, name string) // may be nil
}

// Manifest says what is in a report.
type Manifest struct {
	Created  time.Time `json:"created"`
	Files    []File    `json:"files"`
	Bytes    int       `json:"bytes"`
	Redacted int       `json:"redacted"` // secrets, or what looked like them
	Failed   int       `json:"failed"`   // files that could not be read
}

// File is one file of it, or one that is not there.
type File struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Bytes    int    `json:"bytes"`
	Redacted int    `json:"redacted,omitempty"`
	Cut      bool   `json:"cut,omitempty"`   // it is longer
	Error    string `json:"error,omitempty"` // why it is not there
}

// Write reads all items, one after the other, and writes the archive. What cannot be read is
// in the manifest, and costs itself only; the context's end costs what comes after it.
func Write(ctx context.Context, w io.Writer, items []Item, o Options) (*Manifest, error) {
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	m := &Manifest{Created: o.Now, Files: []File{}}
	for i := range items {
		if o.Progress != nil {
			o.Progress(i, len(items), items[i].Name)
		}
		f, text := o.read(ctx, &items[i], m.Bytes)
		if f.Error != "" {
			m.Failed++
		} else if err := o.put(out, f.Name, text); err != nil {
			return nil, err
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

// read reads an item; so many bytes are in the archive.
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
	if !item.Binary {
		var r redactor
		text = r.text(text) // before it is cut: half a document is no document
		f.Redacted = r.count
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
