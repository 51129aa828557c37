package agent

import (
	"log/slog"

	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
)

// debugAccess says who may read them: this host or pod, and whoever has a token.
func (s *settings) debugAccess() debugauth.Policy {
	return debugauth.Policy{Flags: "--debug", TokenFile: s.DebugTokenFile}
}

// keepLog has the end of the log kept for the debug pages. What is no log line for its own
// handler is none there either.
func (s *settings) keepLog() {
	s.logged = &inspect.Tail{}
	kept := slog.NewTextHandler(s.logged, &slog.HandlerOptions{Level: slog.LevelInfo})
	s.log = slog.New(slog.NewMultiHandler(s.log.Handler(), kept))
}
