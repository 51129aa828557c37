package configure

import (
	"slices"

	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
)

// diffSide is a configuration with what analysis needs of it.
type diffSide struct {
	preview.Side
	raw      map[model.Key][]byte
	problems problem.List // of single objects
	trees    []*file.Tree // the files; none: only a cluster was read
	running  string       // the directory of the control plane that was read; empty: none
}

// problemCounts counts problems that are alike, wherever they are.
type problemCounts map[problemIdentity]int

type problemIdentity struct {
	object  model.Key
	code    code.Code
	message string
}

func newProblemCounts(list problem.List) problemCounts {
	out := problemCounts{}
	for i := range list {
		out[identityOf(&list[i])]++
	}
	return out
}

func identityOf(p *problem.Problem) problemIdentity {
	return problemIdentity{p.Object, p.Code, p.Message}
}

// has reports whether a problem is one of those counted, and takes it from them.
func (c problemCounts) has(p *problem.Problem) bool {
	c[identityOf(p)]--
	return c[identityOf(p)] >= 0
}

// newProblems returns the errors and warnings of analysis that only the configuration after the change has. files: both are files.
func (f *diffFlags) newProblems(before, after *diffSide, files bool) problem.List {
	known := newProblemCounts(f.analyze(before, files))
	found := f.analyze(after, files)
	found.Sort()
	return slices.DeleteFunc(found, func(p problem.Problem) bool {
		return known.has(&p) || p.Severity == problem.SeverityInfo || p.Code == code.PartlyUsed
	})
}

func (f *diffFlags) analyze(s *diffSide, files bool) problem.List {
	in := analyze.Input{Objects: s.Objects, Templates: s.Templates, Raw: s.raw, Files: files, Root: f.root}
	found := append(slices.Clone(s.problems), analyze.CheckAll(in, f.domain)...)
	for _, tree := range s.trees {
		tree.Locate(found)
	}
	return found.Analyzed()
}
