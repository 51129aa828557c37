package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// questions are what the story ends with: the commands that anybody would use, about its
// own changes.
var questions = [][]string{
	{"explain", "virtualservice/" + reviews, "-n", Namespace},
	{"explain", "endpointslice/" + reviews + "-1", "-n", Namespace},
}

// explain has moonsail tell the way of what the demo changed.
func (d *demo) explain(ctx context.Context) error {
	d.title("What became of the changes, as anybody can ask")
	for _, q := range questions {
		fmt.Fprintf(d.out, "\n%s\n", paint(d.style.Bold, "$ moonsail "+strings.Join(q, " ")))
		var failed bytes.Buffer
		cmd := exec.CommandContext(ctx, d.Binary, append(q[:len(q):len(q)], "--address", d.control.http)...)
		cmd.Stdout, cmd.Stderr = d.out, &failed
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("moonsail %s: %w: %s", strings.Join(q, " "), err, strings.TrimSpace(failed.String()))
		}
	}
	return nil
}
