package postern

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const probeTimeout = 5 * time.Second

// await returns when Postern is ready and has registered its webhooks. It returns an error when Postern exits or
// the time is up.
func (p *Postern) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := p.registered(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.process.Done():
			return fmt.Errorf("it exited (%s)", p.process.Exit())
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-time.After(pollPeriod):
		}
	}
}

// registered returns nil if Postern is ready and reports that it has applied all its webhook configurations.
func (p *Postern) registered(ctx context.Context) error {
	if _, err := p.get(ctx, "/readyz"); err != nil {
		return err
	}
	metrics, err := p.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	return allRegistered(metrics)
}

func allRegistered(metrics string) error {
	found := false
	for line := range strings.Lines(metrics) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(series, "postern_webhook_registered{") {
			continue
		}
		if found = true; value != "1" {
			return fmt.Errorf("%s is %s", series, value)
		}
	}
	if !found {
		return errors.New("the metrics name no webhook configuration")
	}
	return nil
}

// get sends a request to Postern's health port.
func (p *Postern) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, strings.Join(strings.Fields(string(body)), " "))
	}
	return string(body), nil
}
