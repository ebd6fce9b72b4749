package verify

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"payload/internal/manifest"
)

// arraySteps are what a program must get from an array library. Its numbers are
// worked out here once more: the program judges nothing.
var arraySteps = []step{
	{"version", judgeVersion},
	{"device", judgeDevice},
	{"arrays", exactly(100, func(i int) float64 { return float64(2*i + 1) })},
	{"matmul", exactly(matmulRows*matmulCols, product)},
	{"inverse", closeTo(1e-5, 0.6, -0.7, -0.2, 0.4)}, // of 4 7 2 6
	{"safetensors", judgeSafetensors},
	{"error", judgeError},
	{"memory", judgeMemory},
	{"threads", exactly(4, func(i int) float64 { return float64(1000*i + 999*1000/2) })}, // i, i+1 … i+999 added up
}

// judgeVersion compares what the library says it is with what the manifest says
// was built, and keeps it.
func judgeVersion(r stepResult, s *sessions) error {
	s.res.Runtime.Version = r.Text
	components, err := componentsOf(s.options.Dir)
	if err != nil {
		return nil //nolint:nilerr // the static half has reported it
	}
	var refs []string
	for _, c := range components {
		if strings.TrimPrefix(c.Ref, "v") == r.Text {
			return nil
		}
		refs = append(refs, c.Name+" "+c.Ref)
	}
	return fmt.Errorf("it says that it is %s; %s has %s", r.Text, manifest.Name, strings.Join(refs, ", "))
}

// judgeDevice makes sure that work goes to the backend that was built.
func judgeDevice(r stepResult, s *sessions) error {
	want := "GPU"
	if s.backend() == cpuBackend {
		want = cpuBackend
	}
	if r.Text != want {
		return fmt.Errorf("the default device is the %s, the payload is for %s", r.Text, s.backend())
	}
	return nil
}

// exactly wants n values, each what want gives.
func exactly(n int, want func(int) float64) func(stepResult, *sessions) error {
	values := make([]float64, n)
	for i := range values {
		values[i] = want(i)
	}
	return closeTo(0, values...)
}

func closeTo(tolerance float64, want ...float64) func(stepResult, *sessions) error {
	return func(r stepResult, _ *sessions) error { return compareValues(r.Values, want, tolerance) }
}

func compareValues(got, want []float64, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, not %d", len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tolerance) { // not a number is never close
			return fmt.Errorf("value %d is %g, not %g", i, got[i], want[i])
		}
	}
	return nil
}

// The sizes of the product of two matrices of small whole numbers.
const matmulRows, matmulInner, matmulCols = 33, 57, 29

func product(at int) float64 {
	i, j := at/matmulCols, at%matmulCols
	sum := 0
	for k := range matmulInner {
		sum += ((i+2*k)%7 - 3) * ((3*k+j)%5 - 2)
	}
	return float64(sum)
}

// savedValues are what the program saves, as float32 has them.
var savedValues = []float32{0, 0.5, -1.25, 3e-5, 65504, -7}

// judgeSafetensors looks at what came back, and at the file itself: a library
// that writes and reads the same wrong thing agrees with itself.
//
// Format: 8 bytes of length, little-endian, so many bytes of JSON, then the
// data, which the JSON's offsets count from.
func judgeSafetensors(r stepResult, s *sessions) error {
	var want []float64
	for _, v := range savedValues {
		want = append(want, float64(v))
	}
	// Nine digits, as they are printed, tell every float32 from the next.
	got := make([]float64, len(r.Values))
	for i, v := range r.Values {
		got[i] = float64(float32(v))
	}
	if err := compareValues(got, want, 0); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if r.Text != "check" {
		return fmt.Errorf("read back: the note is %q", r.Text)
	}
	data, err := os.ReadFile(filepath.Join(s.filesDir(), "check.safetensors"))
	if err != nil {
		return fmt.Errorf("the file: %w", err)
	}
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
		return errors.New("the file has no header")
	}
	size := binary.LittleEndian.Uint64(data)
	var header struct {
		Weight struct {
			Dtype   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		} `json:"weight"`
		Notes map[string]string `json:"__metadata__"`
	}
	if err := json.Unmarshal(data[8:8+size], &header); err != nil {
		return fmt.Errorf("the file's header: %w", err)
	}
	w, body := header.Weight, data[8+size:]
	if w.Dtype != "F32" || !slices.Equal(w.Shape, []int{2, 3}) || header.Notes["format"] != "check" ||
		w.Offsets != [2]int64{0, int64(4 * len(savedValues))} || len(body) != 4*len(savedValues) {
		return fmt.Errorf("the file's header is %s", clip(string(data[8:8+size]), 300))
	}
	for i, v := range savedValues {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:])); got != v {
			return fmt.Errorf("the file's value %d is %g, not %g", i, got, v)
		}
	}
	return nil
}

// judgeError wants what can't be done to come back as an error with words.
func judgeError(r stepResult, _ *sessions) error {
	switch {
	case r.Status == 0:
		return errors.New("shapes that can't be multiplied give no error")
	case r.Text == "":
		return errors.New("the error comes without a message")
	}
	return nil
}

// judgeMemory follows an array of 1 MiB through the counters.
func judgeMemory(r stepResult, _ *sessions) error {
	const array = 1 << 20
	b := r.Sizes
	for _, rule := range []struct {
		ok   bool
		what string
	}{
		{b["active"]-b["before"] >= array, "an array of 1 MiB is not counted as active"},
		{b["peak"] >= b["active"], "the peak is below what is active"},
		{b["freed"] <= b["before"], "an array that was freed still counts as active"},
		{b["cache"] >= array, "an array that was freed is not kept in the cache"},
		{b["cleared"] == 0, "the cache is not empty after it was cleared"},
		{b["limit"] > 0, "the cache has no limit that could be set back"},
		{b["uncached"] == 0, "with a limit of 0 the cache still keeps something"},
		{b["limit_then"] == 0, "the limit of 0 was not kept"},
	} {
		if !rule.ok {
			return fmt.Errorf("%s: %s", rule.what, show(b))
		}
	}
	return nil
}
