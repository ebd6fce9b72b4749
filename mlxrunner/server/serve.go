package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

// lastWait is for requests to notice that they were cancelled.
const lastWait = 5 * time.Second

// Serve answers requests that come to l until ctx ends. Then it takes no new
// ones, lets those that run or wait come to their end within StopTimeout, and
// cancels the rest. A signal on hurry, which may be nil, cancels them at once.
func (s *Server) Serve(ctx context.Context, l net.Listener, hurry <-chan os.Signal) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	h := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.BodyTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	running, waiting := s.gate.counts()
	s.Log.Info("stopping", "running", running, "waiting", waiting)
	if err := s.drain(h, cancel, hurry); err != nil {
		return err
	}
	s.Log.Info("stopped")
	return nil
}

// drain waits for requests, and then no longer.
func (s *Server) drain(h *http.Server, cancel context.CancelCauseFunc, hurry <-chan os.Signal) error {
	patient, stop := context.WithTimeout(context.Background(), s.StopTimeout)
	defer stop()
	go func() {
		select {
		case <-hurry:
			stop()
		case <-patient.Done():
		}
	}()
	if h.Shutdown(patient) == nil {
		return nil
	}
	running, waiting := s.gate.counts()
	s.Log.Warn("cancelling requests", "running", running, "waiting", waiting)
	cancel(errStopping)
	last, done := context.WithTimeout(context.Background(), lastWait)
	defer done()
	if err := h.Shutdown(last); err != nil {
		return fmt.Errorf("stopping: requests did not end: %w", errors.Join(err, h.Close()))
	}
	return nil
}
