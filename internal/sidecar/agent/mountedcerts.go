package agent

import (
	"fmt"
	"strconv"
	"strings"
)

// MountedCertsDir is where certificates are that FILE_MOUNTED_CERTS stands for, as in Istio.
const MountedCertsDir = "/etc/certs"

const mountedCertsVariable = "FILE_MOUNTED_CERTS"

// FindMountedCerts gives the folder with the certificates where the environment (proxyMetadata of the
// sidecar's ProxyConfig is there) says that there are some, as Istio's agent takes it; empty: it
// does not.
func FindMountedCerts(environ []string) (dir string, err error) {
	for _, e := range environ {
		value, ok := strings.CutPrefix(e, mountedCertsVariable+"=")
		if !ok || value == "" {
			continue
		}
		yes, err := strconv.ParseBool(value)
		if err != nil {
			return "", fmt.Errorf("environment variable %s is %q: it wants true or false", mountedCertsVariable, value)
		}
		if yes {
			return MountedCertsDir, nil
		}
	}
	return "", nil
}
