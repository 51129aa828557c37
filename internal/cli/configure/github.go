package configure

import (
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// formatGitHub is the output as workflow commands of GitHub, which annotate the lines of a pull request.
const formatGitHub = "github"

// Escapes of workflow commands: of the text, and of properties, which end with commas and colons.
var (
	gitHubText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	gitHubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// gitHubLevels are the commands for severities.
var gitHubLevels = map[problem.Severity]string{
	problem.SeverityError: "error", problem.SeverityWarning: "warning", problem.SeverityInfo: "notice",
}

// printGitHub writes one workflow command for each problem.
func printGitHub(w io.Writer, problems problem.List) error {
	for _, p := range problems {
		var properties []string
		if p.File != "" {
			properties = append(properties, "file="+gitHubProperty.Replace(published(p.File)))
		}
		if p.Line > 0 {
			properties = append(properties, fmt.Sprintf("line=%d", p.Line))
		}
		text := p.Message
		if p.Field != "" {
			text = p.Field + ": " + text
		}
		title := string(p.Code)
		if p.Object.Name != "" {
			title += " " + userKey(p.Object).String()
		}
		properties = append(properties, "title="+gitHubProperty.Replace(title))
		if _, err := fmt.Fprintf(w, "::%s %s::%s\n", gitHubLevels[p.Severity], strings.Join(properties, ","), gitHubText.Replace(text)); err != nil {
			return err
		}
	}
	return nil
}
