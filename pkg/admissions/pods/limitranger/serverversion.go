package limitranger

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// versionPause is the pause between two questions. An API server may be upgraded while Postern runs.
	versionPause = 5 * time.Minute
	// versionTimeout bounds one question.
	versionTimeout = 10 * time.Second
)

// serverVersion knows whether the LimitRanger of the API server admits an update of a claim whose requests are out of
// bounds and unchanged. Until the first answer, and after an answer that it cannot read, that LimitRanger is assumed to
// deny the update.
//
// Upstream: https://github.com/kubernetes/kubernetes/pull/142170
type serverVersion struct {
	discovery       discovery.ServerVersionInterfaceWithContext
	admitsUnchanged atomic.Bool
}

func newServerVersion(d admit.Deps) *serverVersion {
	return &serverVersion{discovery: discovery.ToDiscoveryInterfaceWithContext(d.Client.Discovery())}
}

// run asks for the version until the process ends.
func (v *serverVersion) run(ctx context.Context) { wait.UntilWithContext(ctx, v.update, versionPause) }

// update asks for the version. After an error the last answer stays.
func (v *serverVersion) update(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("plugin", "LimitRanger")
	switch gitVersion, err := v.ask(ctx); {
	case ctx.Err() != nil:
	case err != nil:
		log.Info("Could not read the version of the API server", "err", err, "admitsUnchangedClaims", v.admitsUnchanged.Load())
	default:
		if admits := admitsUnchanged(gitVersion); v.admitsUnchanged.Swap(admits) != admits {
			log.Info("The version of the API server decides about claims that an update leaves unchanged", "version", gitVersion, "admitsUnchangedClaims", admits)
		}
	}
}

func (v *serverVersion) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	info, err := v.discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return "", err
	}
	return info.GitVersion, nil
}

// admitsUnchanged reports whether a version is 1.38 or later. The pre-releases of 1.38 and the builds of vendors, such
// as v1.38.0-gke.100, count as 1.38.
func admitsUnchanged(gitVersion string) bool {
	v, err := version.ParseGeneric(gitVersion)
	return err == nil && v.AtLeast(version.MajorMinor(1, 38))
}
