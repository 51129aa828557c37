package configure

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
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

// readCluster reads the objects of a revision in a cluster, its MeshConfig, and the credentials that they name. An empty revision
// means all objects. flags explain errors. address is that of the API server.
func readCluster(ctx context.Context, flags *client.Cluster, access kube.Cluster, domain, root, revision string) (content *kube.Content, address string, err error) {
	c, err := kube.Connect(access)
	if err != nil {
		return nil, "", flags.Explain(err)
	}
	defer c.Close()
	decoder := config.Decoder{Domain: domain, Revision: revision}
	if decoder.MeshConfigMap, err = meshConfigOf(ctx, c, root, revision); err != nil {
		return nil, "", flags.Explain(err)
	}
	if content, err = c.Read(ctx, decoder, root); err == nil {
		err = c.ReadCredentials(ctx, decoder, content)
	}
	if err != nil {
		return nil, "", flags.Explain(err)
	}
	return content, c.Address(), nil
}

// meshConfigOf returns the name of a revision's own ConfigMap with MeshConfig. It returns "", the default, if none exists.
func meshConfigOf(ctx context.Context, c *kube.Client, root, revision string) (string, error) {
	if revision == "" || revision == model.DefaultRevision {
		return "", nil
	}
	own := model.MeshConfigName + "-" + revision
	text, err := c.MeshConfig(root, own).Read(ctx)
	if err != nil {
		return "", err
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list.Items) == 0 {
		return "", err
	}
	return own, nil
}
