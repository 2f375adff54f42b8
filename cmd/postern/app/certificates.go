package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
)

// keepSettles is the time for which a CA that is in no replica's bundle stays registered, in
// settle durations.
const keepSettles = 10

// certificateFlags are the durations of the certificates that the Postern process signs.
type certificateFlags struct {
	caValidity, servingValidity, settle time.Duration
}

func (f *certificateFlags) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.caValidity, "ca-validity", certs.DefaultCAValidity, "How long our own CA lasts. It is replaced at two thirds of that.")
	fs.DurationVar(&f.servingValidity, "serving-certificate-validity", certs.DefaultValidity, "How long our own serving certificates last. They are renewed at two thirds of that. A CA that was replaced is trusted for that long.")
	fs.DurationVar(&f.settle, "ca-settle-duration", certs.DefaultSettle, "How long the API servers may take to learn of a CA bundle that was registered.")
}

func (f *certificateFlags) check() error {
	switch {
	case f.caValidity <= 0 || f.servingValidity <= 0 || f.settle <= 0:
		return fmt.Errorf("--ca-validity, --serving-certificate-validity and --ca-settle-duration: must be positive")
	case f.caValidity < 2*f.servingValidity:
		return fmt.Errorf("--ca-validity: %v is less than two times --serving-certificate-validity, %v", f.caValidity, f.servingValidity)
	}
	return nil
}

// authority returns the Authority that signs the certificates of the Postern process.
func (p *process) authority(ctx context.Context) (certs.Source, error) {
	dns, ips, err := servingNames(p.deployment)
	if err != nil {
		return nil, err
	}
	o := certs.Options{
		DNSNames: dns, IPs: ips, Clock: p.cluster.time, Metrics: certs.NewMetrics(p.registry), Notify: p.notices.tell,
		Validity: p.certificates.servingValidity, CAValidity: p.certificates.caValidity, Settle: p.certificates.settle,
	}
	if p.certDir == "" {
		o.Registered = func(ctx context.Context) ([][]byte, error) {
			return registration.RegisteredBundles(ctx, p.cluster.dynamic, p.deployment)
		}
		return certs.NewAuthority(ctx, certs.NewSecretStore(p.cluster.client, p.webhookNamespace, secretName), o)
	}
	a, err := certs.NewAuthority(ctx, certs.NewDirStore(p.certDir), o)
	if err == nil {
		// Only the Postern process repairs a folder, so an error in the folder is a
		// configuration mistake and is reported at once.
		err = a.Problem()
	}
	return a, err
}
