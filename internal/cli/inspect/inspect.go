// Package inspect holds the commands that ask a running mesh: what changed and where the time went (changes, explain, wait), the state of
// proxies (proxies, stale, profile), who calls what (dependencies), what decides a request (why), and what is wrong (doctor, bug-report).
//
// Commands read debug pages of the control plane, and print them as tables or as JSON. Questions that need the pipeline are
// answered by the control plane, with internal/diagnose.
package inspect

import "github.com/spf13/cobra"

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		newBugReportCommand(), newChangesCommand(), newDashboardCommand(), newDependenciesCommand(), newDoctorCommand(), newExplainCommand(), newProfileCommand(),
		newProxiesCommand(), newStaleCommand(), newWaitCommand(), newWhyCommand(),
	}
}
