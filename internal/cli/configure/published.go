package configure

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
)

// publish words a report for a public comment: without directories of this machine, and without addresses.
func publish(r *preview.Report) {
	for i := range r.Objects {
		r.Objects[i].Origin = published(r.Objects[i].Origin)
	}
	r.Problems = publishedProblems(r.Problems)
	if dir, _, ok := strings.Cut(r.Source, ", the directory of "); ok {
		r.Source = published(dir) + ", the directory of a control plane"
	} else if strings.HasPrefix(r.Source, clusterAt) {
		r.Source = "the cluster"
	}
}

// publishedProblems returns problems with the files' names as GitHub has them.
func publishedProblems(list problem.List) problem.List {
	out := append(problem.List{}, list...)
	for i := range out {
		out[i].File = published(out[i].File)
	}
	return out
}

// published returns the name of a file, also with a line, relative to the root of the repository that has the working directory. If
// there is none, it is relative to the working directory. A file outside keeps its name.
func published(name string) string {
	if name == "" {
		return ""
	}
	here, err := os.Getwd()
	if err != nil {
		return name
	}
	if real, err := filepath.EvalSymlinks(here); err == nil {
		here = real
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(here, path)
	} else if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	rel, err := filepath.Rel(cmp.Or(repository(here), here), path)
	if err != nil || !filepath.IsLocal(rel) {
		return name
	}
	return filepath.ToSlash(rel)
}

// repository returns the root of the Git repository that has a directory; "": none.
func repository(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			return ""
		}
		dir = above
	}
}
