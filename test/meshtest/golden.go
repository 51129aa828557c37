package meshtest

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// resourceLists are the kinds of goldens.
var resourceLists = map[string]func(*simulate.World) []proto.Message{
	"listeners": func(w *simulate.World) []proto.Message { return messages(w.Listeners) },
	"routes": func(w *simulate.World) []proto.Message {
		return append(messages(w.Routes), messages(w.VirtualHosts)...)
	},
	"clusters":  func(w *simulate.World) []proto.Message { return messages(w.Clusters) },
	"endpoints": func(w *simulate.World) []proto.Message { return messages(w.Endpoints) },
}

func messages[M proto.Message](list []M) []proto.Message {
	out := make([]proto.Message, len(list))
	for i, m := range list {
		out[i] = m
	}
	return out
}

// resourceText returns YAML, sorted by name, with the keys of maps in order.
func resourceText(list []proto.Message) (string, error) {
	texts := make([]string, len(list))
	for i, m := range list {
		b, err := protojson.Marshal(m)
		if err == nil {
			b, err = yaml.JSONToYAML(b)
		}
		if err != nil {
			return "", fmt.Errorf("resource %d: %w", i, err)
		}
		texts[i] = item(string(b))
	}
	slices.SortFunc(texts, func(a, b string) int { return strings.Compare(nameLine(a), nameLine(b)) })
	return strings.Join(texts, ""), nil
}

// item makes a map an element of a list.
func item(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return "- " + strings.Join(lines, "\n  ") + "\n"
}

// nameLine returns the line with the name of an element.
func nameLine(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if name, ok := strings.CutPrefix(line[min(2, len(line)):], "name: "); ok {
			return name
		}
		if name, ok := strings.CutPrefix(line[min(2, len(line)):], "clusterName: "); ok {
			return name
		}
	}
	return ""
}
