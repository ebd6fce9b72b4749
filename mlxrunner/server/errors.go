package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"payload/mlx/mlxthread"
	"payload/mlxrunner/generate"
)

// An apiError is an answer in the form that OpenAI's API gives errors.
type apiError struct {
	status  int
	kind    string // type
	code    string
	param   string // the parameter that is at fault
	message string
	after   time.Duration // when to try again; 0 does not say
	wants   string        // the scheme of the credentials that are missing
	cause   error         // told to the log alone
}

func (e *apiError) Error() string {
	if e.cause != nil && strings.HasPrefix(e.cause.Error(), e.message) {
		return e.cause.Error()
	}
	if e.cause != nil {
		return e.message + ": " + e.cause.Error()
	}
	return e.message
}

func (e *apiError) Unwrap() error { return e.cause }

const (
	invalidRequest = "invalid_request_error"
	serverFault    = "server_error"
)

// What ends a request other than its own end.
var (
	errStopping = errors.New("the server is shutting down")
	errSlow     = errors.New("the client does not read what it asked for")
	errGone     = errors.New("the client left")
	errPanicked = errors.New("the engine broke")
)

// StatusGone is what the log and metrics say of a request whose client left.
const statusGone = 499

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalidRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// unsupported refuses what would otherwise be ignored.
func unsupported(param, format string, args ...any) *apiError {
	e := badRequest(param, format, args...)
	e.code = "unsupported_parameter"
	return e
}

func unavailable(message string, cause error) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, kind: serverFault, code: "unavailable", message: message, after: 5 * time.Second, cause: cause}
}

// explain maps an error of a request to its answer. It is the one place that
// does.
func explain(ctx context.Context, err error) *apiError {
	if api, ok := errors.AsType[*apiError](err); ok {
		return api
	}
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: invalidRequest, code: "body_too_large", message: fmt.Sprintf("the body has more than %d bytes", long.Limit)}
	}
	if full, ok := errors.AsType[*fullError](err); ok {
		return &apiError{status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "queue_full", message: full.Error(), after: full.after}
	}
	if room, ok := errors.AsType[*generate.ContextError](err); ok {
		e := badRequest("", "%v", room)
		e.code = "context_length_exceeded"
		return e
	}
	if memory, ok := errors.AsType[*generate.MemoryError](err); ok {
		e := badRequest("", "%v", memory)
		e.code = "memory_budget_exceeded"
		return e
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, errSlow):
		return &apiError{status: http.StatusRequestTimeout, kind: invalidRequest, message: err.Error()}
	case errors.Is(cause, errStopping), errors.Is(err, mlxthread.ErrClosed), errors.Is(err, mlxthread.ErrExited):
		return unavailable("the server is stopping and ended this request", err)
	case cause != nil, errors.Is(err, errGone):
		return &apiError{status: statusGone, kind: invalidRequest, message: errGone.Error(), cause: err}
	}
	return &apiError{status: http.StatusInternalServerError, kind: serverFault, message: "the server failed at this request; its log says why, under the request's id", cause: err}
}

// write sends an error as the answer.
func (e *apiError) write(w http.ResponseWriter) {
	if e.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(time.Second, e.after.Round(time.Second))/time.Second)))
	}
	if e.wants != "" {
		w.Header().Set("WWW-Authenticate", e.wants)
	}
	if e.status == http.StatusRequestTimeout || e.status == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close") // or the server would wait for the rest of the body
	}
	writeJSON(w, e.status, e)
}

// MarshalJSON gives the object that OpenAI's API answers with.
func (e *apiError) MarshalJSON() ([]byte, error) {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	return json.Marshal(struct {
		Error body `json:"error"`
	}{body{e.message, e.kind, orNull(e.param), orNull(e.code)}})
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // nobody is left to tell
}
