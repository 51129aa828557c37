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
}

// newProblems returns the errors and warnings of analysis that only the configuration after the change has. files: both are files.
func (f *diffFlags) newProblems(before, after *diffSide, files bool) problem.List {
	type identity struct {
		object  model.Key
		code    code.Code
		message string
	}
	of := func(p *problem.Problem) identity { return identity{p.Object, p.Code, p.Message} }
	known := map[identity]int{}
	for _, p := range f.analyze(before, files) {
		known[of(&p)]++
	}
	found := f.analyze(after, files)
	found.Sort()
	return slices.DeleteFunc(found, func(p problem.Problem) bool {
		known[of(&p)]--
		return known[of(&p)] >= 0 || p.Severity == problem.SeverityInfo || p.Code == code.PartlyUsed
	})
}

func (f *diffFlags) analyze(s *diffSide, files bool) problem.List {
	in := analyze.Input{Objects: s.Objects, Templates: s.Templates, Raw: s.raw, Files: files, Root: f.root}
	found := append(slices.Clone(s.problems), analyze.CheckAll(in, f.domain)...)
	for _, tree := range s.trees {
		tree.Locate(found)
	}
	return found
}
