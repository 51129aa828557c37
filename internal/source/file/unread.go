package file

import (
	"path/filepath"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// An object stays in force if its file cannot be read any more, or if a document without a known name may be it. The problem
// of the file or document is then also one of the object: its newest version is refused.

// hides returns why objects that the file lacks may be in it; nil: they are not.
func (p *parsed) hides() *problem.Problem {
	switch {
	case len(p.syntax) > 0:
		return new(ofFile(p.syntax[0]))
	case p.nameless != nil:
		return new(ofDocument(*p.nameless))
	}
	return nil
}

// ofFile words a problem of a file as one of an object in it.
func ofFile(p problem.Problem) problem.Problem {
	p.Message = "its file " + p.Message
	return p
}

// ofDocument words a problem of a document without a name as one of an object that may be it.
func ofDocument(p problem.Problem) problem.Problem {
	message := p.Message
	if p.Field != "" {
		message = p.Field + ": " + message
	}
	p.Field, p.Fix = "", problem.Fix{}
	p.Message = "its file has a document that may be this object and cannot be read, so it stays in force: " + message
	return p
}

// unread returns why the newest versions of objects in force cannot be read.
func (s *Source) unread() map[model.Key]problem.Problem {
	out := map[model.Key]problem.Problem{}
	add := func(k model.Key, path string, p problem.Problem) {
		if s.catalog.winner(k) == path {
			p.Object = k
			out[k] = p
		}
	}
	for path := range s.catalog.faulty {
		for k, p := range s.catalog.files[path].kept {
			add(k, path, p)
		}
	}
	broken := func(path string, p problem.Problem) {
		if f := s.catalog.files[path]; f != nil {
			for k := range f.objects {
				add(k, path, ofFile(p))
			}
		}
	}
	for path, p := range s.broken {
		broken(path, p)
	}
	if s.gone {
		for path := range s.catalog.files {
			broken(path, s.broken[filepath.Clean(s.Dir)])
		}
	}
	return out
}

// ProblemsOf returns the present problems of an object, sorted.
func (s *Source) ProblemsOf(k model.Key) problem.List {
	var out problem.List
	for _, p := range s.Problems() {
		if p.Object == k {
			out = append(out, p)
		}
	}
	if unread := s.unreadable.Load(); unread != nil {
		if p, is := (*unread)[k]; is {
			out = append(out, p)
		}
	}
	out.Sort()
	return out
}
