package chaos

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Options configure a run.
type Options struct {
	Programs  child.Programs
	Envoy     string   // its path
	Next      []string // command line of the moonsail that control planes are upgraded to; nil: the same program with other options
	APIServer []string // command line of test/kube's API server; nil: the mesh is a directory of YAML
	Time      time.Duration
	Seed      uint64
	Proxies   int
	Plan      []Action     // nil: that of Seed
	Dir       string       // for logs; empty: they are removed with the other files
	Version   string       // of moonsail, for the report
	Progress  func(string) // may be nil
}

// Limits of Options.
const (
	MinTime    = 10 * time.Second
	MinProxies = 3
	MaxProxies = 60
)

// Check returns the error of a value that is out of range.
func (o *Options) Check() error {
	switch {
	case o.Time < MinTime:
		return fmt.Errorf("--time %s: too short: use %s or more", o.Time, MinTime)
	case o.Proxies < MinProxies || o.Proxies > MaxProxies:
		return fmt.Errorf("--proxies %d: out of range: use %d to %d", o.Proxies, MinProxies, MaxProxies)
	}
	return checkPlan(o.Plan, ShapeOf(o.Proxies, o.APIServer != nil))
}

// checkPlan checks that a mesh has what the actions of a plan concern.
func checkPlan(plan []Action, s Shape) error {
	objects := s.objects()
	for i, a := range plan {
		kind, of, _ := strings.Cut(a.Target, "/")
		_, known := objects[a.Target]
		switch {
		case a.What == write && known, a.What == burst && kind == "noise":
			continue
		case !slices.ContainsFunc(faultKinds, func(k faultKind) bool { return k.what == a.What }):
			return fmt.Errorf("action %d (%s): unknown action: copy one of another plan", i+1, a)
		case kind == "plane" && (of == "1" || of == "2"), kind == "proxy" && slices.Contains(s.proxies(), of), a.Target == "all", a.Target == "roots", a.Target == "server" && s.APIServer:
			continue
		}
		return fmt.Errorf("action %d (%s): the mesh has no %s: use the --source and --proxies that the plan was made for", i+1, a, a.Target)
	}
	return nil
}

// logs returns the directory of logs.
func (o *Options) logs(temporary string) string {
	if o.Dir != "" {
		return filepath.Join(o.Dir, "logs")
	}
	return filepath.Join(temporary, "logs")
}

func (o *Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

var errSameEnvoy = errors.New("the agent has not started another one")
