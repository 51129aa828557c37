package configure

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// maxUnread is how many problems of the configuration before the change are named.
const maxUnread = 3

// unread returns notes about what cannot be read of the configuration before the change. running: it is the directory of a control
// plane, which keeps the previous objects in force. The comparison would be with a state that never was if the change is about one of
// them, which is an error then.
func (f *diffFlags) unread(before *diffSide, change *file.Tree, dir string) (notes []string, err error) {
	var wrong problem.List
	for _, p := range before.problems {
		if p.Severity == problem.SeverityError && len(before.trees) > 0 {
			wrong = append(wrong, p)
		}
	}
	if dir != "" && change != nil && len(wrong) > 0 {
		if err := f.unknownBefore(wrong, change, dir); err != nil {
			return nil, err
		}
	}
	consequence := "the comparison is without what cannot be read"
	if dir != "" {
		consequence = "the control plane keeps the previous objects in force, and the comparison is without them"
	}
	for i, p := range wrong {
		if i == maxUnread {
			notes = append(notes, fmt.Sprintf("%s more before the change: see 'moonsail analyze'", terminal.Count(len(wrong)-i, "error")))
			break
		}
		if f.out.Is(formatGitHub) {
			p.File = published(p.File)
		}
		notes = append(notes, "before the change: "+p.String()+": "+consequence)
	}
	return notes, nil
}

// unknownBefore returns the error of a change to an object whose version in force is not in the directory of a control plane.
func (f *diffFlags) unknownBefore(wrong problem.List, change *file.Tree, dir string) error {
	merged, err := file.Options{Decoder: f.decoder(), Change: f.files()}.Analyze(dir)
	if err != nil {
		return unreadable(f.change, err)
	}
	for _, p := range wrong {
		if change.Has(p.Object) || slices.Contains(merged.Replaced, p.File) {
			return &terminal.UserError{
				What:  "the state before the change is not known: the control plane keeps the previous object in force, and the file does not have it any more",
				Where: p.Where(), Err: fmt.Errorf("%s", p.Message),
				Next: "give OLD, a directory with the previous version of the file, for example of the last commit: git worktree add ../base HEAD",
			}
		}
	}
	return nil
}

// files returns the files of the change without standard input, which is read once.
func (f *diffFlags) files() (out []string) {
	for _, name := range f.change {
		if name != file.Stdin {
			out = append(out, name)
		}
	}
	return out
}
