package install

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
)

// Container runtimes read files with these extensions, in the order of their names, and use the first one.
var extensions = []string{".conf", ".conflist", ".json"}

// oldest is the oldest version of the CNI specification whose plugins form chains.
const oldest = "0.3.1"

// ErrNoNetwork means that no other CNI plugin has configured the node yet.
var ErrNoNetwork = errors.New("no list of CNI plugins")

// network is a file with a network's configuration: a list of plugins, or one plugin.
type network struct {
	fields  map[string]json.RawMessage
	plugins []json.RawMessage // nil: the file configures one plugin
}

// parse decodes a file. It keeps fields that it does not know.
func parse(text []byte) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(text, &n.fields); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	list, isList := n.fields["plugins"]
	if !isList {
		_, err := typeOf(text)
		return n, err
	}
	if err := json.Unmarshal(list, &n.plugins); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if len(n.plugins) == 0 {
		return nil, errors.New("plugins: the list is empty")
	}
	for i, p := range n.plugins {
		if _, err := typeOf(p); err != nil {
			return nil, fmt.Errorf("plugins[%d]: %w", i, err)
		}
	}
	return n, nil
}

// typeOf returns the type of a plugin's configuration.
func typeOf(plugin []byte) (string, error) {
	var p struct{ Type string }
	if err := json.Unmarshal(plugin, &p); err != nil {
		return "", err
	}
	if p.Type == "" {
		return "", errors.New("type is missing: set it to the plugin's name")
	}
	return p.Type, nil
}

// ours reports whether a plugin's configuration is the entry of Moonsail.
func ours(plugin json.RawMessage) bool {
	t, _ := typeOf(plugin) // parse has checked it
	return t == cni.PluginName
}

// with returns a file with the entry as the last plugin; the same file if it has the entry.
func with(text []byte, entry *cni.Entry) ([]byte, error) {
	n, err := parse(text)
	if err != nil {
		return nil, err
	}
	added, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	if n.has(added) {
		return text, nil
	}
	if n.plugins == nil {
		n.toList(text)
	}
	if err := n.raiseVersion(); err != nil {
		return nil, err
	}
	n.plugins = append(slices.DeleteFunc(n.plugins, ours), added)
	return n.encode()
}

// without returns a file without the entry; the same file if it has none.
func without(text []byte) ([]byte, error) {
	n, err := parse(text)
	if err != nil || !slices.ContainsFunc(n.plugins, ours) {
		return text, err
	}
	n.plugins = slices.DeleteFunc(n.plugins, ours)
	return n.encode()
}

// has reports whether the entry is in the list once. Its place is not compared: other tools may add plugins after it.
func (n *network) has(entry []byte) bool {
	count, equal := 0, false
	for _, p := range n.plugins {
		if ours(p) {
			count++
			equal = sameJSON(p, entry)
		}
	}
	return count == 1 && equal
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// sameNetwork reports whether two lists were made of files for one plugin of the same network: toList keeps the file's
// name in the plugin, where other lists have none.
func sameNetwork(a, b []byte) bool {
	x, errX := parse(a)
	y, errY := parse(b)
	if errX != nil || errY != nil || !sameJSON(x.fields["name"], y.fields["name"]) {
		return false
	}
	p, q := slices.DeleteFunc(x.plugins, ours), slices.DeleteFunc(y.plugins, ours)
	return len(p) == 1 && len(q) == 1 && identity(p[0]) == identity(q[0])
}

// identity returns the type and the name of a plugin's configuration.
func identity(plugin json.RawMessage) (p struct{ Type, Name string }) {
	_ = json.Unmarshal(plugin, &p) // parse has checked it
	return p
}

// toList makes the only plugin of a file the first one of a list.
func (n *network) toList(text []byte) {
	fields := map[string]json.RawMessage{}
	for _, name := range []string{"name", "cniVersion", "disableCheck", "disableGC"} {
		if v, ok := n.fields[name]; ok {
			fields[name] = v
		}
	}
	if _, ok := fields["name"]; !ok {
		fields["name"] = json.RawMessage(`"k8s-pod-network"`) // as istio-cni
	}
	if v, ok := n.fields["cniVersion"]; !ok || !chains(v) {
		fields["cniVersion"] = json.RawMessage(`"` + oldest + `"`)
	}
	n.fields, n.plugins = fields, []json.RawMessage{bytes.TrimSpace(text)}
}

// raiseVersion checks that the plugins of the list form a chain.
func (n *network) raiseVersion() error {
	v, ok := n.fields["cniVersion"]
	if !ok || !chains(v) {
		return fmt.Errorf("cniVersion %s does not support plugin chains: use %s or newer, or upgrade the other CNI plugin", cmp.Or(string(v), "(none)"), oldest)
	}
	return nil
}

// chains reports whether the plugins of a version form chains.
func chains(encoded json.RawMessage) bool {
	var v string
	if json.Unmarshal(encoded, &v) != nil {
		return false
	}
	newer, err := version.GreaterThanOrEqualTo(v, oldest)
	return err == nil && newer
}

func (n *network) encode() ([]byte, error) {
	list, err := json.Marshal(n.plugins)
	if err != nil {
		return nil, err
	}
	n.fields["plugins"] = list
	text, err := json.MarshalIndent(n.fields, "", "  ")
	return append(text, '\n'), err
}

// choose returns the file that the container runtime uses: the first valid one, or the one with a name. Invalid files
// before it are in skipped.
func choose(dir, name string) (file string, skipped []error, err error) {
	if name != "" {
		file, err = named(dir, name)
		return file, nil, err
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if e.IsDir() || !slices.Contains(extensions, filepath.Ext(file)) {
			continue
		}
		text, err := os.ReadFile(filepath.Clean(file))
		if err == nil {
			_, err = parse(text)
		}
		if err == nil {
			return file, skipped, nil
		}
		skipped = append(skipped, fmt.Errorf("%s: %w", file, err))
	}
	return "", skipped, fmt.Errorf("%s: %w", dir, ErrNoNetwork)
}

// named returns the file with a name. A file for one plugin may have become a list.
func named(dir, name string) (string, error) {
	for _, n := range []string{name, listName(name), strings.TrimSuffix(name, "list")} {
		file := filepath.Join(dir, n)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w", filepath.Join(dir, name), ErrNoNetwork)
}

// listName returns the name of a file that becomes a list.
func listName(file string) string {
	if filepath.Ext(file) == ".conflist" {
		return file
	}
	return strings.TrimSuffix(file, filepath.Ext(file)) + ".conflist"
}
