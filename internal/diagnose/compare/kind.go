package compare

import (
	"regexp"
	"time"
)

// Kind is the kind of a control plane.
type Kind string

// Kinds.
const (
	Unknown  Kind = ""
	Istiod   Kind = "istiod"
	Moonsail Kind = "Moonsail"
)

// istiodVersion is a time and the number of a push; moonsailVersion is a hash, or a revision with the incremental protocol.
var (
	istiodVersion   = regexp.MustCompile(`^([^/]+)/[0-9]+$`)
	moonsailVersion = regexp.MustCompile(`^[0-9a-f]{1,16}$`)
)

// kindOf returns the kind of the control plane that sent a response, by the version in it. Identifiers of control planes and the
// metadata of nodes cannot distinguish them: Moonsail answers istioctl as istiod, and either serves the agents of the other.
func kindOf(version string) Kind {
	if m := istiodVersion.FindStringSubmatch(version); m != nil {
		if _, err := time.Parse(time.RFC3339, m[1]); err == nil {
			return Istiod
		}
	}
	if moonsailVersion.MatchString(version) {
		return Moonsail
	}
	return Unknown
}

// kind returns the kind of a side: its own, else that of all proxies whose kind is known.
func (s *Side) kind() Kind {
	kind := s.Kind
	if kind != Unknown {
		return kind
	}
	for _, p := range s.Proxies {
		switch {
		case p.Kind == Unknown:
		case kind == Unknown:
			kind = p.Kind
		case kind != p.Kind:
			return Unknown
		}
	}
	return kind
}
