package configure

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// unreadable returns the error of directories, files or a standard input that cannot be read.
func unreadable(paths []string, err error) error {
	e := &terminal.UserError{What: "cannot read the objects", Where: strings.Join(paths, " "), Err: err, Next: "give a directory, a file of YAML, or - for standard input"}
	var at *fs.PathError
	if errors.As(err, &at) {
		e.Where, e.Err = at.Path, at.Err
	}
	return e
}

// readCluster reads all objects of a cluster, and the credentials that they name. flags explain errors. address is that of the API
// server.
func readCluster(ctx context.Context, flags *client.Cluster, access kube.Cluster, domain, root string) (content *kube.Content, address string, err error) {
	c, err := kube.Connect(access)
	if err != nil {
		return nil, "", flags.Explain(err)
	}
	defer c.Close()
	decoder := config.Decoder{Domain: domain}
	if content, err = c.Read(ctx, decoder, root); err == nil {
		err = c.ReadCredentials(ctx, decoder, content)
	}
	if err != nil {
		return nil, "", flags.Explain(err)
	}
	return content, c.Address(), nil
}
