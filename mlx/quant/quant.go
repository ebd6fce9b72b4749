// Package quant says how a checkpoint's weights are quantised: by which mode,
// how many bits a weight, how many weights a group, and which layers differ. It
// reads that from a config.json and writes it back. It computes nothing.
//
// A quantised layer holds weight, rows of 32-bit words with the packed values,
// low bits first; scales, one a group; and biases, one a group, for affine
// alone. w is scale*q + bias for affine, scale*value(q) for the others.
package quant

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mode is how a group of weights is coded.
type Mode string

// The modes of MLX. The block formats are those of the OCP Microscaling
// specification and, for NVFP4, NVIDIA's: 4-bit values are E2M1, 8-bit ones
// E4M3; MX scales are powers of two (E8M0), NVFP4's are E4M3.
const (
	Affine Mode = "affine"
	MXFP4  Mode = "mxfp4"
	MXFP8  Mode = "mxfp8"
	NVFP4  Mode = "nvfp4"
)

// allowed is what MLX's kernels know; the first of each is the mode's default.
var allowed = map[Mode]struct{ bits, groups []int }{
	Affine: {[]int{4, 2, 3, 5, 6, 8}, []int{64, 32, 128}},
	MXFP4:  {[]int{4}, []int{32}},
	MXFP8:  {[]int{8}, []int{32}},
	NVFP4:  {[]int{4}, []int{16}},
}

// Params is how one layer is quantised.
type Params struct {
	Mode  Mode
	Bits  int // a weight
	Group int // weights that share a scale, along a row
}

// Parse reads MODE, MODE:BITS or MODE:BITS:GROUP; what is left out is the
// mode's default.
func Parse(text string) (Params, error) {
	parts := strings.Split(text, ":")
	mode := Mode(parts[0])
	known, ok := allowed[mode]
	if !ok {
		return Params{}, fmt.Errorf("reading the quantisation %q: %w", text, unknown(mode))
	}
	p := Params{Mode: mode, Bits: known.bits[0], Group: known.groups[0]}
	if len(parts) > 3 {
		return Params{}, fmt.Errorf("reading the quantisation %q: it has more than MODE:BITS:GROUP", text)
	}
	for i, number := range []*int{&p.Bits, &p.Group} {
		if i+1 >= len(parts) {
			break
		}
		n, err := strconv.Atoi(parts[i+1])
		if err != nil {
			return Params{}, fmt.Errorf("reading the quantisation %q: %q is not a number", text, parts[i+1])
		}
		*number = n
	}
	if err := p.Check(); err != nil {
		return Params{}, fmt.Errorf("reading the quantisation %q: %w", text, err)
	}
	return p, nil
}

func (p Params) String() string { return fmt.Sprintf("%s:%d:%d", p.Mode, p.Bits, p.Group) }

func unknown(mode Mode) error {
	return fmt.Errorf("mode %q is not known (affine, mxfp4, mxfp8, nvfp4 are)", mode)
}

// Check says whether MLX has kernels for p.
func (p Params) Check() error {
	known, ok := allowed[p.Mode]
	switch {
	case !ok:
		return unknown(p.Mode)
	case !slices.Contains(known.bits, p.Bits):
		return fmt.Errorf("%s has no %d bits, it has %s", p.Mode, p.Bits, list(known.bits))
	case !slices.Contains(known.groups, p.Group):
		return fmt.Errorf("%s has no groups of %d, it has %s", p.Mode, p.Group, list(known.groups))
	}
	return nil
}

func list(numbers []int) string {
	var words []string
	for _, n := range slices.Sorted(slices.Values(numbers)) {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ", ")
}

// HasBiases says whether a layer has biases beside its scales.
func (p Params) HasBiases() bool { return p.Mode == Affine }

// Fits says whether a row of n weights is a whole number of groups and of
// 32-bit words.
func (p Params) Fits(n int) bool { return n > 0 && n%p.Group == 0 && n*p.Bits%32 == 0 }

// Words is the length of a packed row of n weights, in 32-bit words.
func (p Params) Words(n int) int { return n * p.Bits / 32 }

// Groups is the number of scales of a row of n weights.
func (p Params) Groups(n int) int { return n / p.Group }

// CheckShapes holds the shapes of a layer's packed weight and scales, [...,
// rows, words] and [..., rows, groups], against p and gives the weights a row.
func (p Params) CheckShapes(weight, scales []int64) (int, error) {
	n := len(weight)
	if n < 2 || len(scales) != n || !slices.Equal(weight[:n-1], scales[:n-1]) {
		return 0, fmt.Errorf("weight %v and scales %v do not belong together", weight, scales)
	}
	row := int(scales[n-1]) * p.Group
	if !p.Fits(row) || int64(p.Words(row)) != weight[n-1] {
		return 0, fmt.Errorf("weight %v and scales %v are not %s", weight, scales, p)
	}
	return row, nil
}
