package configure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// analysis is the result of `moonsail analyze`.
type analysis struct {
	Files      int          `json:"files"`
	Cluster    string       `json:"cluster,omitempty"` // the API server, if one was read
	Source     string       `json:"source,omitempty"`  // what the files are, if no argument names them
	Objects    int          `json:"objects"`
	Errors     int          `json:"errors"`
	Warnings   int          `json:"warnings"`
	Infos      int          `json:"infos"`
	Suppressed int          `json:"suppressed,omitempty"`
	Problems   problem.List `json:"problems"`
	Notes      []string     `json:"notes,omitempty"` // what is left out, and what is not known

	nothing bool       // the files have no objects
	tree    *file.Tree // nil: only a cluster was read
}

// readFiles reads directories, files, and standard input, with the objects of change in place of theirs.
func (f *analyzeFlags) readFiles(stdin []byte, paths, change []string) (*file.Tree, error) {
	decoder := config.Decoder{Domain: f.domain, DefaultNamespace: f.namespace, Revision: f.revision}
	tree, err := file.Options{Decoder: decoder, Stdin: bytes.NewReader(stdin), Shallow: !f.recursive, Change: change, Bounded: f.bounded}.Analyze(paths...)
	if err == nil {
		// What is in force after an error depends on the control plane, which reports it.
		tree.Problems = slices.DeleteFunc(tree.Problems, func(p problem.Problem) bool { return p.Code == code.PartlyUsed })
		return tree, nil
	}
	return nil, unreadable(slices.Concat(paths, change), err)
}

// analyzeFiles checks files alone.
func (f *analyzeFlags) analyzeFiles(stdin []byte, paths []string, s selection) (analysis, error) {
	tree, err := f.readFiles(stdin, paths, f.change)
	if err != nil {
		return analysis{}, err
	}
	all := across(tree, tree.Objects, analyze.Input{Files: true, Root: f.root}, f.domain)
	if f.annotates() && len(f.change) > 0 {
		if all, err = f.added(all, stdin, paths); err != nil {
			return analysis{}, err
		}
	}
	a := analysisOf(tree, all, s)
	if len(f.change) == 0 && slices.ContainsFunc(a.Problems, func(p problem.Problem) bool { return p.Code == code.NotAmongObjects }) {
		a.Notes = append(a.Notes, "objects outside of these files are not known, so what refers to them is not checked: "+
			"check them together with 'moonsail analyze DIR -f "+strings.Join(paths, " -f ")+"', or with a cluster: --context NAME")
	}
	return a, nil
}

// annotates reports whether the output annotates lines of a change.
func (f *analyzeFlags) annotates() bool { return f.out.Is(formatGitHub) || f.out.Is(formatSARIF) }

// added returns the problems that a change adds, and all problems in the files of the change.
func (f *analyzeFlags) added(all problem.List, stdin []byte, paths []string) (problem.List, error) {
	tree, err := f.readFiles(stdin, paths, nil)
	if err != nil {
		return nil, err
	}
	before := across(tree, tree.Objects, analyze.Input{Files: true, Root: f.root}, f.domain)
	known := newProblemCounts(before)
	return slices.DeleteFunc(all, func(p problem.Problem) bool { return known.has(&p) && !inside(f.change, p.File) }), nil
}

// inside reports whether a file is one of paths, or below one of them.
func inside(paths []string, name string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		rel, err := filepath.Rel(p, name)
		return err == nil && filepath.IsLocal(rel)
	})
}

// analyzeCluster checks a cluster, or files as if they were applied to it.
func (f *analyzeFlags) analyzeCluster(ctx context.Context, c kube.Cluster, stdin []byte, paths []string, s selection) (analysis, error) {
	content, address, err := readCluster(ctx, &f.plane.Cluster, c, f.domain, f.root, f.revision)
	if err != nil {
		return analysis{}, err
	}
	if len(paths)+len(f.change) > 0 {
		a, err := f.analyzeApplied(stdin, content, paths, s)
		a.Cluster = address
		return a, err
	}
	annotations := map[model.Key]string{}
	for _, o := range content.Objects {
		annotations[o.Metadata().Key] = o.Metadata().Annotations[code.AnnotationSuppress]
	}
	all := append(content.Problems, analyze.CheckAll(analyze.Input{Objects: content.Objects, Root: f.root}, f.domain)...)
	all = append(all, unmatchedPatches(content.Objects, nil, false, f.root, f.domain)...)
	all = append(all, unreadBySidecars(content.Objects, nil)...)
	a := newAnalysis(all, s, func(k model.Key) string { return annotations[k] })
	a.Cluster, a.Objects = address, len(content.Objects)
	return a, nil
}

// analyzeApplied checks files together with the objects of a cluster that they do not replace.
func (f *analyzeFlags) analyzeApplied(stdin []byte, content *kube.Content, paths []string, s selection) (analysis, error) {
	tree, err := f.readFiles(stdin, paths, f.change)
	if err != nil {
		return analysis{}, err
	}
	merged := slices.Clone(tree.Objects)
	for _, o := range content.Objects {
		if !tree.Has(o.Metadata().Key) {
			merged = append(merged, o)
		}
	}
	all := across(tree, merged, analyze.Input{Root: f.root}, f.domain)
	return analysisOf(tree, all, s), nil
}

// analysisOf selects the problems to report of files.
func analysisOf(tree *file.Tree, all problem.List, s selection) analysis {
	a := newAnalysis(all, s, tree.Suppressed)
	for _, path := range tree.Replaced {
		a.Notes = append(a.Notes, path+" is not YAML: its error is left out, because the change has its objects")
	}
	a.tree, a.Files, a.Objects, a.nothing = tree, tree.Files, len(tree.Objects), tree.Documents == 0 && len(all) == 0
	return a
}

// across returns the problems of the documents of a tree, and those between objects, as far as they are about the tree.
func across(tree *file.Tree, objects []model.Object, in analyze.Input, domain string) problem.List {
	in.Objects, in.Templates, in.Raw = slices.Clone(objects), tree.Templates, tree.Raw
	// A draft takes the place of the valid part: it has more of the object.
	in.Objects = slices.DeleteFunc(in.Objects, func(o model.Object) bool { return tree.Drafts[o.Metadata().Key] != nil })
	for _, d := range tree.Drafts {
		in.Drafts = append(in.Drafts, d.Object)
	}
	type place struct {
		object model.Key
		field  string
	}
	wrong := map[place]bool{}
	for _, p := range tree.Problems {
		if p.Severity == problem.SeverityError && p.Field != "" {
			wrong[place{p.Object, p.Field}] = true
		}
	}
	in.Broken = tree.Broken
	found := append(analyze.CheckAll(in, domain), unmatchedPatches(objects, tree.Templates, in.Files, in.Root, domain)...)
	found = append(found, unreadBySidecars(objects, tree.Templates)...)
	problems := slices.DeleteFunc(found, func(p problem.Problem) bool {
		d := tree.Drafts[p.Object]
		return d != nil && d.Concerns(p) || wrong[place{p.Object, p.Field}] || !in.Files && !tree.Has(p.Object)
	})
	problems = append(problems, refusedPods(tree)...)
	problems = append(problems, failingCommands(tree)...)
	tree.Locate(problems)
	return append(tree.Problems, problems...)
}

// newAnalysis selects the problems to report. annotation returns an object's annotation that suppresses messages.
func newAnalysis(all problem.List, s selection, annotation func(model.Key) string) analysis {
	var a analysis
	all = slices.DeleteFunc(all.Analyzed(), func(p problem.Problem) bool {
		if !slices.Contains(s.keep, p.Severity) || !s.inNamespace(p.Object) {
			return true
		}
		if !s.suppresses(p) && !annotationSuppresses(annotation(p.Object), p.Code) {
			return false
		}
		a.Suppressed++
		return true
	})
	all.Sort()
	a.Problems = append(problem.List{}, all...)
	a.Errors, a.Warnings, a.Infos = all.Count(problem.SeverityError), all.Count(problem.SeverityWarning), all.Count(problem.SeverityInfo)
	return a
}

// inNamespace reports whether problems of an object are reported. Those without an object are.
func (s *selection) inNamespace(k model.Key) bool {
	return s.namespace == "" || k == (model.Key{}) || k.Namespace == s.namespace || k.Namespace == "" && k.Name == s.namespace
}

// printAnalysis prints one line for each problem, as compilers do, and the counts.
func printAnalysis(w io.Writer, a analysis) error {
	s := terminal.StyleFor(w)
	for _, p := range a.Problems {
		if _, err := fmt.Fprintln(w, problemLine(s, p)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "%s, %s: %s\n", read(a), terminal.Count(a.Objects, "object"), verdict(s, a)); err != nil {
		return err
	}
	for _, n := range a.Notes {
		if _, err := fmt.Fprintf(w, "%s %s\n", s.Warn("note:"), n); err != nil {
			return err
		}
	}
	return nil
}

// problemLine returns a problem as compilers print it.
func problemLine(s terminal.Style, p problem.Problem) string {
	paint := map[problem.Severity]func(string) string{
		problem.SeverityError: s.Bad, problem.SeverityWarning: s.Warn, problem.SeverityInfo: s.Dim,
	}
	line := paint[p.Severity](string(p.Severity)) + ": "
	if w := p.Where(); w != "" {
		line = s.Bold(terminal.Escape(w)) + ": " + line
	}
	if p.Object.Name != "" {
		line += terminal.Escape(userKey(p.Object).String()) + ": "
	}
	if p.Field != "" {
		line += s.Dim(p.Field) + ": "
	}
	return line + terminal.Escape(p.Message) + s.Dim(" ["+string(p.Code)+"]")
}

// read names what was read.
func read(a analysis) string {
	files := terminal.Count(a.Files, "file")
	switch {
	case a.Source != "":
		return files + " of " + a.Source
	case a.Cluster == "":
		return files
	case a.Files == 0:
		return a.Cluster
	}
	return files + " against " + a.Cluster
}

// userKey returns a key with the kind that users write.
func userKey(k model.Key) model.Key {
	if k.Kind == model.KindKubernetesGateway {
		k.Kind = model.KindGateway
	}
	return k
}

func verdict(s terminal.Style, a analysis) string {
	text := s.Good("no problems")
	switch {
	case a.nothing:
		return s.Warn("no objects to check")
	case len(a.Problems) > 0:
		text = fmt.Sprintf("%s, %s, %s", terminal.Count(a.Errors, "error"), terminal.Count(a.Warnings, "warning"), terminal.Count(a.Infos, "info"))
	}
	if a.Suppressed > 0 {
		text += fmt.Sprintf(", %d suppressed", a.Suppressed)
	}
	return text
}
