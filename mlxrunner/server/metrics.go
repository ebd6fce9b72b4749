package server

import (
	"fmt"
	"net/http"

	"github.com/VictoriaMetrics/metrics"
)

// serverMetrics are what /metrics tells, in Prometheus' text format. Their
// labels are of small, fixed sets.
type serverMetrics struct {
	set                       *metrics.Set
	queue, first              *metrics.PrometheusHistogram
	prompt, cached, generated *metrics.Counter
	panics                    *metrics.Counter
}

// seconds are the upper bounds of what is measured: a few milliseconds for a
// small model's token, minutes for a long text.
var seconds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

func newMetrics(s *Server) *serverMetrics {
	metrics.ExposeMetadata(true) // # TYPE lines, for every set
	set := metrics.NewSet()
	m := &serverMetrics{
		set:       set,
		queue:     set.NewPrometheusHistogramExt("mlxrunner_queue_seconds", seconds),
		first:     set.NewPrometheusHistogramExt("mlxrunner_first_token_seconds", seconds),
		prompt:    set.NewCounter("mlxrunner_prompt_tokens_total"),
		cached:    set.NewCounter("mlxrunner_cached_prompt_tokens_total"),
		generated: set.NewCounter("mlxrunner_generated_tokens_total"),
		panics:    set.NewCounter("mlxrunner_panics_total"),
	}
	set.NewGauge("mlxrunner_requests_running", func() float64 { n, _ := s.gate.counts(); return float64(n) })
	set.NewGauge("mlxrunner_requests_waiting", func() float64 { _, n := s.gate.counts(); return float64(n) })
	return m
}

// request counts one that was answered.
func (m *serverMetrics) request(e *entry) {
	m.set.GetOrCreateCounter(fmt.Sprintf("mlxrunner_requests_total{path=%q,status=\"%d\"}", e.path, e.status)).Inc()
	m.set.GetOrCreatePrometheusHistogramExt(fmt.Sprintf("mlxrunner_request_seconds{path=%q}", e.path), seconds).UpdateDuration(e.start)
}

// count adds the tokens of an answer.
func (m *serverMetrics) count(u usage) {
	m.prompt.Add(u.Prompt)
	m.cached.Add(u.Details.Cached)
	m.generated.Add(u.Completion)
}

// tellMetrics answers GET /metrics.
func (s *Server) tellMetrics(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.metrics.set.WritePrometheus(w)
	if s.Memory != nil {
		memory, err := s.Memory()
		if err != nil {
			return err
		}
		set := metrics.NewSet() // which tells of a name once
		for _, kind := range []struct {
			name  string
			bytes int64
		}{{"active", memory.Active}, {"pool", memory.Cache}, {"peak", memory.Peak}} {
			set.NewGauge(fmt.Sprintf("mlxrunner_memory_bytes{kind=%q}", kind.name), nil).Set(float64(kind.bytes))
		}
		set.WritePrometheus(w)
	}
	metrics.WriteProcessMetrics(w)
	return nil
}
