package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// TestMeshConfigName checks which ConfigMap a control plane reads as the mesh's configuration, from files and from an API
// server. It has one key in the model, whatever its name is.
func TestMeshConfigName(t *testing.T) {
	key := model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}
	for _, tt := range []struct {
		title, setting, name, mesh string
		read, problem              bool
	}{
		{"default", "", "istio", "accessLogFile: /dev/stdout", true, false},
		{"default, another's", "", "istio-canary", "accessLogFile: /dev/stdout", false, false},
		{"revision", "istio-canary", "istio-canary", "accessLogFile: /dev/stdout", true, false},
		{"revision, the default's", "istio-canary", "istio", "accessLogFile: /dev/stdout", false, false},
		{"revision, invalid", "istio-canary", "istio-canary", "ingressControllerMode: 7", false, true},
	} {
		t.Run(tt.title, func(t *testing.T) {
			d := Decoder{MeshConfigMap: tt.setting}
			typed := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: tt.name}, Data: map[string]string{"mesh": tt.mesh},
			}
			object, problems := d.FromTyped(typed)
			file := d.fromDocument([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "istio-system", "name": "` + tt.name +
				`"}, "data": {"mesh": "` + tt.mesh + `"}}`))
			require.Equal(t, tt.problem, problems.HasErrors(), problems)
			require.Equal(t, tt.problem, file.Problems.HasErrors(), file.Problems)
			if tt.problem {
				require.Equal(t, key, file.Key, "the last valid version has this key, and stays in force")
				require.Equal(t, tt.name, problems[0].Object.Name)
			}
			if !tt.read {
				require.Nil(t, object)
				require.Nil(t, file.Object)
				return
			}
			require.IsType(t, &model.MeshConfig{}, object)
			require.Equal(t, key, object.Metadata().Key)
			require.Equal(t, key, file.Object.Metadata().Key)
			require.Equal(t, key, file.Key)
		})
	}
}
