// Package store reads and writes FleetQuotas and FleetAllowances with a dynamic client.
package store

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/backend"
	"github.com/postern-dev/postern/internal/typed"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// callTimeout is the time-out of a call to the hub, so that a request that needs the hub is answered while the hub does
// not answer.
const callTimeout = 2 * time.Second

// maxAnswer bounds an answer of the hub, in bytes. An object in etcd has at most 1.5 MiB.
const maxAnswer = 64 << 20

// NewHub returns a client for the hub in a kubeconfig.
func NewHub(kubeconfig, userAgent string) (*Quotas, error) {
	config, err := backend.Kubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout, config.QPS, config.UserAgent = callTimeout, -1, userAgent
	config.WarningHandler = rest.NoWarnings{}
	httpClient, err := backend.NewClient(config, backend.Limit{Bytes: maxAnswer})
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &Quotas{client.Resource(quotav1alpha1.Quotas())}, nil
}

// Quotas are the FleetQuotas of the hub.
type Quotas struct{ client dynamic.ResourceInterface }

// Get returns a quota.
func (s *Quotas) Get(ctx context.Context, name string) (*quotav1alpha1.FleetQuota, error) {
	u, err := s.client.Get(ctx, name, metav1.GetOptions{})
	return decode[quotav1alpha1.FleetQuota](u, err)
}

// List returns all quotas.
func (s *Quotas) List(ctx context.Context) ([]*quotav1alpha1.FleetQuota, error) {
	list, err := s.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make([]*quotav1alpha1.FleetQuota, 0, len(list.Items))
	for i := range list.Items {
		q, err := decode[quotav1alpha1.FleetQuota](&list.Items[i], nil)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// Update replaces the status of a quota.
func (s *Quotas) Update(ctx context.Context, q *quotav1alpha1.FleetQuota) (*quotav1alpha1.FleetQuota, error) {
	q.TypeMeta = metav1.TypeMeta{APIVersion: quotav1alpha1.GroupVersion().String(), Kind: quotav1alpha1.QuotaKind}
	u, err := encode(q)
	if err != nil {
		return nil, err
	}
	u, err = s.client.UpdateStatus(ctx, u, metav1.UpdateOptions{})
	return decode[quotav1alpha1.FleetQuota](u, err)
}

// Allowances are the FleetAllowances of a cluster.
type Allowances struct{ client dynamic.ResourceInterface }

// NewAllowances returns the FleetAllowances of a cluster.
func NewAllowances(client dynamic.Interface) *Allowances {
	return &Allowances{client.Resource(quotav1alpha1.Allowances())}
}

// Get returns an allowance.
func (s *Allowances) Get(ctx context.Context, name string) (*quotav1alpha1.FleetAllowance, error) {
	u, err := s.client.Get(ctx, name, metav1.GetOptions{})
	return decode[quotav1alpha1.FleetAllowance](u, err)
}

// Update replaces an allowance.
func (s *Allowances) Update(ctx context.Context, a *quotav1alpha1.FleetAllowance) (*quotav1alpha1.FleetAllowance, error) {
	return s.write(a, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return s.client.Update(ctx, u, metav1.UpdateOptions{})
	})
}

// Create stores a new allowance.
func (s *Allowances) Create(ctx context.Context, a *quotav1alpha1.FleetAllowance) (*quotav1alpha1.FleetAllowance, error) {
	return s.write(a, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return s.client.Create(ctx, u, metav1.CreateOptions{})
	})
}

// Delete deletes an allowance.
func (s *Allowances) Delete(ctx context.Context, name string) error {
	return s.client.Delete(ctx, name, metav1.DeleteOptions{}) // The caller looks at the reason.
}

func (s *Allowances) write(a *quotav1alpha1.FleetAllowance, do func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*quotav1alpha1.FleetAllowance, error) {
	a.TypeMeta = metav1.TypeMeta{APIVersion: quotav1alpha1.GroupVersion().String(), Kind: quotav1alpha1.AllowanceKind}
	u, err := encode(a)
	if err != nil {
		return nil, err
	}
	u, err = do(u)
	return decode[quotav1alpha1.FleetAllowance](u, err)
}

func encode(obj any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func decode[T any](u *unstructured.Unstructured, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := typed.From(u, out); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return out, nil
}

// Decode returns the allowance in an object of an informer.
func Decode(u *unstructured.Unstructured) (*quotav1alpha1.FleetAllowance, error) {
	return decode[quotav1alpha1.FleetAllowance](u, nil)
}
