package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/moonsail/moonsail/internal/terminal"
)

// confirm asks a question on the terminal. No timeout runs meanwhile.
func (o *operation) confirm(question string) error {
	if o.yes || o.dryRun {
		return nil
	}
	in := o.cmd.InOrStdin()
	if file, ok := in.(*os.File); ok && !terminal.IsTerminal(file) {
		return terminal.UsageError{Err: errors.New("this needs a confirmation, and standard input is not a terminal: give --yes")}
	}
	fmt.Fprintf(o.notes, "%s [y/N] ", question)
	return readYes(o.cmd.Context(), in)
}

// readYes returns nil if the next line is a yes. It returns when ctx ends, too: the read itself ends with the process then.
func readYes(ctx context.Context, in io.Reader) error {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case l := <-read:
		if l.err != nil && !errors.Is(l.err, io.EOF) {
			return l.err
		}
		switch strings.ToLower(strings.TrimSpace(l.text)) {
		case "y", "yes":
			return nil
		}
		return &terminal.UserError{What: "cancelled: nothing was changed"}
	}
}
