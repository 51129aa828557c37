package cli

import "github.com/spf13/cobra"

// commands are the subcommands, each from the file of its name. Shell completion is cobra's.
var commands = []func() *cobra.Command{
	NewDemoCommand,
	NewServeCommand,
	NewAnalyzeCommand,
	NewDoctorCommand,
	NewChangesCommand,
	NewExplainCommand,
	NewWaitCommand,
	NewProxiesCommand,
	NewProxyConfigCommand,
	NewProfileCommand,
	NewWhyCommand,
	NewStaleCommand,
	NewBugReportCommand,
	NewAgentCommand,
	NewManifestCommand,
	NewInjectCommand,
	NewEnvoyCommand,
	NewVersionCommand,
}
