package terminal

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// repeatAnnotation marks a flag that hints repeat.
const repeatAnnotation = "moonsail_repeat"

// RepeatInHints makes hints of cmd repeat flags that the user has set, such as the address of a control plane: without it the
// next command would ask another one. It also marks cmd as a command that takes them.
func RepeatInHints(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		annotate(cmd.Flags().Lookup(name), repeatAnnotation, "")
	}
}

func repeats(f *pflag.Flag) bool {
	_, marked := f.Annotations[repeatAnnotation]
	return marked
}

// Hint returns advice as the user of cmd needs it: its commands, which are in quotes, have the name by which the user calls
// the program, as "kubectl moonsail", and the flags that choose where cmd looked.
func Hint(cmd *cobra.Command, advice string) string {
	root := cmd.Root()
	// Apostrophes, as in "Envoy's", begin no command.
	commands := regexp.MustCompile(`'` + regexp.QuoteMeta(root.Name()) + ` ([^']*)'`)
	return commands.ReplaceAllStringFunc(advice, func(quoted string) string {
		line := commands.FindStringSubmatch(quoted)[1]
		return "'" + root.DisplayName() + " " + line + repeated(cmd, line) + "'"
	})
}

// repeated returns the flags of cmd that a command line lacks and takes, with a space before each.
func repeated(cmd *cobra.Command, line string) string {
	args := strings.Fields(line)
	next, rest, err := cmd.Root().Find(args)
	if err != nil || strings.Contains(line, "|") || strings.HasSuffix(line, "--help") {
		return ""
	}
	var b strings.Builder
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		other := next.Flags().Lookup(f.Name)
		if !f.Changed || SetBy(f) != "" || !repeats(f) || other == nil || !repeats(other) {
			return
		}
		for _, arg := range rest {
			if name, _, _ := strings.Cut(arg, "="); name == "--"+f.Name || f.Shorthand != "" && name == "-"+f.Shorthand {
				return
			}
		}
		b.WriteString(" --" + f.Name + " " + shellWord(WithoutPassword(f.Value.String())))
	})
	return b.String()
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./~-]+$`)

// shellWord quotes a word for shells, without single quotes, which are around the command. An interactive shell expands "!"
// within double quotes, so that it stands outside of them.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`", "!", `"\!"`).Replace(s) + `"`
}

// WithoutPassword hides the user and the password of an address. Error messages and hints are parts of logs.
func WithoutPassword(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	authority, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndexByte(authority, '@')
	if !isURL || at < 0 {
		return address
	}
	return scheme + "://" + rest[at+1:]
}
