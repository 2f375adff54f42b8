package admittest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// syncTimeout bounds the sync of informers. Fake clients return all objects at
// once.
const syncTimeout = 30 * time.Second

// Server serves one plugin through the router, over TLS, with its own fake cluster.
type Server struct {
	*Environment
	// Service is a family that contains only this plugin.
	Service router.AdmissionService
	// Webhooks are the compiled webhooks of each phase.
	Webhooks map[string][]*conditions.Webhook

	plugin string
	http   *httptest.Server
	stop   context.CancelFunc
	// violation is the first violation of the contract of admit.Func.
	violation atomic.Pointer[string]
}

// Serve starts the plugin in the cluster of the case. An error of the plugin's
// constructor is an *admit.PluginError.
func (c *Case) Serve(ctx context.Context, p *admit.Plugin) (*Server, error) {
	e, err := c.Environment()
	if err != nil {
		return nil, err
	}
	s, err := c.serveIn(ctx, e, p)
	if err != nil {
		e.Close()
	}
	return s, err
}

func (c *Case) serveIn(ctx context.Context, e *Environment, p *admit.Plugin) (*Server, error) {
	s := &Server{Environment: e, plugin: p.Name}
	var err error
	if s.Service, err = c.Service(e, s.guarded(p)); err != nil {
		return nil, err
	}
	if err := s.compile(); err != nil {
		return nil, err
	}
	var services []router.AdmissionService
	if s.Service.Mutate != nil || s.Service.Validate != nil {
		served := s.Service
		served.Mutate, served.Validate = dropping(served.Mutate), dropping(served.Validate)
		services = append(services, served)
	}
	r, err := router.New(services, router.NewMetrics(metrics.NewKubeRegistry()))
	if err != nil {
		return nil, fmt.Errorf("making the router: %w", err)
	}
	ctx, s.stop = context.WithCancel(ctx)
	if err := e.Sync(ctx); err != nil {
		s.stop()
		return nil, err
	}
	s.http = httptest.NewUnstartedServer(r)
	s.http.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.http.StartTLS()
	return s, nil
}

// Service returns a family that contains only the plugin, in the cluster of the case. An error of the plugin's constructor is
// an *admit.PluginError. The caller calls Sync before the first request.
func (c *Case) Service(e *Environment, p *admit.Plugin) (router.AdmissionService, error) {
	deps, err := e.Deps(p, c.Features)
	if err != nil {
		return router.AdmissionService{}, err
	}
	if deps.Flags, err = c.flags(p); err != nil {
		return router.AdmissionService{}, err
	}
	return admit.Family{Name: "plugin", Plugins: []*admit.Plugin{p}}.Service(deps, map[string][]byte{p.Name: e.Config})
}

// Sync starts the requested informers, which run until the context ends, and waits until they are synced.
func (e *Environment) Sync(ctx context.Context) error {
	e.Informers.StartWithContext(ctx)
	bounded, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for kind, ok := range e.Informers.WaitForCacheSync(bounded.Done()) {
		if !ok {
			return fmt.Errorf("the informer of %v did not sync", kind)
		}
	}
	e.CustomInformers.Start(ctx.Done())
	for resource, ok := range e.CustomInformers.WaitForCacheSync(bounded.Done()) {
		if !ok {
			return fmt.Errorf("the informer of %v did not sync", resource)
		}
	}
	e.addWatches()
	return nil
}

// Close stops the server and the informers.
func (s *Server) Close() {
	s.http.Close()
	s.stop()
	s.Informers.Shutdown()
	s.CustomInformers.Shutdown()
	s.Environment.Close()
}

// Has reports whether the plugin takes part in a phase.
func (s *Server) Has(phase string) bool {
	if phase == router.PhaseMutate {
		return s.Service.Mutate != nil
	}
	return s.Service.Validate != nil
}

// HTTPError is an answer that is not an AdmissionReview.
type HTTPError struct {
	// Code is the HTTP status code, and Body the text of the answer without surrounding blanks.
	Code int
	Body string
}

func (e *HTTPError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Body) }

// Post sends the review of a request to one phase. It checks the envelope of the
// answer.
func (s *Server) Post(ctx context.Context, phase string, ar *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: ar,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the review: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.http.URL+s.Service.Path+"/"+phase+"?timeout=10s", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the HTTP request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Client().Do(req)
	if err != nil {
		return nil, fmt.Errorf("sending the review: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &HTTPError{resp.StatusCode, string(bytes.TrimSpace(answer))}
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	if review.Response == nil || review.Response.UID != ar.UID {
		return nil, fmt.Errorf("the answer is for another request: %s", answer)
	}
	return review.Response, nil
}
